"""A watch in a terminal, and as data for scripts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.utils import timezone

from escalation.management.tables import Cell
from escalation.tiers import LOWEST_TIER
from escalation.web.doors_table import open_at
from sessions_app.models import AccountClock, Cycle, Watch
from sessions_app.models.trust import Step
from sessions_app.models.watch import TIER_CHOICES
from sessions_app.reading import formatting
from sessions_app.reading.trust_record import recorded_wishes, what_if

HEADINGS = ("watch", "rhythm", "trusted with", "next run", "directory")
CYCLES_SHOWN = 5


def list_row(watch: Watch) -> tuple[Cell | str, ...]:
    next_run = timezone.localtime(watch.next_run) if watch.next_run else None
    return (
        watch.name,
        Cell(watch.rhythm, "" if watch.enabled else "warn"),
        watch.trust_title,
        f"{next_run:%Y-%m-%d %H:%M}" if next_run else "",
        watch.workdir,
    )


def added_lines(watch: Watch) -> Iterator[str]:
    """What a new watch does, and what its owner may do next."""
    yield f"The watch {watch.name} looks after {watch.workdir}."
    yield f"  trusted with  {watch.trust_title}"
    if watch.enabled:
        yield f"  it runs       {watch.rhythm}, by itself"
    else:
        yield "  it runs       only when you ask: claudeops run_cycle --watch " + watch.name
        yield f"  switch it on  claudeops watch unpause {watch.name} ({watch.rhythm_when_on})"
    yield f"  more trust    claudeops watch trust {watch.name}"


def show_lines(watch: Watch) -> Iterator[str]:
    yield f"{watch.name}: {watch.rhythm}, in {watch.workdir}"
    yield f"  up to         Tier {watch.max_tier}{', dry run' if watch.dry_run else ''}"
    yield f"  trusted with  {watch.trust_title}"
    yield f"  approval      {_approval_words(watch)}"
    yield f"  restarts      {watch.restarts_allowed} of one service in {watch.restart_hours} h"
    yield (
        f"  redeployments {watch.redeployments_allowed} of one service "
        f"in {watch.redeployment_hours} h"
    )
    if watch.budget_day_usd is not None:
        yield f"  a day         {formatting.money(watch.budget_day_usd)} at most"
    if watch.ask:
        yield f"  asks before   {watch.ask}"
    if watch.hosts:
        yield f"  hosts         {' or '.join(watch.hosts.split())}"
    yield f"  doors         {watch.doors or 'as the tiers have them'}"
    for tier, words in enumerate(_open_by_tier(watch), start=1):
        yield f"    Tier {tier}      {words}"
    if watch.next_run:
        yield f"  next run      {timezone.localtime(watch.next_run):%Y-%m-%d %H:%M}"
    if watch.is_backed_off:
        yield (
            f"  backed off    until {timezone.localtime(watch.backed_off_until):%Y-%m-%d %H:%M}, "
            f"after {watch.failures_in_a_row} failures in a row"
        )
    if clock := AccountClock.holding():
        yield f"  waits         {clock.sentence}"
    for number, line in enumerate(watch.instructions.splitlines()):
        yield f"  {'instructions' if number == 0 else '':13} {line}"
    yield "Last cycles:" if watch.cycles.exists() else "It has never run."
    for cycle in watch.cycles.all()[:CYCLES_SHOWN]:
        said = cycle.get_outcome_display() or cycle.get_state_display()
        when = timezone.localtime(cycle.created_at)
        yield f"  {cycle.pk:<6} {when:%Y-%m-%d %H:%M} {said}. {cycle.outcome_reason}".rstrip(". ")


def _approval_words(watch: Watch) -> str:
    tiers = " and ".join(f"Tier {tier}" for tier in sorted(watch.policy.approval_tiers))
    return f"{tiers} wait for a person" if tiers else "no tier waits for a person"


def trust_lines(watch: Watch) -> Iterator[str]:
    """The step in force and what each other one would have done lately."""
    yield f"{watch.name} is trusted with: {watch.trust_title}"
    record = recorded_wishes(watch)
    for step in Step:
        mark = "*" if step == watch.step else " "
        yield f"{mark} {step.value:20} {step.meaning}"
        if step != watch.step:
            yield f"  {'':20} {what_if(record, step).sentence}"
    yield f"Change it with: claudeops watch trust {watch.name} STEP"


def _open_by_tier(watch: Watch) -> Iterator[str]:
    """What is open at the first tier, and what each tier above changes."""
    before: tuple[str, ...] = ()
    for tier, _name in TIER_CHOICES:
        now = open_at(tier, watch.doors)
        opened = [word for word in now if word not in before]
        closed = [f"-{word}" for word in before if word not in now]
        if tier == LOWEST_TIER:
            yield " ".join(opened) or "none"
        else:
            yield " ".join([*(f"+{word}" for word in opened), *closed]) or "the same"
        before = now


def watch_as_data(watch: Watch) -> dict[str, Any]:
    return {
        "name": watch.name,
        "workdir": watch.workdir,
        "instructions": watch.instructions,
        "interval_minutes": None if watch.cron else watch.interval_minutes,
        "cron": watch.cron or None,
        "enabled": watch.enabled,
        "doors": watch.doors,
        "hosts": watch.hosts.split(),
        "ask": watch.ask,
        "max_tier": watch.max_tier,
        "dry_run": watch.dry_run,
        "approval": sorted(watch.policy.approval_tiers),
        "step": watch.step,
        "budget_day_usd": watch.budget_day_usd,
        "restarts": {"allowed": watch.restarts_allowed, "hours": watch.restart_hours},
        "redeployments": {
            "allowed": watch.redeployments_allowed,
            "hours": watch.redeployment_hours,
        },
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
