"""The sums that pages read are right after every transition of a session."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from importlib import import_module
from typing import Any

import pytest
import time_machine
from django.apps import apps
from django.db import connection, transaction

from sessions_app.costs.rollups import check
from sessions_app.models import DailyVerdict, PeriodCost, Session
from sessions_app.models.session import ENDINGS
from tests.factories import CycleFactory, SessionFactory, WatchFactory

pytestmark = pytest.mark.django_db

FACTS: dict[str, Any] = {"cost_usd": Decimal("0.25"), "input_tokens": 100, "output_tokens": 20}


def queued(**facts: Any) -> Session:
    fields = {"status": "queued", "started_at": None, "finished_at": None, "cost_usd": None}
    return SessionFactory(**{**fields, **facts})


def started(**facts: Any) -> Session:
    session = queued(**facts)
    assert session.claim()
    return session


def of_day() -> PeriodCost:
    return PeriodCost.objects.get(span="day")


@pytest.mark.parametrize("status", sorted(ENDINGS))
def test_every_kind_of_ending_is_counted(status):
    started().finish(status, **FACTS)

    total = of_day()

    assert (total.runs, total.cost_usd, total.tokens) == (1, Decimal("0.25"), 120)
    assert check().differences == ()


def test_a_month_is_counted_beside_the_day():
    started().finish("completed", **FACTS)

    month = PeriodCost.objects.get(span="month")

    assert (month.first_day, month.cost_usd) == (of_day().first_day.replace(day=1), Decimal("0.25"))


def test_sums_of_dollars_leave_no_fractions_of_a_binary_number():
    cycle = CycleFactory()
    for cost in ("0.1", "0.2", "0.0000000001"):
        started(cycle=cycle).finish("completed", cost_usd=Decimal(cost))

    with connection.cursor() as cursor:
        cursor.execute("SELECT cost_usd FROM sessions_app_periodcost WHERE span = 'day'")
        assert Decimal(str(cursor.fetchone()[0])) == Decimal("0.3000000001")


def test_a_session_is_counted_at_its_start_and_its_cost_at_its_end():
    started()

    assert (of_day().runs, of_day().cost_usd, of_day().unknown) == (1, Decimal(0), 0)


def test_a_session_that_is_put_back_is_not_counted():
    assert started().put_back("paused")

    assert of_day().runs == 0
    assert check().differences == ()


def test_a_session_that_never_started_is_not_counted():
    queued().finish("cancelled")

    assert not PeriodCost.objects.exists()


def test_an_estimate_and_an_unknown_cost_are_counted_apart():
    cycle = CycleFactory()
    started(cycle=cycle).finish("interrupted", estimated_cost_usd=Decimal("0.1"))
    started(cycle=cycle).finish("failed")

    total = of_day()

    assert (total.estimated, total.estimated_usd, total.unknown) == (1, Decimal("0.1"), 1)
    assert (total.runs, total.cost_usd) == (2, Decimal(0))


@pytest.mark.parametrize("after", ["mark_escalated", "expire"])
def test_transitions_after_the_end_count_nothing_twice(after):
    session = started()
    session.finish("interrupted", **FACTS)

    assert getattr(session, after)("later")

    assert (of_day().runs, of_day().cost_usd) == (1, Decimal("0.25"))
    assert check().differences == ()


def test_a_session_ended_by_another_process_is_counted_once():
    session = started()
    stale = Session.objects.get(pk=session.pk)
    session.finish("completed", **FACTS)

    assert not stale.put_back("too late")

    assert of_day().runs == 1


def test_a_rollback_removes_the_count():
    session = started()
    with transaction.atomic():
        session.finish("completed", **FACTS)
        transaction.set_rollback(True)

    assert of_day().cost_usd == 0
    assert check().differences == ()


def test_the_day_is_that_of_the_time_zone_of_the_installation(settings):
    settings.TIME_ZONE = "Pacific/Auckland"
    with time_machine.travel(datetime(2026, 3, 31, 13, 0, tzinfo=UTC), tick=False):
        started().finish("completed", **FACTS)

    assert str(of_day().first_day) == "2026-04-01"
    assert check().differences == ()


def test_a_watch_that_is_removed_or_renamed_keeps_its_costs():
    watch = WatchFactory(name="shop")
    started(cycle=CycleFactory(watch=watch, watch_name="shop")).finish("completed", **FACTS)
    watch.name = "store"
    watch.save()
    started(cycle=CycleFactory(watch=watch, watch_name="store")).finish("completed", **FACTS)
    assert check().differences == ()

    watch.delete()

    assert check().differences == ()
    assert PeriodCost.objects.filter(span="day").count() == 2


def test_verdicts_are_counted_with_their_events():
    session = started()
    events = [
        session.events.model(
            session=session, source="supervisor", kind="command", payload={"verdict": verdict}
        )
        for verdict in ("deny", "allow", "deny", ["odd"], None)
    ]

    session.event_log.append(events)

    assert dict(DailyVerdict.objects.values_list("verdict", "count")) == {"deny": 2, "allow": 1}
    assert check().differences == ()


def test_each_day_has_its_own_row():
    started().finish("completed", **FACTS)
    with time_machine.travel(datetime.now(UTC) + timedelta(days=1), tick=False):
        started().finish("completed", **FACTS)

    assert PeriodCost.objects.filter(span="day").count() == 2


def test_the_migration_counts_measured_costs_and_keeps_the_sums_right():
    guess: dict[str, Any] = {"estimated_cost_usd": Decimal("0.50"), "cost_basis": "estimate"}
    cycle = CycleFactory()
    measured, streamed, asked, unstarted = (started(cycle=cycle) for _number in range(4))
    measured.finish("timed_out", spent_so_far_usd=Decimal("0.40"), **guess)
    streamed.finish("timed_out", **guess)
    asked.finish("timed_out", cli_version="2.1", cost_basis="unknown")
    unstarted.finish("failed", cli_version="", cost_basis="unknown")

    migration = import_module("sessions_app.migrations.0032_measured_costs")
    migration.count_measured_costs(apps, None)

    assert list(
        Session.objects.order_by("pk").values_list("cost_usd", "estimated_cost_usd", "cost_basis")
    ) == [
        (Decimal("0.50"), None, "measured"),
        (None, Decimal("0.50"), "estimate"),
        (None, None, "unknown"),
        (Decimal(0), None, "measured"),
    ]
    total = of_day()
    assert (total.cost_usd, total.estimated_usd) == (Decimal("0.50"), Decimal("0.50"))
    assert (total.estimated, total.unknown) == (1, 1)
    assert check().differences == ()
