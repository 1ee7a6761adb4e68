"""A tier that was withheld is allowed once by a person, in the same conversation."""

from __future__ import annotations

from decimal import Decimal

import pytest

from escalation.errors import RefusalCode
from escalation.run.prepare import effective_tier
from escalation.supervisor import manual
from escalation.supervisor.approval_answers import expire_overdue, reject
from escalation.tiers import get_tier
from sessions_app.models import Approval, Cycle, Incident, PauseSwitch, Session, Watch
from sessions_app.models.autonomy import AutonomyLevel
from tests.escalation.refusals import refused
from tests.escalation.rows import ESCALATE, HEALTHY, a_report, notes_of
from tests.escalation.runs import run
from tests.factories import (
    CommandEventFactory,
    CycleFactory,
    SessionFactory,
    WatchFactory,
    user_with,
)

pytestmark = pytest.mark.django_db
Status, Purpose = Session.Status, Session.Purpose


@pytest.fixture
def approver():
    return user_with("approver", username="grace")


def at_level(session: Session, level: AutonomyLevel) -> None:
    watch = session.cycle.watch
    assert watch is not None
    watch.set_autonomy_level(level)
    watch.save()
    fields = {"max_tier": watch.max_tier, "dry_run": watch.dry_run, "approval": watch.approval}
    Cycle.objects.filter(pk=session.cycle_id).update(**fields)


@pytest.fixture
def withheld(fake_cli, session) -> Session:
    """A Tier 1 that asked for Tier 2 in a watch that may only look."""
    at_level(session, AutonomyLevel.LOOK)
    fake_cli.reports(ESCALATE)
    ended = run(session)
    assert (ended.status, ended.cycle.outcome) == (Status.COMPLETED, Cycle.Outcome.NEEDS_PERSON)
    return ended


def test_the_allowed_tier_resumes_the_conversation_and_runs_for_real(fake_cli, withheld, approver):
    fake_cli.reports(a_report(actions=(("docker restart web", "succeeded"),)))

    allowed = manual.allow_once(withheld, by=approver, note="Go on.", budget_usd=Decimal("1.5"))
    ended = run(allowed)

    call, tier = fake_cli.calls[1], get_tier(2)
    assert call.flag("--resume") == withheld.session_id
    assert "--fork-session" in call.argv
    assert call.flag("--tools") == ",".join(tier.tool_names)
    assert Decimal(call.flag("--max-budget-usd")) == Decimal("1.5")
    assert "Go on." in call.stdin
    assert (ended.tier, ended.purpose, ended.status) == (2, Purpose.TIER, Status.COMPLETED)
    assert ended.sandbox["changes_nothing"] is False
    assert Session.objects.get(pk=withheld.pk).status == Status.ESCALATED


@pytest.mark.parametrize("way", ["page", "terminal", "admin"])
def test_it_stands_in_the_story_of_session_and_incident(withheld, approver, way):
    allowed = manual.allow_once(withheld, by=approver, way=way, note="Go on.")

    approval, incident = Approval.objects.get(), Incident.objects.get()
    event = incident.events.get(kind="approved")
    assert (approval.way, event.by, event.session) == (way, approver, allowed)
    assert approval.answer_text in event.text
    assert notes_of(allowed, "approval") == [approval.answer_text]


def test_the_approval_is_stored_with_tier_dollars_person_and_reason(withheld, approver):
    allowed = manual.allow_once(withheld, by=approver, note="Go on.", budget_usd=Decimal("1.5"))

    approval = Approval.objects.get()
    assert (approval.kind, approval.state, approval.session) == ("tier", "approved", allowed)
    assert (approval.budget_usd, approval.decided_by) == (Decimal("1.5"), approver)
    assert (approval.note, approval.used_at) == ("Go on.", None)
    assert "the policy allows no tier above 1" in approval.why


def test_the_approval_is_used_when_the_tier_starts(fake_cli, withheld, approver):
    fake_cli.reports(HEALTHY)

    run(manual.allow_once(withheld, by=approver))

    assert Approval.objects.get().used_at is not None


