"""Who may answer, once, and in what words it is refused."""

from __future__ import annotations

import pytest

from escalation.errors import RefusalCode
from escalation.supervisor.approvals import answer, withdraw
from sessions_app.models import Approval, Cycle
from tests.escalation.refusals import refused
from tests.factories import ApprovalFactory, CycleFactory, SessionFactory, user_with

pytestmark = pytest.mark.django_db
State = Approval.State


@pytest.mark.parametrize("role", ["", "viewer", "operator"])
def test_who_may_not_approve_is_refused(role):
    approval = ApprovalFactory()

    with refused(RefusalCode.NOT_PERMITTED):
        answer(approval, State.APPROVED, by=user_with(role))

    assert Approval.objects.get().state == State.WAITING


@pytest.mark.parametrize("role", ["approver", "admin"])
def test_who_may_approve_is_heard(role):
    assert answer(ApprovalFactory(), State.APPROVED, by=user_with(role)).state == State.APPROVED


def test_a_right_that_was_taken_a_second_ago_counts_no_more():
    user = user_with("approver")
    user.groups.all()  # as a request has loaded them
    type(user).objects.get(pk=user.pk).groups.clear()

    with refused(RefusalCode.NOT_PERMITTED):
        answer(ApprovalFactory(), State.APPROVED, by=user)


def test_an_account_that_was_switched_off_is_refused():
    user = user_with("approver")
    type(user).objects.filter(pk=user.pk).update(is_active=False)

    with refused(RefusalCode.NOT_PERMITTED):
        answer(ApprovalFactory(), State.APPROVED, by=user)


def of_a_run(trigger: str, **cycle) -> Approval:
    return ApprovalFactory(
        of_a_command=True,
        session=SessionFactory(
            running=True, tier=2, cycle=CycleFactory(running=True, trigger=trigger, **cycle)
        ),
    )


def test_nobody_approves_what_they_asked_for_without_being_there():
    user = user_with("approver", username="ada")
    approval = of_a_run(Cycle.Trigger.SCHEDULE, requested_by=user)

    with refused(RefusalCode.OWN_REQUEST):
        answer(approval, State.APPROVED, by=user)

    assert answer(approval, State.APPROVED, by=user_with("approver")).state == State.APPROVED


def test_who_started_a_run_by_hand_may_approve_its_commands():
    user = user_with("approver")

    approval = of_a_run(Cycle.Trigger.MANUAL, requested_by=user)

    assert answer(approval, State.APPROVED, by=user).state == State.APPROVED


@pytest.mark.parametrize("length", [Approval.LONGEST_NOTE + 1, 1_000_000])
def test_a_note_that_is_too_long_answers_nothing(length):
    with refused(RefusalCode.TEXT_TOO_LONG, match=str(Approval.LONGEST_NOTE)):
        answer(ApprovalFactory(), State.APPROVED, by=user_with("approver"), note="x" * length)

    assert Approval.objects.get().state == State.WAITING


def test_a_line_end_of_a_form_counts_once():
    note = "x\r\n" * (Approval.LONGEST_NOTE // 2)

    assert answer(ApprovalFactory(), State.APPROVED, by=user_with("approver"), note=note)


def test_a_rejection_says_why():
    with refused(RefusalCode.TEXT_MISSING):
        answer(ApprovalFactory(), State.REJECTED, by=user_with("approver"), note="  ")


def test_a_secret_in_a_note_is_redacted():
    note = "Use password=hunter2hunter2 for it"

    answered = answer(ApprovalFactory(), State.APPROVED, by=user_with("approver"), note=note)

    assert "hunter2" not in answered.note


def test_what_a_run_asked_is_withdrawn_with_it_and_its_tier_is_not():
    command, tier = ApprovalFactory(of_a_command=True), ApprovalFactory()

    assert withdraw(command.session) == 1
    assert withdraw(tier.session) == 0

    command.refresh_from_db()
    assert command.state == State.WITHDRAWN
    with refused(RefusalCode.APPROVAL_WITHDRAWN):
        answer(command, State.APPROVED, by=user_with("approver"))
