"""The whole table of `decide()`: every end of a run with every policy."""

from __future__ import annotations

from itertools import product

import pytest

from escalation.supervisor.decision import AskAgain, Ending, Escalate, Stop, decide, wanted_because
from sessions_app.history.claims import Claim, ClaimCheck, Recorded
from sessions_app.models import Cycle
from sessions_app.models.autonomy import Policy
from tests.escalation.rows import CONVERSATION, a_report
from tests.tables import each_row

Outcome = Cycle.Outcome

REPORTS = {
    "none": None,
    "healthy": a_report(),
    "no services": a_report(services=()),
    "fixed": a_report(actions=(("restarted web", "succeeded"),)),
    "tried in vain": a_report(actions=(("restarted web", "failed"),)),
    "only skipped": a_report(actions=(("restart web", "skipped"),)),
    "degraded": a_report(services=(("web", "healthy"), ("db", "degraded"))),
    "down": a_report(services=(("web", "down"),)),
    "unknown": a_report(services=(("web", "unknown"),)),
    "fixed but down": a_report(
        services=(("web", "down"),), actions=(("restarted web", "succeeded"),)
    ),
    "asks": a_report(needed=True, reason="web must be restarted", services=(("web", "down"),)),
    "asks without reason": a_report(needed=True),
    "asks though healthy": a_report(needed=True, reason="just in case"),
}

EVERY_END = [
    (
        Ending(
            tier=tier,
            status="completed" if went_well else "failed",
            error="" if went_well else "The CLI broke.",
            report=report,
            report_problem="" if report else "the run ended without a report",
            session_id=session_id,
            answered=answered,
            asked_again=asked_again,
            asked_for_by_tier=asked_for_by,
        ),
        Policy(max_tier=max_tier, dry_run=dry_run),
    )
    for (
        tier,
        went_well,
        report,
        session_id,
        answered,
        asked_again,
        asked_for_by,
        max_tier,
        dry_run,
    ) in product(
        (1, 2, 3),
        (True, False),
        REPORTS.values(),
        (CONVERSATION, ""),
        (True, False),
        (True, False),
        (None, 1),
        (1, 2, 3),
        (True, False),
    )
]


def asks_for_more(end: Ending) -> bool:
    return end.report is not None and end.report["escalation"]["needed"]


@each_row("dry_run", [True, False])
@each_row("max_tier", [1, 2, 3])
def test_it_always_gives_a_reason(max_tier, dry_run):
    policy = Policy(max_tier=max_tier, dry_run=dry_run)

    reasons = [decide(end, policy).reason for end, given in EVERY_END if given == policy]

    assert len(reasons) == len(EVERY_END) // 6
    assert all(reason.strip() for reason in reasons)


def test_it_escalates_exactly_when_asked_and_allowed_also_without_an_id():
    wrong = [
        (end, policy)
        for end, policy in EVERY_END
        if isinstance(decide(end, policy), Escalate)
        != (end.went_well and asks_for_more(end) and end.tier < 3 and end.tier < policy.max_tier)
    ]

    assert wrong == []


def test_it_escalates_by_one_tier_and_never_above_the_policy():
    decisions = [(end, policy, decide(end, policy)) for end, policy in EVERY_END]

    steps = {
        (decision.to_tier - end.tier, decision.to_tier <= min(policy.max_tier, 3))
        for end, policy, decision in decisions
        if isinstance(decision, Escalate)
    }

    assert steps == {(1, True)}


def test_it_asks_again_exactly_when_a_good_run_has_no_report_and_was_not_asked_before():
    wrong = [
        (end, policy)
        for end, policy in EVERY_END
        if isinstance(decide(end, policy), AskAgain)
        != (end.went_well and end.report is None and not end.asked_again and bool(end.session_id))
    ]

    assert wrong == []


def test_it_never_calls_a_cycle_good_without_a_report_of_healthy_services():
    good = [
        end
        for end, policy in EVERY_END
        if getattr(decide(end, policy), "outcome", "") in Cycle.GOOD_OUTCOMES
    ]

    assert good
    assert [end for end in good if not end.went_well or end.report is None] == []
    assert {
        service["status"] for end in good if end.report for service in end.report["services"]
    } == {"healthy"}


def test_it_says_fixed_exactly_when_all_is_healthy_and_the_record_shows_an_action():
    fixed = {
        (name, finding)
        for name, report in REPORTS.items()
        for end, policy in EVERY_END
        for finding in ClaimCheck
        if end.report is report
        for claims in [[claimed(finding)] if report and report["actions_taken"] else []]
        if getattr(decide(end, policy, claims=claims), "outcome", "") == Outcome.FIXED
    }

    assert ("fixed", ClaimCheck.SEEN) in fixed
    assert {finding for _name, finding in fixed} == {ClaimCheck.SEEN}
    assert "fixed but down" not in {name for name, _finding in fixed}


def test_it_says_could_not_run_exactly_when_a_first_tier_failed_before_any_answer():
    wrong = [
        (end, policy)
        for end, policy in EVERY_END
        if (getattr(decide(end, policy), "outcome", "") == Outcome.COULD_NOT_RUN)
        != (
            not end.went_well
            and not end.answered
            and not end.asked_again
            and end.asked_for_by_tier is None
        )
    ]

    assert wrong == []


