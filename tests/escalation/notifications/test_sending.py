"""Due messages: sent once, retried, given up."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
import time_machine
from cryptography.fernet import Fernet
from django.utils import timezone

from escalation.notifications import outbox, sending
from escalation.notifications.routing import title_of
from escalation.notifications.sending import (
    BACK_OFF,
    MOOT,
    DeliveryResult,
    back_off,
    channels_with_due,
    give_up_waiting,
    send_due,
)
from sessions_app.models import Approval, Channel, Message, Notification
from tests.factories import (
    ApprovalFactory,
    ChannelFactory,
    CycleFactory,
    IncidentFactory,
    MessageFactory,
    NotificationFactory,
    SessionFactory,
    UserFactory,
)

pytestmark = pytest.mark.django_db
State = Message.State
NO = DeliveryResult(False, "It answered 500.")


@pytest.fixture
def carried(monkeypatch, settings) -> list[dict[str, Any]]:
    """Deliveries to a service that accepts everything."""
    settings.CLAUDEOPS_URL = "https://ops.example.org/"
    out: list[dict[str, Any]] = []

    def deliver(address: str, **word: str) -> DeliveryResult:
        out.append({**word, "to": address})
        return YES

    monkeypatch.setattr(sending, "deliver", deliver)
    return out


YES = DeliveryResult(True, "")


@pytest.fixture
def broken(monkeypatch) -> None:
    monkeypatch.setattr(sending, "deliver", lambda address, **word: NO)


def read(row):
    row.refresh_from_db()
    return row


def test_a_due_message_is_sent_once(carried):
    message = MessageFactory(channel__address="json://ada:secret@127.0.0.1/")

    assert send_due(message.channel_id) == 1
    assert send_due(message.channel_id) == 0

    assert [out["to"] for out in carried] == ["json://ada:secret@127.0.0.1/"]
    assert read(message).state == State.SENT
    assert read(message.channel).last_sent_at is not None


def test_a_message_ends_with_the_address_of_its_page(carried):
    message = MessageFactory()
    message.notifications.add(NotificationFactory(path="/incidents/7/"))

    send_due(message.channel_id)

    assert carried[0]["link"] == "https://ops.example.org/incidents/7/"


def test_a_summary_ends_with_the_address_of_the_overview(carried):
    message = MessageFactory(is_summary=True)
    message.notifications.add(NotificationFactory(), NotificationFactory())

    send_due(message.channel_id)

    assert carried[0]["link"] == "https://ops.example.org/"


def wanted(**channel) -> Message:
    message = MessageFactory(channel=ChannelFactory(**channel))
    approval = ApprovalFactory()
    message.notifications.add(
        NotificationFactory(
            kind=Notification.Kind.APPROVAL_WANTED,
            incident=None,
            approval=approval,
            path="/ordinary/",
        )
    )
    return message


def test_an_owner_gets_a_personal_link_that_is_not_stored(carried):
    message = wanted(owner=UserFactory(username="ada"))

    send_due(message.channel_id, lambda approval, user: f"/for/{user.username}/{approval.pk}/")

    assert carried[0]["link"].startswith("https://ops.example.org/for/ada/")
    assert "/for/ada/" not in read(message).body


def test_notifications_of_one_cycle_are_one_message(carried):
    """An incident and the approval that its cycle asks for, without what was decided meanwhile."""
    channel, approval = ChannelFactory(), ApprovalFactory()
    cycle = approval.session.cycle
    opened = NotificationFactory(cycle=cycle, title="web is down", path="/incidents/7/")
    db = NotificationFactory(cycle=cycle, title="db is down", path="/incidents/8/")
    NotificationFactory(cycle=CycleFactory(), title="mail is down")
    NotificationFactory(
        kind=Notification.Kind.APPROVAL_WANTED,
        incident=None,
        cycle=cycle,
        approval=approval,
        title="may Tier 3 start?",
        path="/ordinary/",
    )

    outbox.pass_on()
    first, second = channel.messages.order_by("pk")
    assert first.title.endswith("may Tier 3 start?")
    assert [line for line in first.body.splitlines() if line.startswith("- ")] == [
        f"- {title_of(opened)}",
        f"- {title_of(db)}",
    ]
    assert second.title.endswith("mail is down")

    Approval.objects.update(state=Approval.State.REJECTED)
    send_due(channel.pk)
    assert [out["title"] for out in carried] == [title_of(opened), second.title]
    assert carried[0]["link"] == "https://ops.example.org/incidents/7/"
    assert "Tier 3" not in carried[0]["body"]


def test_without_an_owner_the_address_is_that_of_the_page(carried):
    message = wanted()

    send_due(message.channel_id, lambda approval, user: "/for/somebody/")

    assert carried[0]["link"].endswith("/ordinary/")


def test_a_message_for_a_decided_approval_is_not_sent(carried):
    message = wanted()
    Approval.objects.update(state=Approval.State.REJECTED)

    send_due(message.channel_id)

    assert carried == []
    assert read(message).state == State.FAILED
    assert message.error == MOOT


def test_a_failing_message_is_retried_with_back_off_and_given_up(broken):
    message = MessageFactory()
    waits = []
    now = timezone.now()
    while read(message).state == State.WAITING:
        now = max(now, message.due_at)
        with time_machine.travel(now, tick=False):
            send_due(message.channel_id)
            if read(message).state == State.WAITING:
                waits.append(message.due_at - now)

    assert waits == list(BACK_OFF)
    assert message.state == State.FAILED
    assert message.tries == len(BACK_OFF) + 1
    assert message.error == NO.error


def test_a_failure_is_recorded_and_cleared_by_the_next_success(broken, monkeypatch):
    channel = ChannelFactory()
    MessageFactory(channel=channel)

    send_due(channel.pk)

    assert read(channel).failures_in_a_row == 1
    assert channel.last_error == NO.error

    monkeypatch.setattr(sending, "deliver", lambda address, **word: YES)
    with time_machine.travel(timezone.now() + timedelta(hours=1)):
        send_due(channel.pk)
    assert read(channel).failures_in_a_row == 0
    assert channel.last_error == ""


def test_other_messages_of_a_failing_channel_are_delayed_too(broken):
    channel = ChannelFactory()
    MessageFactory.create_batch(3, channel=channel)

    send_due(channel.pk)

    assert list(channel.messages.values_list("tries", flat=True).order_by("pk")) == [1, 0, 0]
    assert channels_with_due(timezone.now()) == []


def test_a_message_that_is_not_due_is_not_sent(carried):
    MessageFactory(due_at=timezone.now() + timedelta(minutes=1))

    assert channels_with_due(timezone.now()) == []


@pytest.mark.parametrize("wait", [{}, {"tries": 2, "due_at": timezone.now() + timedelta(days=366)}])
def test_a_clock_set_back_delays_no_message(carried, wait):
    """A message that was written or delayed while the clock was ahead."""
    ahead = timezone.now() + timedelta(hours=1)
    MessageFactory(**{"created_at": ahead, "due_at": ahead, **wait})

    for number in channels_with_due(timezone.now()):
        send_due(number)

    assert len(carried) == 1


def test_a_clock_set_back_does_not_send_a_summary_early(carried):
    later = timezone.now() + timedelta(hours=8)
    MessageFactory(is_summary=True, created_at=later, due_at=later)

    assert channels_with_due(timezone.now()) == []


def test_a_channel_that_is_off_gets_no_message(carried):
    message = MessageFactory()
    Channel.objects.update(enabled=False)

    assert channels_with_due(timezone.now()) == []
    assert send_due(message.channel_id) == 0
    assert give_up_waiting(message.channel, "switched off") == 1
    assert read(message).state == State.FAILED


def test_a_message_of_a_dead_sender_is_sent_by_another(carried, monkeypatch):
    message = MessageFactory()
    sending._claim_next(message.channel_id)
    assert channels_with_due(timezone.now()) == []

    with time_machine.travel(timezone.now() + sending.CLAIMED_FOR + timedelta(seconds=1)):
        send_due(message.channel_id)

    assert read(message).state == State.SENT


def test_an_address_encrypted_with_another_key_is_an_error_and_keeps_the_message(carried, settings):
    message = MessageFactory()
    settings.CLAUDEOPS_ENCRYPTION_KEYS = (Fernet.generate_key().decode(),)

    send_due(message.channel_id)

    assert carried == []
    assert read(message).state == State.WAITING
    assert "encrypted with another key" in read(message.channel).last_error


def test_after_the_last_attempt_there_is_no_back_off():
    assert back_off(len(BACK_OFF)) == BACK_OFF[-1]
    assert back_off(len(BACK_OFF) + 1) is None


def test_a_webhook_event_tells_incident_cost_and_links_and_keeps_its_id(carried):
    cycle = CycleFactory()
    SessionFactory(cycle=cycle, cost_usd=Decimal("0.25"))
    incident = IncidentFactory(cause="web", watch__name="shop")
    incident.cycles.add(cycle)
    told = NotificationFactory(incident=incident, path=f"/incidents/{incident.pk}/")
    message = MessageFactory()
    message.notifications.add(told)

    send_due(message.channel_id)

    event = carried[0]["event"]
    assert event == sending.event_of(message)
    assert (event["id"], event["type"], event["version"]) == (
        f"msg_{message.pk}",
        "incident.opened",
        1,
    )
    assert (event["watch"], event["service"], event["state"]) == ("shop", "web", "open")
    assert (event["incident"], event["cost_usd"]) == (incident.pk, 0.25)
    assert event["links"]["page"] == f"https://ops.example.org/incidents/{incident.pk}/"


def test_a_summary_is_one_event_with_its_members_and_a_digest_has_none():
    summary = MessageFactory(is_summary=True)
    summary.notifications.add(NotificationFactory(), NotificationFactory(incident=None))

    event = sending.event_of(summary)

    assert event["type"] == "summary"
    assert [one["type"] for one in event["events"]] == ["incident.opened"] * 2
    assert sending.event_of(MessageFactory())["type"] == "digest"
    assert set(sending.EVENT_TYPES) == set(Notification.Kind)
