"""A watch in a terminal, and as data for scripts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.utils import timezone

from sessions_app.models import Cycle, Watch

CYCLES_SHOWN = 5


def list_line(watch: Watch) -> str:
    limits = f"up to Tier {watch.max_tier}" + (", dry run" if watch.dry_run else "")
    return f"{watch.name:20} {watch.rhythm:16} {limits:24} {watch.workdir}"


def show_lines(watch: Watch) -> Iterator[str]:
    yield f"{watch.name}: {watch.rhythm}, in {watch.workdir}"
    yield f"  up to         Tier {watch.max_tier}{', dry run' if watch.dry_run else ''}"
    if watch.next_run:
        yield f"  next run      {timezone.localtime(watch.next_run):%Y-%m-%d %H:%M}"
    if watch.is_backed_off:
        yield (
            f"  backed off    until {timezone.localtime(watch.backed_off_until):%Y-%m-%d %H:%M}, "
            f"after {watch.failures_in_a_row} failures in a row"
        )
    for number, line in enumerate(watch.instructions.splitlines()):
        yield f"  {'instructions' if number == 0 else '':13} {line}"
    yield "Last cycles:" if watch.cycles.exists() else "It has never run."
    for cycle in watch.cycles.all()[:CYCLES_SHOWN]:
        said = cycle.get_outcome_display() or cycle.get_state_display()
        when = timezone.localtime(cycle.created_at)
        yield f"  {cycle.pk:<6} {when:%Y-%m-%d %H:%M} {said}. {cycle.outcome_reason}".rstrip(". ")


def watch_as_data(watch: Watch) -> dict[str, Any]:
    return {
        "name": watch.name,
        "workdir": watch.workdir,
        "instructions": watch.instructions,
        "interval_minutes": None if watch.cron else watch.interval_minutes,
        "cron": watch.cron or None,
        "enabled": watch.enabled,
        "max_tier": watch.max_tier,
        "dry_run": watch.dry_run,
        "next_run": watch.next_run,
        "failures_in_a_row": watch.failures_in_a_row,
        "backed_off_until": watch.backed_off_until,
        "created_at": watch.created_at,
        "last_cycles": [_cycle_as_data(cycle) for cycle in watch.cycles.all()[:CYCLES_SHOWN]],
    }


def _cycle_as_data(cycle: Cycle) -> dict[str, Any]:
    return {
        "id": cycle.pk,
        "trigger": cycle.trigger,
        "state": cycle.state,
        "outcome": cycle.outcome or None,
        "outcome_reason": cycle.outcome_reason,
        "created_at": cycle.created_at,
        "finished_at": cycle.finished_at,
    }
