"""A person stops a chain: nothing follows, whatever happens at the same moment."""

from __future__ import annotations

import pytest

from escalation.queue import enqueue_with
from escalation.run.runner import run as run_tier
from escalation.supervisor.conclude import conclude
from escalation.supervisor.decision import Ending, Escalate
from escalation.supervisor.manual import Stopped, stop_cycle
from sessions_app.models import Approval, Cycle, Incident, Session
from tests.escalation.rows import ESCALATE, HEALTHY
from tests.escalation.runs import run
from tests.factories import ApprovalFactory, CycleFactory, SessionFactory

pytestmark = pytest.mark.django_db
Status, StopCause = Session.Status, Session.StopCause


def test_a_queued_cycle_is_cancelled_with_the_name_of_the_person(session):
    assert stop_cycle(session.cycle, by="ada") == Stopped.CANCELLED

    session.refresh_from_db()
    cycle = Cycle.objects.get(pk=session.cycle_id)
    assert (session.status, session.stopped_by) == (Status.CANCELLED, "ada")
    assert (cycle.state, cycle.stopped_by) == (Cycle.State.FINISHED, "ada")
    assert cycle.outcome_reason == "Stopped by ada before Tier 1 began."


def test_a_cancelled_session_never_runs(fake_cli, session):
    stop_cycle(session.cycle, by="ada")

    assert not run_tier(session)
    assert fake_cli.calls == []


def test_a_running_session_is_asked_to_stop_and_the_cycle_stays_active_until_then():
    session = SessionFactory(running=True)

    assert stop_cycle(session.cycle, by="ada") == Stopped.STOPPING

    session.refresh_from_db()
    assert (session.stop_cause, session.stop_requested) == (StopCause.PERSON, "ada")
    assert Cycle.objects.get(pk=session.cycle_id).is_active


def test_a_waiting_approval_is_withdrawn():
    approval = ApprovalFactory()

    assert stop_cycle(approval.session.cycle, by="ada") == Stopped.CANCELLED

    approval.refresh_from_db()
    assert approval.state == Approval.State.WITHDRAWN
    assert Session.objects.get(pk=approval.session_id).status == Status.CANCELLED


def test_the_plan_session_of_a_waiting_tier_is_stopped_too():
    approval = ApprovalFactory()
    plan = SessionFactory(running=True, cycle=approval.session.cycle, purpose="plan", tier=3)
    Approval.objects.update(plan_run=plan)

    assert stop_cycle(approval.session.cycle, by="ada") == Stopped.CANCELLED

    plan.refresh_from_db()
    assert plan.stop_cause == StopCause.PERSON
    assert not Cycle.objects.get(pk=plan.cycle_id).is_active


def test_a_cancelled_follow_up_keeps_the_outcome():
    cycle = CycleFactory(running=True, outcome="healthy", outcome_reason="All is well.")
    SessionFactory(cycle=cycle, purpose="follow_up", status="queued")

    stop_cycle(cycle, by="ada")

    cycle = Cycle.objects.get(pk=cycle.pk)
    assert (cycle.state, cycle.outcome_reason) == (Cycle.State.FINISHED, "All is well.")
    assert cycle.stopped_by == ""


def test_a_finished_cycle_cannot_be_stopped():
    session = SessionFactory()

    assert stop_cycle(session.cycle, by="ada") == Stopped.NOTHING
    assert Cycle.objects.get(pk=session.cycle_id).outcome == Cycle.Outcome.HEALTHY


def test_a_stopped_session_has_no_successor(fake_cli, session):
    fake_cli.then("init(); say(); time.sleep(30)")
    Session.objects.filter(pk=session.pk).update(stop_cause="person", stop_requested="ada")

    ended = run(session)

    cycle = Cycle.objects.get(pk=session.cycle_id)
    assert (ended.status, ended.stopped_by) == (Status.INTERRUPTED, "ada")
    assert (cycle.outcome_reason, cycle.stopped_by) == ("Tier 1 was stopped by ada.", "ada")
    assert not ended.children.exists()


def test_a_stop_during_an_escalation_prevents_the_next_tier(session):
    """The run had ended by itself when the request came: only its conclusion can see it."""
    session.claim()
    Session.objects.filter(pk=session.pk).update(stop_cause="person", stop_requested="ada")
    started: list[Session] = []
    ending = Ending(tier=1, status=Status.COMPLETED, stored={"report": ESCALATE})

    with enqueue_with(started.append):
        conclude(session, ending, Escalate(2, "It asks for help."))

    cycle = Cycle.objects.get(pk=session.cycle_id)
    assert started == []
    assert not session.children.exists()
    assert session.status == Status.COMPLETED
    assert cycle.stopped_by == "ada"
    assert "It asks for help." in cycle.outcome_reason


def test_a_session_without_a_stop_request_continues(fake_cli, session):
    fake_cli.reports(HEALTHY)

    run(session)

    assert Cycle.objects.get(pk=session.cycle_id).stopped_by == ""


def test_a_stop_by_a_person_is_no_failure_of_the_watch_and_opens_no_incident(session):
    stop_cycle(session.cycle, by="ada")

    watch = Cycle.objects.get(pk=session.cycle_id).watch
    assert watch is not None
    assert watch.failures_in_a_row == 0
    assert not Incident.objects.exists()