def test_it_needs_a_person_in_every_other_case():
    others = [
        decision
        for end, policy in EVERY_END
        if isinstance(decision := decide(end, policy), Stop)
        and decision.outcome not in {*Cycle.GOOD_OUTCOMES, Outcome.COULD_NOT_RUN}
    ]

    assert {decision.outcome for decision in others} == {Outcome.NEEDS_PERSON}


@each_row(
    ("report", "outcome"),
    [
        ("healthy", Outcome.HEALTHY),
        ("fixed", Outcome.HEALTHY),
        ("tried in vain", Outcome.HEALTHY),
        ("only skipped", Outcome.HEALTHY),
        ("degraded", Outcome.NEEDS_PERSON),
        ("down", Outcome.NEEDS_PERSON),
        ("unknown", Outcome.NEEDS_PERSON),
        ("fixed but down", Outcome.NEEDS_PERSON),
    ],
)
def test_the_outcome_follows_from_the_report(report, outcome):
    end = Ending(tier=1, status="completed", report=REPORTS[report], session_id=CONVERSATION)

    decision = decide(end, Policy(max_tier=3, dry_run=False))

    assert isinstance(decision, Stop)
    assert decision.outcome == outcome


def asking(tier: int, **fields) -> Ending:
    fields = {"session_id": CONVERSATION, **fields}
    return Ending(tier=tier, status="completed", report=REPORTS["asks"], **fields)


@pytest.mark.parametrize(
    ("end", "policy", "why"),
    [
        (asking(1), Policy(max_tier=1, dry_run=True), "policy allows no tier above 1"),
        (asking(3), Policy(max_tier=3, dry_run=False), "no tier above 3"),
        (asking(2), Policy(max_tier=2, dry_run=False), "policy allows no tier above 2"),
        (asking(2), Policy(max_tier=1, dry_run=False), "policy allows no tier above 1"),
    ],
)
def test_the_reason_says_why_it_did_not_escalate(end, policy, why):
    decision = decide(end, policy)

    assert isinstance(decision, Stop)
    assert "web must be restarted" in decision.reason
    assert why in decision.reason


@each_row(
    ("end", "words"),
    [
        (
            Ending(tier=2, status="failed", error="The API refused.", asked_for_by_tier=1),
            ("Tier 2 failed", "Tier 1 had asked", "The API refused."),
        ),
        (
            Ending(tier=1, status="failed", error="It hung.", answered=True),
            ("Tier 1 did not finish", "It hung."),
        ),
        (
            Ending(tier=1, status="failed", error="No API key."),
            ("Tier 1 could not run", "No API key."),
        ),
        (
            Ending(tier=1, status="completed", report_problem="no services", asked_again=True),
            ("even when asked again", "no services"),
        ),
        (
            Ending(tier=1, status="completed", report_problem="no services"),
            ("cannot be asked again", "no session id"),
        ),
    ],
)
def test_the_reason_names_the_end_of_the_run(end, words):
    reason = decide(end, Policy(max_tier=3, dry_run=False)).reason

    assert [word for word in words if word not in reason] == []


def test_the_reason_names_a_service_that_is_not_healthy():
    end = Ending(tier=2, status="completed", report=REPORTS["degraded"], session_id=CONVERSATION)

    decision = decide(end, Policy(max_tier=3, dry_run=False))

    assert decision.reason == "Tier 2 asked for no escalation, but db is degraded."


@pytest.mark.parametrize(
    ("reason", "services", "sentence"),
    [
        ("web is down", [], "web is down."),
        ("web is down.", ["web", "db"], "web is down (web, db)."),
        ("   ", [], "no reason given."),
        ("", ["web"], "no reason given (web)."),
    ],
)
def test_the_request_for_escalation_becomes_one_sentence(reason, services, sentence):
    report = a_report(needed=True, reason=reason)
    report["escalation"]["services"] = services

    assert wanted_because(report) == sentence


def test_a_report_about_no_service_is_never_healthy():
    end = Ending(tier=1, status="completed", report=a_report(services=()))

    decision = decide(end, Policy(max_tier=3, dry_run=False))

    assert decision == Stop(Outcome.NEEDS_PERSON, "Tier 1 reported on no service at all.")


def claimed(finding: ClaimCheck) -> Claim:
    seen = Recorded(action="docker restart web", told="exit code 1")
    return Claim(
        action="restarted web", service="web", result="succeeded", finding=finding, evidence=seen
    )


def mended() -> Ending:
    return Ending(tier=2, status="completed", report=REPORTS["fixed"], session_id=CONVERSATION)


def test_a_contradicted_claim_needs_a_person():
    claims = [claimed(ClaimCheck.SEEN), claimed(ClaimCheck.OTHERWISE)]

    decision = decide(mended(), Policy(max_tier=3, dry_run=False), claims=claims)

    assert decision == Stop(
        Outcome.NEEDS_PERSON,
        "Tier 2 reports that “restarted web” succeeded, and the record says otherwise: docker "
        "restart web (exit code 1).",
    )


@each_row(
    ("finding", "outcome", "is_said"),
    [
        (ClaimCheck.SEEN, Outcome.FIXED, False),
        (ClaimCheck.CLAIMED, Outcome.HEALTHY, True),
        (ClaimCheck.NOTHING, Outcome.HEALTHY, True),
    ],
)
def test_an_action_fixes_something_only_if_the_record_shows_it(finding, outcome, is_said):
    decision = decide(mended(), Policy(max_tier=3, dry_run=False), claims=[claimed(finding)])

    assert isinstance(decision, Stop)
    assert decision.outcome == outcome
    assert ("not in the record: restarted web" in decision.reason) == is_said
