"""What follows the approval, the rejection or the expiry of a tier."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from django_q.models import OrmQ

from escalation.errors import RefusalCode
from escalation.queue import enqueue_with
from escalation.supervisor.approval_answers import approve, expire_overdue, reject
from sessions_app.models import Approval, Cycle, Session, Watch
from tests.escalation.refusals import refused
from tests.escalation.rows import notes_of
from tests.factories import ApprovalFactory, IncidentFactory, user_with

pytestmark = pytest.mark.django_db
State, Status = Approval.State, Session.Status


@pytest.fixture
def approver():
    return user_with("approver", username="grace")


def overdue(**facts) -> Approval:
    return ApprovalFactory(expires_at=timezone.now() - timedelta(seconds=1), **facts)


def session_of(approval: Approval) -> Session:
    return Session.objects.select_related("cycle").get(pk=approval.session_id)


def test_an_approved_tier_is_enqueued(approver):
    approval = approve(ApprovalFactory(), by=approver, note="Go on.")

    assert (approval.state, approval.decided_by, approval.note) == (
        State.APPROVED,
        approver,
        "Go on.",
    )
    assert session_of(approval).status == Status.QUEUED
    assert [row.task["args"][0] for row in OrmQ.objects.all()] == [approval.session_id]


def test_when_enqueueing_fails_the_approval_still_waits(approver):
    def broken(session: Session) -> None:
        raise RuntimeError("the queue is away")

    approval = ApprovalFactory()
    with enqueue_with(broken), pytest.raises(RuntimeError):
        approve(approval, by=approver)

    assert Approval.objects.get().state == State.WAITING
    assert session_of(approval).status == Status.AWAITING_APPROVAL


def test_a_rejected_tier_is_cancelled_and_its_cycle_needs_a_person(approver):
    approval = reject(ApprovalFactory(), by=approver, note="Wait for the backup.")

    session = session_of(approval)
    assert session.status == Status.CANCELLED
    assert session.cycle.outcome == Cycle.Outcome.NEEDS_PERSON
    assert session.cycle.outcome_reason == f"Tier 3 does not run. {approval.answer_text}"
    assert not OrmQ.objects.exists()


def test_an_expired_approval_ends_the_tier_and_its_cycle_needs_a_person():
    approval, other = overdue(), ApprovalFactory()

    assert expire_overdue() == 1

    session = session_of(approval)
    assert Approval.objects.get(pk=approval.pk).state == State.EXPIRED
    assert (session.status, session.cycle.outcome) == (Status.EXPIRED, Cycle.Outcome.NEEDS_PERSON)
    assert Approval.objects.get(pk=other.pk).state == State.WAITING


def test_an_expired_approval_does_not_count_as_a_failure_of_the_watch():
    approval = overdue()

    expire_overdue()

    assert Watch.objects.get(pk=approval.session.cycle.watch_id).failures_in_a_row == 0


def test_an_answer_after_the_expiry_is_refused_and_ends_the_tier(approver):
    approval = overdue()

    with refused(RefusalCode.APPROVAL_EXPIRED):
        approve(approval, by=approver)

    assert session_of(approval).status == Status.EXPIRED
    assert not OrmQ.objects.exists()


def test_a_second_answer_is_refused_and_names_the_first(approver):
    approval = reject(ApprovalFactory(), by=approver, note="No.")

    with refused(RefusalCode.APPROVAL_ANSWERED, match="rejected .* by grace"):
        approve(approval, by=user_with("admin"))

    assert Approval.objects.get().state == State.REJECTED


def test_an_answer_about_a_command_changes_neither_session_nor_queue(approver):
    approval = approve(ApprovalFactory(of_a_command=True), by=approver)

    assert session_of(approval).status == Status.RUNNING
    assert not OrmQ.objects.exists()


@pytest.mark.parametrize("way", Approval.Way)
@pytest.mark.parametrize("answer", [approve, reject])
def test_an_answer_stands_in_the_story_of_session_cycle_and_incident(approver, answer, way):
    approval, incident = ApprovalFactory(), IncidentFactory()
    incident.cycles.add(approval.session.cycle)
    over = IncidentFactory(state="resolved")
    over.cycles.add(approval.session.cycle)

    answered = answer(approval, by=approver, way=way, note="Only web.")

    told = answered.answer_text
    assert f"by grace {answered.get_way_display()} at " in told
    assert told.endswith(": Only web.")
    [event] = incident.events.all()
    assert (event.kind, event.by, event.session_id) == (
        answered.state,
        approver,
        approval.session_id,
    )
    assert told in event.text
    assert not over.events.exists()
    assert any(told in note for note in notes_of(session_of(approval), "status"))


def test_the_answer_to_a_command_stands_in_the_incident(approver):
    approval, incident = ApprovalFactory(of_a_command=True), IncidentFactory()
    incident.cycles.add(approval.session.cycle)

    answered = approve(approval, by=approver, way="page", note="Only now.")

    text = incident.events.get().text
    assert approval.command in text
    assert answered.answer_text in text
