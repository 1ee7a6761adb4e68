"""From what happened to messages: in one transaction, masked, few in a storm."""

from __future__ import annotations

from datetime import timedelta

import pytest
import time_machine
from django.db import transaction
from django.utils import timezone

from escalation.next_step.conclude import finish_cycle
from escalation.word import outbox
from escalation.word.happenings import tell
from escalation.word.outbox import pass_on
from escalation.word.routing import MOST_A_MINUTE
from sessions_app.models import Approval, Cycle, Happening, Incident, Message
from tests.escalation.rows import a_report
from tests.factories import (
    ApprovalFactory,
    CycleFactory,
    HappeningFactory,
    IncidentFactory,
    SessionFactory,
    TargetFactory,
    UserFactory,
    WatchFactory,
)

pytestmark = pytest.mark.django_db
Kind, Severity = Happening.Kind, Incident.Severity


def titles(target) -> list[str]:
    return [message.title for message in target.messages.order_by("pk")]


def test_what_happened_becomes_a_message_that_is_due_now():
    target = TargetFactory()
    watch = WatchFactory(name="shop")
    happening = HappeningFactory(incident=IncidentFactory(watch=watch, title="web is down"))

    assert pass_on() == 1

    [message] = Message.objects.all()
    assert (message.target, message.title) == (target, "shop: web is down")
    assert "An incident opened, warning." in message.body
    assert "It answers 502." in message.body
    assert message.due_at <= timezone.now()
    assert list(message.happenings.all()) == [happening]


def test_what_gets_worse_is_told_also_to_who_wants_the_critical_alone():
    """Through the real end of rounds: the watch's name stands in each title once."""
    everybody, only_critical = TargetFactory(), TargetFactory(least_severity=Severity.CRITICAL)
    watch = WatchFactory(name="shop")
    for status in ("degraded", "down", "degraded", "down"):
        cycle = CycleFactory(watch=watch, running=True)
        SessionFactory(cycle=cycle, report=a_report(services=(("web", status),)))
        finish_cycle(cycle, Cycle.Outcome.NEEDS_PERSON, f"web is {status}")
        pass_on()

    assert titles(everybody) == ["shop: web is degraded", "shop: web is down"]
    assert titles(only_critical) == ["shop: web is down"]
    assert "It got worse." in only_critical.messages.get().body


def test_nothing_is_passed_on_twice():
    TargetFactory()
    HappeningFactory()

    pass_on()

    assert pass_on() == 0
    assert Message.objects.count() == 1
    assert not outbox.something_waits()


def test_without_any_target_it_is_looked_at_all_the_same():
    HappeningFactory()

    assert pass_on() == 0
    TargetFactory()
    assert pass_on() == 0


def test_what_is_rolled_back_is_told_to_nobody(transactional_db):
    TargetFactory()

    with transaction.atomic():
        tell(Kind.BUDGET, "All is spent")
        transaction.set_rollback(True)

    assert pass_on() == 0


def test_messages_and_the_mark_are_written_together(transactional_db, monkeypatch):
    TargetFactory()
    HappeningFactory()

    def fail(*arguments):
        raise RuntimeError

    monkeypatch.setattr(outbox, "_write", fail)
    with pytest.raises(RuntimeError):
        pass_on()

    assert outbox.something_waits()


@pytest.mark.parametrize("what", ["incident", "approval"])
def test_a_drill_tells_nobody(what):
    TargetFactory(least_severity=Severity.NOTICE)
    if what == "incident":
        HappeningFactory(incident=IncidentFactory(watch=None, drill="three-tiers"))
    else:
        approval = ApprovalFactory(session=SessionFactory(drill=True))
        tell(Kind.APPROVAL_WANTED, "Tier 3 waits", approval=approval)

    assert pass_on() == 0


def test_an_approval_that_has_its_answer_is_not_asked_for():
    TargetFactory()
    approval = ApprovalFactory(state=Approval.State.APPROVED)
    tell(Kind.APPROVAL_WANTED, "Tier 3 waits", approval=approval)

    assert pass_on() == 0


