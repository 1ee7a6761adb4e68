"""Who may answer an approval, once, and with which code an answer is refused."""

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
def test_an_account_that_may_not_approve_is_refused(role):
    approval = ApprovalFactory()

    with refused(RefusalCode.NOT_PERMITTED):
        answer(approval, State.APPROVED, by=user_with(role))

    assert Approval.objects.get().state == State.WAITING


@pytest.mark.parametrize("role", ["approver", "admin"])
def test_an_account_that_may_approve_answers(role):
    assert answer(ApprovalFactory(), State.APPROVED, by=user_with(role)).state == State.APPROVED


def test_a_right_that_was_just_revoked_does_not_count():
    user = user_with("approver")
    user.groups.all()  # as a request has loaded them
    type(user).objects.get(pk=user.pk).groups.clear()

    with refused(RefusalCode.NOT_PERMITTED):
        answer(ApprovalFactory(), State.APPROVED, by=user)


def test_an_inactive_account_is_refused():
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


def test_the_requester_of_an_unattended_run_may_not_approve_it():
    user = user_with("approver", username="ada")
    approval = of_a_run(Cycle.Trigger.SCHEDULE, requested_by=user)

    with refused(RefusalCode.OWN_REQUEST):
        answer(approval, State.APPROVED, by=user)

    assert answer(approval, State.APPROVED, by=user_with("approver")).state == State.APPROVED


def test_the_requester_of_a_manual_run_may_approve_its_commands():
    user = user_with("approver")

    approval = of_a_run(Cycle.Trigger.MANUAL, requested_by=user)

    assert answer(approval, State.APPROVED, by=user).state == State.APPROVED


@pytest.mark.parametrize("length", [Approval.LONGEST_NOTE + 1, 1_000_000])
def test_an_answer_with_a_note_that_is_too_long_is_refused(length):
    with refused(RefusalCode.TEXT_TOO_LONG, match=str(Approval.LONGEST_NOTE)):
        answer(ApprovalFactory(), State.APPROVED, by=user_with("approver"), note="x" * length)

    assert Approval.objects.get().state == State.WAITING


def test_a_line_end_of_a_form_counts_as_one_character():
    note = "x\r\n" * (Approval.LONGEST_NOTE // 2)

    assert answer(ApprovalFactory(), State.APPROVED, by=user_with("approver"), note=note)


def test_a_rejection_needs_a_reason():
    with refused(RefusalCode.TEXT_MISSING):
        answer(ApprovalFactory(), State.REJECTED, by=user_with("approver"), note="  ")


def test_a_secret_in_a_note_is_redacted():
    note = "Use password=hunter2hunter2 for it"

    answered = answer(ApprovalFactory(), State.APPROVED, by=user_with("approver"), note=note)

    assert "hunter2" not in answered.note


def test_the_end_of_a_session_withdraws_its_commands_but_not_its_tier():
    command, tier = ApprovalFactory(of_a_command=True), ApprovalFactory()

    assert withdraw(command.session) == 1
    assert withdraw(tier.session) == 0

    command.refresh_from_db()
    assert command.state == State.WITHDRAWN
    with refused(RefusalCode.APPROVAL_WITHDRAWN):
        answer(command, State.APPROVED, by=user_with("approver"))