def test_without_an_amount_the_limit_of_the_tier_is_approved(withheld, approver):
    manual.allow_once(withheld, by=approver)

    assert Approval.objects.get().budget_usd == get_tier(2).max_budget_usd


def test_a_second_request_is_refused(fake_cli, withheld, approver):
    allowed = manual.allow_once(withheld, by=approver)

    with refused(RefusalCode.CYCLE_ACTIVE):
        manual.allow_once(withheld, by=approver)
    fake_cli.reports(HEALTHY)
    run(allowed)
    with refused(RefusalCode.SESSION_STATUS):
        manual.allow_once(Session.objects.get(pk=withheld.pk), by=approver)
    assert Approval.objects.count() == 1


def test_the_tier_above_the_allowed_one_does_not_follow(fake_cli, withheld, approver):
    fake_cli.reports(ESCALATE)

    ended = run(manual.allow_once(withheld, by=approver))

    assert (ended.status, ended.children.count()) == (Status.COMPLETED, 0)
    assert "the policy allows no tier above 1" in ended.escalation_reason


def test_a_session_that_continues_the_tier_stays_allowed(fake_cli, withheld, approver):
    fake_cli.then("init(); say(); result(None)")
    asked = run(manual.allow_once(withheld, by=approver))
    fake_cli.reports(HEALTHY)

    again = run(asked.children.get())

    assert (again.purpose, again.allowed_once, again.status) == (
        Purpose.REPORT,
        True,
        Status.COMPLETED,
    )


@pytest.mark.parametrize("purpose", [Purpose.FORK, Purpose.FOLLOW_UP])
def test_what_a_person_starts_from_the_allowed_tier_is_not_allowed(
    fake_cli, withheld, approver, purpose
):
    fake_cli.reports(HEALTHY)
    ended = run(manual.allow_once(withheld, by=approver))

    if purpose == Purpose.FORK:
        with refused(RefusalCode.POLICY):
            manual.fork(ended, "Another way")
    else:
        assert manual.follow_up(ended, "Why?").allowed_once is False


@pytest.mark.parametrize("answer", ["expire", "reject"])
def test_a_tier_that_nobody_approved_can_be_allowed_later(fake_cli, session, approver, answer):
    at_level(session, AutonomyLevel.SAFE_WITH_APPROVAL)
    fake_cli.reports(ESCALATE)
    first = run(session)
    asked = Approval.objects.get()
    if answer == "expire":
        assert expire_overdue(asked.expires_at) == 1
    else:
        reject(asked, by=approver, note="Not now.")
    waited = asked.session
    fake_cli.reports(HEALTHY)

    ended = run(manual.allow_once(Session.objects.get(pk=waited.pk), by=approver))

    assert ended.parent_session_id == first.pk
    assert fake_cli.calls[1].flag("--resume") == first.session_id
    assert Approval.objects.latest("pk").state == "approved"


def test_a_spent_budget_of_the_chain_does_not_stop_it_and_that_of_the_day_does(
    fake_cli, session, approver, settings
):
    Cycle.objects.filter(pk=session.cycle_id).update(budget_usd=Decimal("0.01"))
    fake_cli.reports(ESCALATE)
    ended = run(session)
    assert "for this chain is spent" in ended.escalation_reason
    settings.CLAUDEOPS_BUDGET_DAY = Decimal("0.01")
    with refused(RefusalCode.BUDGET, match="for today"):
        manual.allow_once(ended, by=approver)
    settings.CLAUDEOPS_BUDGET_DAY = None
    fake_cli.reports(HEALTHY)

    allowed = run(manual.allow_once(ended, by=approver))

    assert allowed.status == Status.COMPLETED


