"""A record as a year of work leaves it, of any size: cycles of several watches, most of them
healthy, some escalated, with incidents, changes and approvals. The same size, the same record."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from django.db import connection, transaction
from django.db.models import Model
from django.utils import timezone

from escalation.rehearsal.benchmarks.bulk import Table, moment, reset_numbers
from escalation.rehearsal.benchmarks.one_of_each import add_one_of_each
from escalation.rehearsal.benchmarks.record_words import (
    ERRORS,
    MODELS,
    REASONS,
    SERVICES,
    WATCHES,
    argv,
    prompt,
    report,
    verdict_event,
    words_event,
)
from sessions_app.models import (
    Approval,
    Change,
    Conversation,
    Cycle,
    Incident,
    Session,
    SessionEvent,
    Transcript,
    Watch,
    WorkerBeat,
)
from sessions_app.models.search_triggers import forget
from sessions_app.reading.rollups import rebuild

YEAR = timedelta(days=365)
EVENTS_FOR_THE_LAST = 2_000
"""Sessions with events: older ones were pruned, as in an installation."""
# How a cycle goes, and how often: the tiers that ran, and how it ended.
COURSES = (
    (80, (1,), "healthy"),
    (9, (1, 2), "fixed"),
    (4, (1, 2, 3), "fixed"),
    (3, (1, 2, 3), "needs_person"),
    (2, (1,), "could_not_run"),
    (2, (1, 2), "needs_person"),
)
ESCALATED = REASONS["escalated"]
DRILL_EVERY = 40
AT_ONCE = 10_000
HIGHEST_TIER = 3
GROWING = (Cycle, Session, Conversation, Transcript, SessionEvent, Incident, Change, Approval)


Made = tuple[dict[str, Any], list[dict[str, Any]]]


@dataclass(slots=True)
class Numbers:
    """Where each table continues."""

    cycle: int = 0
    session: int = 0
    event: int = 0
    incident: int = 0
    change: int = 0
    approval: int = 0


def seed(sessions: int) -> None:
    """The database must be empty. Sums and words follow at the end, which is quicker."""
    make = random.Random(sessions)  # noqa: S311  (a record, no secret)
    now, numbers = timezone.now(), Numbers()
    WorkerBeat.objects.create(host="lighthouse", pid=1, seen_at=now + YEAR)
    watches = [Watch.objects.create(name=name, workdir="/srv") for name in WATCHES]
    cycles = _cycles(make, numbers, sessions, now, [watch.pk for watch in watches])
    tables: dict[type[Model], Table] = {model: Table(model) for model in GROWING}
    _execute(forget(connection.vendor))
    while some := list(islice(cycles, AT_ONCE)):
        with transaction.atomic():
            for model, rows in _rows(make, numbers, some, sessions, now):
                tables[model].insert(rows)
    reset_numbers(GROWING)
    add_one_of_each(watches[0])
    rebuild()
    _execute(["VACUUM ANALYZE"] if connection.vendor == "postgresql" else [])


def _rows(
    make: random.Random, numbers: Numbers, some: list[Made], sessions: int, now: datetime
) -> Iterator[tuple[type[Model], Iterator[dict[str, Any]]]]:
    """Cycles and runs, and what grows with them."""
    runs = [run for _cycle, own in some for run in own]
    troubled = [cycle for cycle, _own in some if cycle["outcome"] == "needs_person"]
    remedies = [run for run in runs if run["tier"] > 1]
    latest = [run for run in runs if run["id"] > sessions - EVENTS_FOR_THE_LAST]
    highest = [run for run in remedies if run["tier"] == HIGHEST_TIER]
    yield Cycle, (cycle for cycle, _own in some)
    yield Session, iter(runs)
    yield Conversation, (_conversation(run) for run in runs)
    yield Transcript, (_transcript(run) for run in runs)
    yield SessionEvent, _events(numbers, latest)
    yield Incident, _incidents(make, numbers, troubled, sessions)
    yield Change, _changes(make, numbers, remedies)
    yield Approval, _approvals(numbers, highest, sessions, now)


def _cycles(
    make: random.Random, numbers: Numbers, sessions: int, now: datetime, watches: list[int]
) -> Iterator[Made]:
    step = YEAR / sessions
    weights = [weight for weight, *_rest in COURSES]
    while numbers.session < sessions:
        _weight, course, outcome = make.choices(COURSES, weights)[0]
        tiers: tuple[int, ...] = course[: sessions - numbers.session]
        began = now - YEAR + step * numbers.session
        numbers.cycle += 1
        is_drill = numbers.cycle % DRILL_EVERY == 0
        watch = None if is_drill else watches[numbers.cycle % len(watches)]
        cycle = {
            "id": numbers.cycle,
            "watch_id": watch,
            "watch_name": "" if watch is None else WATCHES[numbers.cycle % len(watches)],
            "drill": "three-tiers" if is_drill else "",
            "trigger": "manual" if numbers.cycle % 9 == 0 else "schedule",
            "workdir": f"/srv/{WATCHES[numbers.cycle % len(watches)]}",
            "state": "finished",
            "outcome": outcome,
            "outcome_reason": make.choice(REASONS[outcome]),
            "created_at": moment(began),
            "finished_at": moment(began + timedelta(minutes=2)),
        }
        yield cycle, list(_runs(make, numbers, cycle, tiers, began))


def _runs(
    make: random.Random,
    numbers: Numbers,
    cycle: dict[str, Any],
    tiers: tuple[int, ...],
    began: datetime,
) -> Iterator[dict[str, Any]]:
    for place, tier in enumerate(tiers):
        numbers.session += 1
        is_last, failed = place == len(tiers) - 1, cycle["outcome"] == "could_not_run"
        started = began + timedelta(seconds=20 * place + 1)
        status = "escalated" if not is_last else "failed" if failed else "completed"
        cost = None if failed else round(make.uniform(0.01, 0.09) * 6 ** (tier - 1), 7)
        way = "fresh" if place == 0 else "handoff" if make.random() < 0.1 else "resume"
        number = numbers.session
        yield {
            "id": number,
            "cycle_id": cycle["id"],
            "watch_id": cycle["watch_id"],
            "parent_session_id": number - 1 if place else None,
            "tier": tier,
            "model": MODELS[tier],
            "model_used": f"claude-{MODELS[tier]}-4-5",
            "purpose": "retry" if number % 997 == 0 else "tier",
            "continued_by": way,
            "continued_guard": "context" if way == "handoff" else "",
            "prompt": prompt(number),
            "argv": argv(MODELS[tier]),
            "workdir": cycle["workdir"],
            "host": "lighthouse",
            "status": status,
            "session_id": f"{number:08x}-0000-4000-8000-{make.getrandbits(48):012x}",
            "cost_usd": cost,
            "reported_cost_usd": cost,
            "cost_basis": "unknown" if cost is None else "own_share",
            "input_tokens": 900 * tier,
            "output_tokens": 400 * tier,
            "cache_read_tokens": 20_000 * tier,
            "context_tokens": 24_000 * tier,
            "context_window": 200_000,
            "turns": 6 * tier,
            "messages": 12 * tier,
            "duration_ms": 18_000 * tier,
            "exit_code": int(failed),
            "result": cycle["outcome_reason"],
            "report": report(make.choice(SERVICES), cycle["outcome"]),
            "escalation_reason": cycle["outcome_reason"] if is_last else ESCALATED[tier % 2],
            "error": make.choice(ERRORS) if failed else "",
            "created_at": moment(began + timedelta(seconds=20 * place)),
            "started_at": moment(started),
            "finished_at": moment(started + timedelta(seconds=18)),
        }


def _conversation(run: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": run["id"],
        "session_id": run["session_id"],
        "state": "expired",
        "last_used_at": run["finished_at"],
    }


def _transcript(run: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": run["id"],
        "project_key": "-srv-shop",
        "session_id": run["session_id"],
        "updated_at": run["finished_at"],
    }


def _events(numbers: Numbers, runs: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for run in runs:
        for sequence in range(1, 13):
            numbers.event += 1
            said = verdict_event(sequence) if sequence % 4 == 0 else words_event(sequence)
            yield {
                "id": numbers.event,
                "session_id": run["id"],
                "sequence": sequence,
                "created_at": run["started_at"],
                **said,
            }


def _incidents(
    make: random.Random, numbers: Numbers, troubled: list[dict[str, Any]], sessions: int
) -> Iterator[dict[str, Any]]:
    for cycle in troubled:
        numbers.incident += 1
        is_open = numbers.session >= sessions and cycle is troubled[-1]
        service = make.choice(SERVICES)
        yield {
            "id": numbers.incident,
            "watch_id": cycle["watch_id"],
            "watch_name": cycle["watch_name"],
            "drill": cycle["drill"],
            "kind": "problem",
            "scope": f"watch:{cycle['watch_id']}",
            "cause": f"{service}-{numbers.incident}",
            "title": f"{service} is down",
            "detail": cycle["outcome_reason"],
            "state": "open" if is_open else "resolved",
            "first_seen_at": cycle["created_at"],
            "last_seen_at": cycle["finished_at"],
            "resolved_at": None if is_open else cycle["finished_at"],
            "last_cycle_id": cycle["id"],
        }


def _changes(
    make: random.Random, numbers: Numbers, runs: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    for run in runs:
        numbers.change += 1
        command = f"docker restart {make.choice(SERVICES)}"
        yield {
            "id": numbers.change,
            "session_id": run["id"],
            "watch_id": run["watch_id"],
            "call": f"{numbers.change:08x}",
            "kind": "restart",
            "service": command.split()[-1],
            "action": command,
            "command": command,
            "at": run["started_at"],
            "exit_code": 0,
            "is_cleared": True,
        }


def _approvals(
    numbers: Numbers, runs: list[dict[str, Any]], sessions: int, now: datetime
) -> Iterator[dict[str, Any]]:
    for run in runs:
        numbers.approval += 1
        is_waiting = numbers.session >= sessions and run is runs[-1]
        yield {
            "id": numbers.approval,
            "kind": "tier",
            "session_id": run["id"],
            "why": "Tier 3 needs approval.",
            "state": "waiting" if is_waiting else "approved",
            "asked_at": run["created_at"],
            "expires_at": moment(now + timedelta(hours=1)) if is_waiting else run["finished_at"],
            "decided_at": None if is_waiting else run["started_at"],
        }


def _execute(statements: list[str]) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