def test_a_target_that_is_off_or_whose_owner_is_gone_hears_nothing():
    TargetFactory(enabled=False)
    TargetFactory(owner=UserFactory(is_active=False))
    TargetFactory(owner=UserFactory(), name="mine")
    HappeningFactory()

    pass_on()

    assert [message.target.name for message in Message.objects.all()] == ["mine"]


def test_a_target_of_some_watches_hears_of_those_alone():
    mine, other = WatchFactory(name="mine"), WatchFactory(name="other")
    target = TargetFactory()
    target.watches.add(mine)
    for watch in (mine, other):
        HappeningFactory(incident=IncidentFactory(watch=watch, title="is down"))

    pass_on()

    assert titles(target) == ["mine: is down"]


def test_who_heard_that_it_opened_hears_that_it_is_over():
    target = TargetFactory(least_severity=Severity.CRITICAL)
    incident = IncidentFactory(severity=Severity.CRITICAL)
    HappeningFactory(incident=incident, severity=Severity.CRITICAL)
    HappeningFactory(
        incident=incident, severity=Severity.NOTICE, kind=Kind.INCIDENT_RESOLVED, title="It is over"
    )

    pass_on()

    assert len(titles(target)) == 2


def test_an_incident_that_many_rounds_see_is_one_message():
    target = TargetFactory()
    incident = IncidentFactory()
    for _round in range(4):
        HappeningFactory(incident=incident)
        pass_on()

    assert len(titles(target)) == 1


def test_a_thousand_incidents_in_a_minute_are_few_messages(django_assert_max_num_queries):
    target = TargetFactory()
    watch = WatchFactory()
    incidents = [IncidentFactory.build(watch=watch, title=f"s{n} is down") for n in range(1000)]
    Incident.objects.bulk_create(incidents)
    Happening.objects.bulk_create(
        HappeningFactory.build(incident=incident, watch=watch) for incident in incidents
    )

    with django_assert_max_num_queries(200):
        pass_on()

    assert len(titles(target)) == MOST_A_MINUTE + 1
    summary = target.messages.get(is_summary=True)
    assert summary.title.startswith("995 things happened: 995 × an incident opened")
    assert "… and 980 more." in summary.body
    assert summary.happenings.count() == 995


def test_what_comes_while_a_summary_waits_goes_into_it():
    target = TargetFactory()
    for _ in range(MOST_A_MINUTE + 2):
        HappeningFactory()
        pass_on()

    assert len(titles(target)) == MOST_A_MINUTE + 1
    assert target.messages.get(is_summary=True).happenings.count() == 2


def test_after_the_storm_single_messages_are_sent_again():
    target = TargetFactory()
    for _ in range(MOST_A_MINUTE + 1):
        HappeningFactory()
    pass_on()

    with time_machine.travel(timezone.now() + timedelta(minutes=2)):
        HappeningFactory()
        pass_on()

    assert [m.is_summary for m in target.messages.order_by("pk")][-2:] == [True, False]


def test_quiet_hours_are_local_time(settings):
    settings.TIME_ZONE = "Asia/Tokyo"
    target = TargetFactory(quiet_from="22:00", quiet_until="07:00")
    target.refresh_from_db()
    with time_machine.travel("2026-03-04T14:00:00Z"), timezone.override("Asia/Tokyo"):  # 23:00
        HappeningFactory()
        HappeningFactory(severity=Severity.CRITICAL)
        pass_on()

    single, summary = target.messages.order_by("is_summary")
    assert single.severity == Severity.CRITICAL
    assert summary.due_at.isoformat() == "2026-03-04T22:00:00+00:00"


def test_a_message_holds_no_secret_and_nothing_that_acts_on_a_terminal():
    TargetFactory()
    token = "ghp_" + "a1B2" * 9
    tell(Kind.BUDGET, f"with {token}", text=f"{token} \x1b[2J" + "x" * 10_000)

    pass_on()

    [message] = Message.objects.all()
    assert token not in message.title + message.body
    assert "\x1b" not in message.body
    assert len(message.body) < 1_500
