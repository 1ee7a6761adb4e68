"""Findings of a cycle about each cause, from the results of its sessions."""

from __future__ import annotations

from typing import Any

import pytest

from escalation.errors import WhyNot
from escalation.incidents.findings import (
    BY_STOP,
    COULD_NOT_RUN,
    EVERYWHERE,
    STOPPED_BY_PEOPLE,
    TITLES,
    CycleFindings,
    CycleSummary,
    Finding,
    RunCause,
    SessionSummary,
    findings_of,
)
from escalation.report import Report
from sessions_app.history.claims import Claim, ClaimCheck
from sessions_app.models import Cycle, Incident, Session
from tests.escalation.rows import a_report
from tests.tables import each_row

Kind, Severity, Outcome, Status = Incident.Kind, Incident.Severity, Cycle.Outcome, Session.Status
WATCH = "watch:1"
DOWN = a_report(needed=True, reason="it is down", services=(("web", "down"), ("db", "healthy")))
MENDED = a_report(services=(("web", "healthy"),), actions=(("restarted web", "succeeded"),))


def claim(
    action: str = "restarted web", *, service: str = "", finding: ClaimCheck = ClaimCheck.SEEN
) -> Claim:
    return Claim(action=action, service=service, result="succeeded", finding=finding)


def found(
    *runs: SessionSummary, outcome: str = Outcome.NEEDS_PERSON, **facts: Any
) -> CycleFindings:
    return findings_of(CycleSummary(scope=WATCH, runs=runs, outcome=outcome, **facts))


def the_one(findings: CycleFindings) -> Finding:
    [finding] = findings.seen
    return finding


def about(name: str, status: str, **more: Any) -> Report:
    return {**a_report(services=((name, status),)), **more}  # type: ignore[typeddict-item]


def test_a_service_that_is_not_healthy_is_found_under_its_name():
    finding = the_one(found(SessionSummary(tier=1, report=DOWN), reason="Not escalated: dry run."))

    assert finding.key == (WATCH, Kind.PROBLEM, "web")
    assert finding.title == "web is down"
    assert finding.detail.endswith("Not escalated: dry run.")


def test_a_healthy_service_is_reported_and_one_not_mentioned_is_not():
    findings = found(SessionSummary(tier=1, report=DOWN))

    assert findings.healthy == {"db"}


@each_row("name", ["Web", " web ", "`web`", '"WEB"', "web.service", "/web"])
def test_a_service_has_one_spelling(name):
    assert the_one(found(SessionSummary(tier=1, report=about(name, "down")))).cause == "web"


def test_of_two_states_of_one_service_in_a_report_the_worse_counts():
    report = a_report(services=(("web", "healthy"), ("Web", "down"), ("web", "degraded")))

    findings = found(SessionSummary(tier=1, report=report))

    assert the_one(findings).severity == Severity.CRITICAL
    assert findings.healthy == frozenset()


@pytest.mark.parametrize(
    ("status", "level", "severity"),
    [
        ("down", "info", Severity.CRITICAL),
        ("degraded", "info", Severity.WARNING),
        ("degraded", "critical", Severity.CRITICAL),
        ("unknown", "warning", Severity.WARNING),
    ],
)
def test_severity_comes_from_the_state_and_the_events(status, level, severity):
    events = [{"level": level, "service": "WEB", "message": "x"}]
    events += [{"level": "critical", "service": "db", "message": "another's"}]

    report = about("web", status, events=events)

    assert the_one(found(SessionSummary(tier=1, report=report))).severity == severity


@each_row("name", ["/web", "web.service", "`web`"])
def test_the_title_has_the_plain_name_of_the_service(name):
    assert the_one(found(SessionSummary(tier=1, report=about(name, "down")))).title == "web is down"


def test_an_unknown_after_a_down_in_the_same_cycle_stays_critical():
    finding = the_one(
        found(
            SessionSummary(tier=1, report=about("web", "down")),
            SessionSummary(tier=2, report=about("web", "unknown")),
        )
    )

    assert (finding.severity, finding.title) == (Severity.CRITICAL, "web is down")
    assert not finding.is_certain


def test_a_degraded_after_a_down_in_the_same_cycle_is_a_warning():
    finding = the_one(
        found(
            SessionSummary(tier=1, report=about("web", "down")),
            SessionSummary(tier=2, report=about("web", "degraded")),
        )
    )

    assert (finding.severity, finding.title) == (Severity.WARNING, "web is degraded")
    assert finding.is_certain