def test_a_dry_run_is_repeated_for_real_from_its_own_conversation(fake_cli, session, approver):
    Cycle.objects.filter(pk=session.cycle_id).update(dry_run=True)
    fake_cli.reports(ESCALATE)
    planned = run(session).children.get()
    fake_cli.reports(a_report(services=(("web", "down"),)))
    dry = run(planned)
    assert dry.sandbox["changes_nothing"] is True
    fake_cli.reports(HEALTHY)

    ended = run(manual.allow_once(dry, by=approver))

    assert (ended.tier, ended.purpose, ended.parent_session_id) == (2, Purpose.FORK, dry.pk)
    assert fake_cli.calls[2].flag("--resume") == dry.session_id
    assert manual.FOR_REAL in fake_cli.calls[2].stdin
    assert "Not a dry run" in fake_cli.calls[2].stdin
    assert ended.sandbox["changes_nothing"] is False
    with refused(RefusalCode.SESSION_STATUS):
        manual.allow_once(Session.objects.get(pk=dry.pk), by=approver)


def test_a_tier_of_a_paused_watch_is_allowed_and_runs(fake_cli, withheld, approver):
    Watch.objects.update(enabled=False)
    fake_cli.reports(HEALTHY)

    ended = run(manual.allow_once(withheld, by=approver))

    assert (ended.tier, ended.status) == (2, Status.COMPLETED)
    assert ended.cycle.outcome == Cycle.Outcome.HEALTHY
    assert not Watch.objects.get().enabled


def test_a_paused_installation_lets_it_wait(withheld, approver):
    PauseSwitch.objects.update_or_create(pk=1, defaults={"paused": True})

    assert manual.allow_once(withheld, by=approver).status == Status.QUEUED


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"tier": 3}, RefusalCode.SESSION_STATUS),
        ({"purpose": Purpose.FOLLOW_UP}, RefusalCode.SESSION_STATUS),
        ({"status": Status.CANCELLED}, RefusalCode.SESSION_STATUS),
    ],
)
def test_a_session_after_which_nothing_was_withheld_is_refused(approver, fields, code):
    session = SessionFactory(workdir="/tmp", **fields)

    with refused(code):
        manual.allow_once(session, by=approver)
    assert not Approval.objects.exists()


@pytest.mark.parametrize("amount", ["0", "-1", "5.01"])
def test_an_amount_outside_the_limits_of_the_tier_is_refused(approver, amount):
    with refused(RefusalCode.INVALID_CHOICE):
        manual.allow_once(SessionFactory(), by=approver, budget_usd=Decimal(amount))


def test_a_long_note_is_refused(approver):
    with refused(RefusalCode.TEXT_TOO_LONG):
        manual.allow_once(SessionFactory(), by=approver, note="x" * 2_000)


def test_an_account_that_may_not_approve_is_refused():
    with refused(RefusalCode.NOT_PERMITTED):
        manual.allow_once(SessionFactory(), by=user_with("operator"))
    assert not Approval.objects.exists()


def test_the_requester_of_an_unattended_run_is_refused(approver):
    cycle = CycleFactory(requested_by=approver, trigger=Cycle.Trigger.VERIFICATION)

    with refused(RefusalCode.OWN_REQUEST):
        manual.allow_once(SessionFactory(cycle=cycle), by=approver)


def test_the_tools_of_the_allowed_tier_are_not_those_of_a_dry_run():
    cycle = CycleFactory(dry_run=True, max_tier=1, watch=WatchFactory(dry_run=True))

    assert "Write" not in effective_tier(SessionFactory(tier=2, cycle=cycle)).allowed_tools
    allowed = SessionFactory(tier=2, cycle=cycle, allowed_once=True)
    assert "Write" in effective_tier(allowed).allowed_tools


def test_a_tier_allowed_for_a_denied_command_is_told_which(fake_cli, session, approver):
    fake_cli.reports(HEALTHY)
    ended = run(session)
    denied = {"verdict": "deny", "more": {"allowed_from": 2}}
    CommandEventFactory(session=ended, sequence=9_000, command="docker restart web", **denied)
    fake_cli.reports(HEALTHY)

    allowed = manual.allow_once(ended, by=approver)
    run(allowed)

    assert "docker restart web" in fake_cli.calls[1].stdin
    assert "docker restart web" in allowed.approvals.get().note
