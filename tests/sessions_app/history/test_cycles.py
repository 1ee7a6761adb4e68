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


def rounds_of(watch: Watch) -> tuple[PastCycle, ...]:
    found = with_cycles(Watch.objects.filter(pk=watch.pk)).get()
    return cycles_in(found.last_cycles)


def test_a_watch_that_never_ran_has_no_rounds():
    assert rounds_of(WatchFactory()) == ()


def test_the_last_rounds_come_oldest_first_and_only_those_of_the_watch():
    watch = WatchFactory()
    cycles = [CycleFactory(watch=watch) for _ in range(SHOWN + 2)]
    CycleFactory()

    assert [one.cycle for one in rounds_of(watch)] == [cycle.pk for cycle in cycles[2:]]


def test_a_round_says_how_it_ended_when_it_began_and_what_it_cost():
    began = timezone.now() - timedelta(hours=3)
    session = SessionFactory(cycle=CycleFactory(outcome="fixed", created_at=began))
    SessionFactory(parent_session=session, tier=2, cost_usd=Decimal("0.47"))

    [one] = rounds_of(session.cycle.watch)

    assert (one.kind, one.word, one.began) == ("fixed", "fixed", began)
    assert one.cost == Decimal("0.50")


def test_a_run_without_a_figure_counts_with_its_estimate():
    session = SessionFactory(failed=True, estimated_cost_usd=Decimal("0.02"))

    [one] = rounds_of(session.cycle.watch)

    assert one.cost == Decimal("0.02")


def test_a_round_under_way_is_told_from_one_that_is_over():
    session = SessionFactory(running=True)

    [one] = rounds_of(session.cycle.watch)

    assert (one.kind, one.is_over) == ("running", False)


def test_a_round_that_was_opened_again_is_running_whatever_its_outcome_was():
    cycle = CycleFactory(outcome="needs_person")
    cycle.reopen()

    assert rounds_of(cycle.watch)[0].kind == "running"


def test_a_deliberate_stop_is_no_failure():
    stop = {"status": "interrupted", "stop_cause": "person", "stop_requested": "ada"}
    session = SessionFactory(cycle=CycleFactory(outcome="needs_person"), **stop)

    [one] = rounds_of(session.cycle.watch)

    assert (one.kind, one.word) == (STOPPED, "stopped by ada")


def test_a_stop_after_which_all_went_well_is_not_told():
    stop = {"status": "interrupted", "stop_cause": "worker"}
    session = SessionFactory(cycle=CycleFactory(outcome="healthy"), **stop)

    assert rounds_of(session.cycle.watch)[0].kind == "healthy"


def test_the_cost_per_round_is_the_mean_of_what_is_known_and_over():
    watch = WatchFactory()
    for cost in ("0.01", "0.03"):
        SessionFactory(cycle=CycleFactory(watch=watch), cost_usd=Decimal(cost))
    SessionFactory(cycle=CycleFactory(watch=watch), cost_usd=None)
    SessionFactory(cycle=CycleFactory(watch=watch, running=True), cost_usd=Decimal(9))

    assert cost_per_cycle(rounds_of(watch)) == Decimal("0.02")
    assert cost_per_cycle(()) is None