def test_the_last_report_of_a_cycle_counts():
    findings = found(
        SessionSummary(tier=1, report=DOWN),
        SessionSummary(tier=2, report=MENDED, claims=(claim(),)),
        outcome=Outcome.FIXED,
    )

    assert findings.seen == ()
    assert findings.healthy == {"web", "db"}
    assert findings.fixed["web"].remedy == "restarted web"


def test_a_service_that_the_last_tier_does_not_mention_keeps_its_state():
    other = a_report(services=(("cache", "healthy"),), actions=(("flushed it", "succeeded"),))

    findings = found(
        SessionSummary(tier=1, report=DOWN),
        SessionSummary(tier=2, report=other),
        outcome=Outcome.FIXED,
    )

    assert the_one(findings).cause == "web"
    assert "web" not in findings.fixed


def test_a_read_only_tier_fixes_nothing():
    findings = found(
        SessionSummary(tier=1, report=MENDED, claims=(claim(),)), outcome=Outcome.FIXED
    )

    assert findings.fixed == {}


@each_row("finding", [finding for finding in ClaimCheck if finding != ClaimCheck.SEEN])
def test_a_claim_that_the_record_does_not_show_fixes_nothing(finding):
    findings = found(
        SessionSummary(tier=1, report=DOWN),
        SessionSummary(tier=2, report=MENDED, claims=(claim(finding=finding),)),
    )

    assert findings.fixed == {}
    assert ("web" in findings.healthy) == (finding != ClaimCheck.OTHERWISE)


@each_row(
    ("services", "named", "causes"),
    [
        ((("web", "healthy"), ("db", "healthy")), "", ["web"]),
        ((("web", "healthy"), ("db", "healthy")), "db", ["db"]),
        ((("web", "healthy"), ("db", "healthy")), "/WEB", ["web"]),
        ((("web", "healthy"), ("db", "healthy")), "another", ["web"]),
        ((("db", "healthy"),), "", ["web", "db"]),
        ((("web", "down"),), "web", ["web"]),
    ],
)
def test_services_of_a_contradicted_claim_are_not_healthy(services, named, causes):
    wrong = claim(service=named, finding=ClaimCheck.OTHERWISE)
    findings = found(
        SessionSummary(tier=1, report=DOWN),
        SessionSummary(tier=2, report=a_report(services=services), claims=(wrong,)),
    )

    assert [finding.cause for finding in findings.seen] == causes
    assert not findings.healthy & set(causes)


def test_a_later_report_outweighs_a_contradicted_one():
    wrong = claim(finding=ClaimCheck.OTHERWISE)
    findings = found(
        SessionSummary(tier=2, report=MENDED, claims=(wrong,)),
        SessionSummary(tier=3, report=MENDED, claims=(claim(service="web"),)),
        outcome=Outcome.FIXED,
    )

    assert findings.seen == ()
    assert set(findings.fixed) == {"web"}


@each_row(
    "run",
    [
        SessionSummary(tier=1, status=Status.CANCELLED),
        *(
            SessionSummary(tier=1, status=Status.INTERRUPTED, stop_cause=cause)
            for cause in STOPPED_BY_PEOPLE
        ),
    ],
)
def test_a_run_that_a_person_stopped_is_no_finding(run):
    assert found(run).seen == ()
    assert found(SessionSummary(tier=1, report=DOWN), run).seen != ()


def test_without_a_successful_remedy_nothing_is_fixed():
    recovered = a_report(services=(("web", "healthy"),), actions=(("restarted web", "failed"),))

    findings = found(SessionSummary(tier=1, report=DOWN), SessionSummary(tier=2, report=recovered))

    assert findings.fixed == {}
    assert "web" in findings.healthy


def test_a_service_that_was_always_healthy_was_not_unwell():
    both = a_report(services=(("web", "healthy"), ("db", "healthy")))
    done = (claim("restarted db", service="db"),)

    fixed = found(
        SessionSummary(tier=1, report=DOWN), SessionSummary(tier=2, report=both, claims=done)
    ).fixed

    assert (fixed["web"].was_unwell, fixed["db"].was_unwell) == (True, False)


