"""The end of a session and its successor are stored in one transaction."""

from __future__ import annotations

import pytest

from escalation.queue import enqueue_with
from escalation.report import Report
from escalation.supervisor.conclude import conclude, decision_after
from escalation.supervisor.decision import AskAgain, Decision, Ending, Escalate, Stop
from sessions_app.models import Cycle, Session
from sessions_app.models.session import IllegalTransition
from tests.escalation.rows import CONVERSATION, ESCALATE, HEALTHY
from tests.factories import CycleFactory, SessionFactory, WatchFactory

pytestmark = pytest.mark.django_db
Status = Session.Status


@pytest.fixture
def running() -> Session:
    return SessionFactory(running=True, session_id=CONVERSATION, workdir="/srv/shop")


def finish(session: Session, report: Report | None, **end) -> Decision:
    ending = Ending(
        tier=session.tier,
        report=report,
        **{
            "status": Status.COMPLETED,
            "session_id": CONVERSATION,
            "report_problem": "no report",
            "stored": {"report": report, "error": end.get("error", "")},
            **end,
        },
    )
    decision = decision_after(session, ending)
    conclude(session, ending, decision)
    return decision


def test_an_escalation_ends_the_session_and_starts_the_next_tier(running):
    decision = finish(running, ESCALATE)

    child = running.children.get()
    assert isinstance(decision, Escalate)
    assert running.status == Status.ESCALATED
    assert (child.tier, child.model, child.status) == (2, "sonnet", Status.QUEUED)
    assert (child.cycle, child.workdir) == (running.cycle, "/srv/shop")


def test_req4_the_next_tier_is_linked_to_its_parent_with_the_reason(running):
    decision = finish(running, ESCALATE)

    child = running.children.get()
    assert child.parent_session_id == running.pk
    assert child.continued_by == Session.ContinuedBy.RESUME
    assert child.continued_why == running.escalation_reason == decision.reason


def test_the_cycle_stays_active_while_a_successor_waits(running):
    finish(running, ESCALATE)

    running.cycle.refresh_from_db()
    assert running.cycle.is_active


def test_a_missing_report_is_requested_at_the_same_tier(running):
    decision = finish(running, None)

    child = running.children.get()
    assert isinstance(decision, AskAgain)
    assert running.status == Status.COMPLETED
    assert (child.tier, child.purpose) == (1, Session.Purpose.REPORT)


def test_a_stop_ends_the_cycle_with_its_reason(running):
    decision = finish(running, HEALTHY)

    running.cycle.refresh_from_db()
    assert isinstance(decision, Stop)
    assert running.cycle.outcome == Cycle.Outcome.HEALTHY
    assert running.cycle.outcome_reason == running.escalation_reason == decision.reason
    assert not running.children.exists()


def test_a_failed_run_keeps_its_status_and_facts(running):
    finish(running, None, status=Status.FAILED, error="It broke.")

    assert (running.status, running.error) == (Status.FAILED, "It broke.")
    assert running.finished_at is not None


@pytest.mark.parametrize("limits", [{"max_tier": 1}, {"max_tier": 1, "dry_run": True}])
def test_the_limits_are_those_of_the_cycle_not_of_the_edited_watch(limits):
    watch = WatchFactory(max_tier=3, dry_run=False)
    cycle = CycleFactory(running=True, watch=watch, **limits)
    session = SessionFactory(cycle=cycle, status=Status.RUNNING)

    decision = finish(session, ESCALATE)

    assert isinstance(decision, Stop)


def test_the_successor_is_enqueued_once(running):
    handed: list[Session] = []

    with enqueue_with(handed.append):
        finish(running, ESCALATE)

    assert handed == [running.children.get()]


@pytest.mark.parametrize("report", [ESCALATE, None])
def test_when_enqueueing_fails_nothing_has_changed(running, report):
    def refuse(session: Session) -> None:
        raise RuntimeError("the queue is gone")

    with enqueue_with(refuse), pytest.raises(RuntimeError):
        finish(running, report)

    stored = Session.objects.get(pk=running.pk)
    assert (stored.status, stored.escalation_reason) == (Status.RUNNING, "")
    assert not stored.children.exists()
    assert stored.cycle.is_active


def test_a_session_that_has_ended_cannot_escalate_again(running):
    finish(running, ESCALATE)

    with pytest.raises(IllegalTransition):
        finish(running, ESCALATE)

    assert running.children.count() == 1
