"""Tests of routing notifications to messages."""

from __future__ import annotations

from datetime import timedelta

import pytest
import time_machine
from django.db import transaction
from django.utils import timezone

from escalation.notifications import outbox
from escalation.notifications.outbox import notify, pass_on
from escalation.notifications.routing import MOST_A_MINUTE
from escalation.supervisor.conclude import finish_cycle
from sessions_app.models import Approval, Cycle, Incident, Message, Notification
from tests.escalation.rows import a_report
from tests.factories import (
    ApprovalFactory,
    ChannelFactory,
    CycleFactory,
    IncidentFactory,
    NotificationFactory,
    SessionFactory,
    UserFactory,
    WatchFactory,
)

pytestmark = pytest.mark.django_db
Kind, Severity = Notification.Kind, Incident.Severity


def titles(channel) -> list[str]:
    return [message.title for message in channel.messages.order_by("pk")]


def test_a_notification_becomes_a_message_that_is_due_now():
    channel = ChannelFactory()
    watch = WatchFactory(name="shop")
    notification = NotificationFactory(incident=IncidentFactory(watch=watch, title="web is down"))

    assert pass_on() == 1

    [message] = Message.objects.all()
    assert (message.channel, message.title) == (channel, "shop: web is down")
    assert "Incident opened, warning." in message.body
    assert "It answers 502." in message.body
    assert message.due_at <= timezone.now()
    assert list(message.notifications.all()) == [notification]


def test_a_worse_incident_is_sent_to_channels_for_critical_ones():
    """The name of the watch is in each title once."""
    everybody, only_critical = ChannelFactory(), ChannelFactory(least_severity=Severity.CRITICAL)
    watch = WatchFactory(name="shop")
    for status in ("degraded", "down", "degraded", "down"):
        cycle = CycleFactory(watch=watch, running=True)
        SessionFactory(cycle=cycle, report=a_report(services=(("web", status),)))
        finish_cycle(cycle, Cycle.Outcome.NEEDS_PERSON, f"web is {status}")
        pass_on()

    assert titles(everybody) == ["shop: web is degraded", "shop: web is down"]
    assert titles(only_critical) == ["shop: web is down"]
    assert "It got worse." in only_critical.messages.get().body


def test_a_notification_is_routed_once():
    ChannelFactory()
    NotificationFactory()

    pass_on()

    assert pass_on() == 0
    assert Message.objects.count() == 1
    assert not outbox.something_waits()


def test_notifications_are_routed_without_any_channel():
    NotificationFactory()

    assert pass_on() == 0
    ChannelFactory()
    assert pass_on() == 0


def test_a_rollback_sends_nothing(transactional_db):
    ChannelFactory()

    with transaction.atomic():
        notify(Kind.BUDGET, "All is spent")
        transaction.set_rollback(True)

    assert pass_on() == 0


def test_messages_and_routing_mark_are_written_in_one_transaction(transactional_db, monkeypatch):
    ChannelFactory()
    NotificationFactory()

    def fail(*arguments):
        raise RuntimeError

    monkeypatch.setattr(outbox, "_write", fail)
    with pytest.raises(RuntimeError):
        pass_on()

    assert outbox.something_waits()


@pytest.mark.parametrize("what", ["incident", "approval"])
def test_a_drill_sends_nothing(what):
    ChannelFactory(least_severity=Severity.NOTICE)
    if what == "incident":
        NotificationFactory(incident=IncidentFactory(watch=None, drill="three-tiers"))
    else:
        approval = ApprovalFactory(session=SessionFactory(drill=True))
        notify(Kind.APPROVAL_WANTED, "Tier 3 waits", approval=approval)

    assert pass_on() == 0


def test_a_decided_approval_sends_nothing():
    ChannelFactory()
    approval = ApprovalFactory(state=Approval.State.APPROVED)
    notify(Kind.APPROVAL_WANTED, "Tier 3 waits", approval=approval)

    assert pass_on() == 0