def test_a_service_in_a_request_for_escalation_is_not_healthy():
    report = a_report(needed=True, reason="the disk fills", services=(("disk", "healthy"),))
    report["escalation"]["services"] = ["Disk", "backup"]

    findings = found(SessionSummary(tier=1, report=report), outcome="")

    assert [finding.cause for finding in findings.seen] == ["disk", "backup"]
    assert findings.healthy == frozenset()


def test_a_request_for_escalation_without_a_service_has_its_own_cause():
    report = a_report(needed=True, reason="something is odd")

    assert the_one(found(SessionSummary(tier=1, report=report))).cause == RunCause.ASKED_FOR_HELP


@each_row(
    ("run", "cause"),
    [
        (SessionSummary(tier=1), RunCause.NO_REPORT),
        (SessionSummary(tier=1, report=a_report(services=())), RunCause.NO_SERVICES),
        (SessionSummary(tier=2, status=Status.FAILED), RunCause.FAILED),
        (SessionSummary(tier=2, status=Status.TIMED_OUT), RunCause.TIME_UP),
        (SessionSummary(tier=2, status=Status.INTERRUPTED), RunCause.CUT_OFF),
        *(
            (SessionSummary(tier=1, status=Status.INTERRUPTED, stop_cause=s), c)
            for s, c in BY_STOP.items()
        ),
    ],
)
def test_a_cycle_that_needs_a_person_without_a_service_has_a_named_cause(run, cause):
    finding = the_one(found(run, reason="as it was told"))

    assert (finding.kind, finding.cause, finding.detail) == (Kind.PROBLEM, cause, "as it was told")


def test_every_cause_of_a_stop_has_a_title():
    assert set(BY_STOP) | STOPPED_BY_PEOPLE == set(Session.StopCause)
    assert set(TITLES) == set(RunCause)
    assert set(COULD_NOT_RUN) == set(WhyNot)


def test_a_failed_tier_keeps_the_findings_of_the_tier_before():
    findings = found(
        SessionSummary(tier=1, report=DOWN), SessionSummary(tier=2, status=Status.FAILED)
    )

    assert the_one(findings).cause == "web"
    assert not findings.ended_usably


@each_row("why_not", WhyNot)
def test_a_cause_that_prevents_runs_belongs_to_the_watch_or_the_installation(why_not):
    failed = SessionSummary(tier=1, status=Status.FAILED, said_something=False)

    findings = found(failed, outcome=Outcome.COULD_NOT_RUN, why_not=why_not)

    scope = "installation" if why_not in EVERYWHERE else WATCH
    assert the_one(findings).key == (scope, Kind.COULD_NOT_RUN, why_not)
    assert not findings.ran


def test_a_session_that_failed_before_any_output_has_a_cause():
    failed = SessionSummary(tier=1, status=Status.FAILED, said_something=False)

    assert the_one(found(failed, outcome=Outcome.COULD_NOT_RUN)).cause == WhyNot.FAILED


def test_a_drill_opens_no_incident_of_the_installation():
    found_in_drill = findings_of(
        CycleSummary(
            scope="drill:x", runs=(), outcome=Outcome.COULD_NOT_RUN, why_not=WhyNot.NO_CREDENTIALS
        )
    )

    assert the_one(found_in_drill).scope == "drill:x"


def test_a_failed_start_is_found_beside_the_problem_of_a_service():
    failed = SessionSummary(tier=2, status=Status.FAILED, said_something=False)

    findings = found(SessionSummary(tier=1, report=DOWN), failed, why_not=WhyNot.CLI)

    assert [(one.kind, one.cause) for one in findings.seen] == [
        (Kind.PROBLEM, "web"),
        (Kind.COULD_NOT_RUN, WhyNot.CLI),
    ]


def test_a_tier_refused_by_the_policy_has_only_the_causes_of_services():
    findings = found(
        SessionSummary(tier=1, report=DOWN), SessionSummary(tier=2), why_not=WhyNot.POLICY
    )

    assert the_one(findings).cause == "web"


def test_a_healthy_cycle_finds_nothing():
    findings = found(SessionSummary(tier=1, report=a_report()), outcome=Outcome.HEALTHY)

    assert findings.seen == ()
    assert findings.healthy == {"web"}
    assert findings.ran
    assert findings.ended_usably
