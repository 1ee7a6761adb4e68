from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from django.utils import timezone

from sessions_app.history.cycles import (
    SHOWN,
    STOPPED,
    PastCycle,
    cost_per_cycle,
    cycles_in,
    with_cycles,
)
from sessions_app.models import Watch
from tests.factories import CycleFactory, SessionFactory, WatchFactory

pytestmark = pytest.mark.django_db


def past_cycles(watch: Watch) -> tuple[PastCycle, ...]:
    found = with_cycles(Watch.objects.filter(pk=watch.pk)).get()
    return cycles_in(found.last_cycles)


def test_a_watch_that_never_ran_has_no_cycles():
    assert past_cycles(WatchFactory()) == ()


def test_the_last_cycles_of_the_watch_come_oldest_first():
    watch = WatchFactory()
    cycles = [CycleFactory(watch=watch) for _ in range(SHOWN + 2)]
    CycleFactory()

    assert [one.cycle for one in past_cycles(watch)] == [cycle.pk for cycle in cycles[2:]]


def test_a_cycle_has_outcome_start_and_cost():
    began = timezone.now() - timedelta(hours=3)
    session = SessionFactory(cycle=CycleFactory(outcome="fixed", created_at=began))
    SessionFactory(parent_session=session, tier=2, cost_usd=Decimal("0.47"))

    [one] = past_cycles(session.cycle.watch)

    assert (one.kind, one.word, one.began) == ("fixed", "fixed", began)
    assert one.cost == Decimal("0.50")


def test_a_session_without_a_cost_counts_with_its_estimate():
    session = SessionFactory(failed=True, estimated_cost_usd=Decimal("0.02"))

    [one] = past_cycles(session.cycle.watch)

    assert one.cost == Decimal("0.02")


def test_an_active_cycle_is_marked_as_running():
    session = SessionFactory(running=True)

    [one] = past_cycles(session.cycle.watch)

    assert (one.kind, one.is_over) == ("running", False)


def test_a_reopened_cycle_is_marked_as_running():
    cycle = CycleFactory(outcome="needs_person")
    cycle.reopen()

    assert past_cycles(cycle.watch)[0].kind == "running"


def test_a_stop_by_a_person_is_no_failure():
    stop = {"status": "interrupted", "stop_cause": "person", "stop_requested": "ada"}
    session = SessionFactory(cycle=CycleFactory(outcome="needs_person"), **stop)

    [one] = past_cycles(session.cycle.watch)

    assert (one.kind, one.word) == (STOPPED, "stopped by ada")


def test_a_stop_in_a_good_cycle_is_not_shown():
    stop = {"status": "interrupted", "stop_cause": "worker"}
    session = SessionFactory(cycle=CycleFactory(outcome="healthy"), **stop)

    assert past_cycles(session.cycle.watch)[0].kind == "healthy"


def test_the_cost_per_cycle_is_the_mean_of_finished_cycles_with_known_cost():
    watch = WatchFactory()
    for cost in ("0.01", "0.03"):
        SessionFactory(cycle=CycleFactory(watch=watch), cost_usd=Decimal(cost))
    SessionFactory(cycle=CycleFactory(watch=watch), cost_usd=None)
    SessionFactory(cycle=CycleFactory(watch=watch, running=True), cost_usd=Decimal(9))

    assert cost_per_cycle(past_cycles(watch)) == Decimal("0.02")
    assert cost_per_cycle(()) is None
