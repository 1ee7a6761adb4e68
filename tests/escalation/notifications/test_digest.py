"""The daily digest: content, once a day, and none without news."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from decimal import Decimal

import pytest
import time_machine
from django.core.management import call_command
from django.utils import timezone

from escalation.notifications.digest import (
    LONGEST_LOOK_BACK,
    is_due,
    load_digest,
    since_when,
    write_due,
)
from sessions_app.models import Channel, Incident, Message
from tests.factories import (
    ApprovalFactory,
    ChangeFactory,
    ChannelFactory,
    CycleFactory,
    IncidentFactory,
    ServiceStateFactory,
    SessionFactory,
    WatchFactory,
)
from tests.tables import each_row

NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)
DAY = timedelta(days=1)


@each_row(
    ("at", "last", "due"),
    [
        (time(8), NOON - DAY, True),
        (time(8), NOON - timedelta(hours=3), False),
        (time(8), NOON - timedelta(hours=5), True),
        (time(12), NOON - DAY, True),
        (time(12, 1), NOON - DAY, False),
        (time(0), NOON - DAY, True),
        (time(8), NOON + DAY, False),
        (time(8), NOON + 300 * DAY, True),
        (time(13), NOON + 300 * DAY, False),
    ],
)
def test_a_digest_is_due_at_its_time(at, last, due):
    assert is_due(at, last, NOON) == due


def test_a_digest_starts_at_the_last_one_within_three_days():
    assert since_when(None, NOON) == NOON - DAY
    assert since_when(NOON - 2 * DAY, NOON) == NOON - 2 * DAY
    assert since_when(NOON - 90 * DAY, NOON) == NOON - LONGEST_LOOK_BACK
    assert since_when(NOON + 300 * DAY, NOON) == NOON - DAY


def digest(**options):
    now = timezone.now()
    return load_digest(now - DAY, now + timedelta(seconds=1), **options)


@pytest.fixture
def shop(db):
    return WatchFactory(name="shop")


def test_a_digest_lists_what_was_fixed_and_by_whom(shop):
    IncidentFactory(
        watch=shop,
        title="web is down",
        state=Incident.State.RESOLVED,
        resolved_at=timezone.now(),
        resolved_as=Incident.ResolvedBy.AGENT,
    )

    IncidentFactory(
        watch=shop,
        title="db is down",
        state=Incident.State.RESOLVED,
        resolved_at=timezone.now(),
        resolved_as=Incident.ResolvedBy.PERSON,
    )

    found = digest()

    assert found.fixed.lines == ("shop: web is down (fixed by the agent and verified)",)
    assert found.resolved.lines == ("shop: db is down (resolved by a person)",)


def test_a_digest_lists_what_needs_a_person_worst_first(shop):
    IncidentFactory(watch=shop, title="mail is slow", severity=Incident.Severity.NOTICE)
    IncidentFactory(watch=shop, title="web is down", severity=Incident.Severity.CRITICAL)
    IncidentFactory(watch=shop, title="is being worked on", state=Incident.State.WORKING)
    ApprovalFactory(session__cycle=CycleFactory(watch=shop))

    found = digest()

    assert found.needs_you.lines == (
        "approval wanted: shop, Tier 3 needs approval.",
        "[critical] shop: web is down (first seen just now)",
        "[notice] shop: mail is slow (first seen just now)",
    )
    assert found.title == "Daily digest: 3 things need you"


def test_a_digest_lists_changes_and_cost(shop):
    session = SessionFactory(cycle=CycleFactory(watch=shop), cost_usd=Decimal("0.50"))
    SessionFactory(cycle=CycleFactory(watch=shop), cost_usd=None)
    ChangeFactory(session=session, watch=shop)

    found = digest()

    assert found.changed.lines == ("shop: docker restart web",)
    assert "Cost: $0.50 for 2 sessions; the cost of 1 is not known." in found.body


def test_a_recurring_problem_is_flaky(shop):
    for cause, reopened in (("web", 0), ("db", 1), ("mail", 0)):
        IncidentFactory(watch=shop, cause=cause, times_reopened=reopened, state="resolved")
    IncidentFactory(watch=shop, cause="web", state="resolved")

    assert digest().flaky.lines == (
        "shop: db (2 times in 7 days)",
        "shop: web (2 times in 7 days)",
    )


def test_a_digest_leaves_drills_out(db):
    drill = SessionFactory(drill=True)
    ChangeFactory(session=drill, watch=None)
    IncidentFactory(watch=None, drill="three-tiers")
    ApprovalFactory(session=drill)

    found = digest()

    assert found.is_empty
    assert found.runs == 0


def test_a_digest_of_some_watches_has_only_theirs(shop):
    IncidentFactory(watch=shop, title="web is down")
    IncidentFactory(watch=WatchFactory(), title="not mine")
    IncidentFactory(watch=None, title="nothing can run")

    lines = " ".join(digest(watches=[shop.pk]).needs_you.lines)

    assert "web is down" in lines
    assert "nothing can run" in lines
    assert "not mine" not in lines


def test_a_digest_takes_a_fixed_number_of_queries(shop, django_assert_num_queries):
    for _ in range(20):
        IncidentFactory(watch=shop)
        ChangeFactory(watch=shop)

    with django_assert_num_queries(9):
        found = digest()

    assert len(found.needs_you.lines) == 10
    assert found.needs_you.more == 10


def wants_a_digest(**fields) -> Channel:
    channel = ChannelFactory(digest_at=time(8), **fields)
    Channel.objects.filter(pk=channel.pk).update(created_at=NOON - 2 * DAY)
    return channel


@time_machine.travel(NOON)
def test_a_digest_is_written_once_a_day(db):
    IncidentFactory(title="web is down")
    wants_a_digest()

    assert (write_due(), write_due()) == (1, 0)
    with time_machine.travel(NOON + DAY):
        assert write_due() == 1

    assert all("web is down" in message.body for message in Message.objects.all())


@time_machine.travel(NOON)
def test_an_empty_digest_is_sent_only_where_wanted(db):
    wants_a_digest()
    asked = wants_a_digest(digest_when_quiet=True)

    write_due()

    assert [message.channel for message in Message.objects.all()] == [asked]
    assert Message.objects.get().title == "Daily digest: nothing needs you"


@time_machine.travel(NOON)
def test_a_new_channel_gets_its_first_digest_the_next_morning(db):
    ChannelFactory(digest_at=time(8), digest_when_quiet=True)

    assert write_due() == 0


@time_machine.travel(NOON)
def test_a_channel_that_is_off_gets_no_digest(db):
    wants_a_digest(enabled=False, digest_when_quiet=True)

    assert write_due() == 0


def test_the_command_prints_the_digest(shop, capsys):
    IncidentFactory(watch=shop, title="web is down")

    call_command("digest")

    assert "shop: web is down" in capsys.readouterr().out
    assert not Message.objects.exists()


def test_the_command_sends_the_digest(shop, capsys):
    ChannelFactory()
    channel = ChannelFactory(digest_at=time(8))

    call_command("digest", "--send")

    assert "1 channels" in capsys.readouterr().out
    assert Message.objects.get().channel == channel


def test_a_service_that_the_last_cycle_does_not_mention_is_not_looked_at(shop):
    before, last = CycleFactory(watch=shop), CycleFactory(watch=shop)
    ServiceStateFactory(watch=shop, name="web", cycle=before)
    ServiceStateFactory(watch=shop, name="db", cycle=last)
    removed = timezone.now() - timedelta(days=8)
    ServiceStateFactory(watch=shop, name="long gone", cycle=before, seen_at=removed)

    found = digest()

    assert found.not_looked_at.lines == ("shop: web (last seen just now)",)
    assert not found.is_empty