def test_a_channel_that_is_off_or_without_active_owner_gets_nothing():
    ChannelFactory(enabled=False)
    ChannelFactory(owner=UserFactory(is_active=False))
    ChannelFactory(owner=UserFactory(), name="mine")
    NotificationFactory()

    pass_on()

    assert [message.channel.name for message in Message.objects.all()] == ["mine"]


def test_a_channel_of_some_watches_gets_only_theirs():
    mine, other = WatchFactory(name="mine"), WatchFactory(name="other")
    channel = ChannelFactory()
    channel.watches.add(mine)
    for watch in (mine, other):
        NotificationFactory(incident=IncidentFactory(watch=watch, title="is down"))

    pass_on()

    assert titles(channel) == ["mine: is down"]


def test_the_end_of_an_incident_goes_to_channels_that_got_its_beginning():
    channel = ChannelFactory(least_severity=Severity.CRITICAL)
    incident = IncidentFactory(severity=Severity.CRITICAL)
    NotificationFactory(incident=incident, severity=Severity.CRITICAL)
    NotificationFactory(
        incident=incident, severity=Severity.NOTICE, kind=Kind.INCIDENT_RESOLVED, title="It is over"
    )

    pass_on()

    assert len(titles(channel)) == 2


def test_an_incident_seen_by_many_cycles_is_one_message():
    channel = ChannelFactory()
    incident = IncidentFactory()
    for _round in range(4):
        NotificationFactory(incident=incident)
        pass_on()

    assert len(titles(channel)) == 1


def test_a_thousand_incidents_in_a_minute_are_few_messages(django_assert_max_num_queries):
    channel = ChannelFactory()
    watch = WatchFactory()
    incidents = [IncidentFactory.build(watch=watch, title=f"s{n} is down") for n in range(1000)]
    Incident.objects.bulk_create(incidents)
    Notification.objects.bulk_create(
        NotificationFactory.build(incident=incident, watch=watch) for incident in incidents
    )

    with django_assert_max_num_queries(200):
        pass_on()

    assert len(titles(channel)) == MOST_A_MINUTE + 1
    summary = channel.messages.get(is_summary=True)
    assert summary.title.startswith("995 notifications: 995 × incident opened")
    assert "… and 980 more." in summary.body
    assert summary.notifications.count() == 995


def test_new_notifications_are_added_to_a_waiting_summary():
    channel = ChannelFactory()
    for _ in range(MOST_A_MINUTE + 2):
        NotificationFactory()
        pass_on()

    assert len(titles(channel)) == MOST_A_MINUTE + 1
    assert channel.messages.get(is_summary=True).notifications.count() == 2


def test_after_a_burst_single_messages_are_sent_again():
    channel = ChannelFactory()
    for _ in range(MOST_A_MINUTE + 1):
        NotificationFactory()
    pass_on()

    with time_machine.travel(timezone.now() + timedelta(minutes=2)):
        NotificationFactory()
        pass_on()

    assert [m.is_summary for m in channel.messages.order_by("pk")][-2:] == [True, False]


def test_quiet_hours_are_local_time(settings):
    settings.TIME_ZONE = "Asia/Tokyo"
    channel = ChannelFactory(quiet_from="22:00", quiet_until="07:00")
    channel.refresh_from_db()
    with time_machine.travel("2026-03-04T14:00:00Z"), timezone.override("Asia/Tokyo"):  # 23:00
        NotificationFactory()
        NotificationFactory(severity=Severity.CRITICAL)
        pass_on()

    single, summary = channel.messages.order_by("is_summary")
    assert single.severity == Severity.CRITICAL
    assert summary.due_at.isoformat() == "2026-03-04T22:00:00+00:00"


def test_a_message_contains_no_secret_and_no_control_character():
    ChannelFactory()
    token = "ghp_" + "a1B2" * 9
    notify(Kind.BUDGET, f"with {token}", text=f"{token} \x1b[2J" + "x" * 10_000)

    pass_on()

    [message] = Message.objects.all()
    assert token not in message.title + message.body
    assert "\x1b" not in message.body
    assert len(message.body) < 1_500
