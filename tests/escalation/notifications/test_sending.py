"""Messages that are due: sent once, tried again, given up, shown."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import time_machine
from cryptography.fernet import Fernet
from django.utils import timezone

from escalation.word import courier, sending
from escalation.word.courier import Answer
from escalation.word.sending import BACK_OFF, back_off, give_up_waiting, send_due, targets_with_due
from sessions_app.models import Approval, Happening, Message, Target
from tests.factories import (
    ApprovalFactory,
    HappeningFactory,
    MessageFactory,
    TargetFactory,
    UserFactory,
)

pytestmark = pytest.mark.django_db
State = Message.State
NO = Answer(False, "It answered 500.")


@pytest.fixture
def carried(monkeypatch, settings) -> list[dict[str, Any]]:
    """What was carried out, to a service that takes everything."""
    settings.CLAUDEOPS_URL = "https://ops.example.org/"
    out: list[dict[str, Any]] = []

    def deliver(address: str, **word: str) -> Answer:
        out.append({**word, "to": address})
        return YES

    monkeypatch.setattr(courier, "deliver", deliver)
    return out


YES = Answer(True, "")


@pytest.fixture
def broken(monkeypatch) -> None:
    monkeypatch.setattr(courier, "deliver", lambda address, **word: NO)


def read(row):
    row.refresh_from_db()
    return row


def test_a_message_that_is_due_is_sent_once_to_the_targets_address(carried):
    message = MessageFactory(target__address="json://ada:secret@127.0.0.1/")

    assert send_due(message.target_id) == 1
    assert send_due(message.target_id) == 0

    assert [out["to"] for out in carried] == ["json://ada:secret@127.0.0.1/"]
    assert read(message).state == State.SENT
    assert read(message.target).last_sent_at is not None


def test_it_ends_with_the_address_of_the_page_that_shows_it(carried):
    message = MessageFactory()
    message.happenings.add(HappeningFactory(path="/incidents/7/"))

    send_due(message.target_id)

    assert carried[0]["body"].endswith("\n\nhttps://ops.example.org/incidents/7/")


def test_a_summary_ends_with_the_address_of_the_dashboard(carried):
    message = MessageFactory(is_summary=True)
    message.happenings.add(HappeningFactory(), HappeningFactory())

    send_due(message.target_id)

    assert carried[0]["body"].endswith("\n\nhttps://ops.example.org/")


def wanted(**target) -> Message:
    message = MessageFactory(target=TargetFactory(**target))
    approval = ApprovalFactory()
    message.happenings.add(
        HappeningFactory(
            kind=Happening.Kind.APPROVAL_WANTED, incident=None, approval=approval, path="/ordinary/"
        )
    )
    return message


def test_an_owner_gets_a_link_of_their_own_which_is_stored_nowhere(carried):
    message = wanted(owner=UserFactory(username="ada"))

    send_due(message.target_id, lambda approval, user: f"/for/{user.username}/{approval.pk}/")

    assert "https://ops.example.org/for/ada/" in carried[0]["body"]
    assert "/for/ada/" not in read(message).body


def test_without_an_owner_the_address_is_the_ordinary_page(carried):
    message = wanted()

    send_due(message.target_id, lambda approval, user: "/for/somebody/")

    assert carried[0]["body"].endswith("/ordinary/")


def test_what_was_answered_meanwhile_is_not_asked_for_any_more(carried):
    message = wanted()
    Approval.objects.update(state=Approval.State.REJECTED)

    send_due(message.target_id)

    assert carried == []
    assert read(message).state == State.FAILED
    assert "answered before" in message.error


def test_one_that_fails_is_tried_again_later_and_later_and_then_given_up(broken):
    message = MessageFactory()
    waits = []
    now = timezone.now()
    while read(message).state == State.WAITING:
        now = max(now, message.due_at)
        with time_machine.travel(now, tick=False):
            send_due(message.target_id)
            if read(message).state == State.WAITING:
                waits.append(message.due_at - now)

    assert waits == list(BACK_OFF)
    assert message.state == State.FAILED
    assert message.tries == len(BACK_OFF) + 1
    assert message.error == NO.said


def test_a_failing_target_shows_it_and_the_next_success_clears_it(broken, monkeypatch):
    target = TargetFactory()
    MessageFactory(target=target)

    send_due(target.pk)

    assert read(target).failures_in_a_row == 1
    assert target.last_error == NO.said

    monkeypatch.setattr(courier, "deliver", lambda address, **word: YES)
    with time_machine.travel(timezone.now() + timedelta(hours=1)):
        send_due(target.pk)
    assert read(target).failures_in_a_row == 0
    assert target.last_error == ""


def test_while_a_target_fails_its_other_messages_wait_with_it(broken):
    target = TargetFactory()
    MessageFactory.create_batch(3, target=target)

    send_due(target.pk)

    assert list(target.messages.values_list("tries", flat=True).order_by("pk")) == [1, 0, 0]
    assert targets_with_due(timezone.now()) == []


def test_what_is_not_due_waits(carried):
    MessageFactory(due_at=timezone.now() + timedelta(minutes=1))

    assert targets_with_due(timezone.now()) == []


@pytest.mark.parametrize("wait", [{}, {"tries": 2, "due_at": timezone.now() + timedelta(days=366)}])
def test_a_clock_that_is_set_back_holds_no_message_up(carried, wait):
    """One that was written, or tried and put off, while the clock was a year or an hour ahead."""
    ahead = timezone.now() + timedelta(hours=1)
    MessageFactory(**{"created_at": ahead, "due_at": ahead, **wait})

    for number in targets_with_due(timezone.now()):
        send_due(number)

    assert len(carried) == 1


def test_a_summary_is_waited_for_whatever_the_clock_was(carried):
    later = timezone.now() + timedelta(hours=8)
    MessageFactory(is_summary=True, created_at=later, due_at=later)

    assert targets_with_due(timezone.now()) == []


def test_nothing_goes_to_a_target_that_was_switched_off(carried):
    message = MessageFactory()
    Target.objects.update(enabled=False)

    assert targets_with_due(timezone.now()) == []
    assert send_due(message.target_id) == 0
    assert give_up_waiting(message.target, "switched off") == 1
    assert read(message).state == State.FAILED


def test_a_sender_that_died_leaves_its_message_to_the_next(carried, monkeypatch):
    message = MessageFactory()
    sending._claim_next(message.target_id)
    assert targets_with_due(timezone.now()) == []

    with time_machine.travel(timezone.now() + sending.CLAIMED_FOR + timedelta(seconds=1)):
        send_due(message.target_id)

    assert read(message).state == State.SENT


def test_another_key_is_a_clear_error_and_the_message_stays(carried, settings):
    message = MessageFactory()
    settings.CLAUDEOPS_ENCRYPTION_KEYS = (Fernet.generate_key().decode(),)

    send_due(message.target_id)

    assert carried == []
    assert read(message).state == State.WAITING
    assert "sealed with another key" in read(message.target).last_error


def test_after_the_last_try_there_is_no_other():
    assert back_off(len(BACK_OFF)) == BACK_OFF[-1]
    assert back_off(len(BACK_OFF) + 1) is None
