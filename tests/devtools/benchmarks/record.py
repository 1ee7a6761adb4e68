"""Fills a database with a given number of sessions, as after a year of work; repeatable."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db import connection, transaction
from django.db.models import Field, JSONField, Model
from django.utils import timezone

from sessions_app.costs.rollups import rebuild_sums
from sessions_app.models import (
    Approval,
    Change,
    Channel,
    Conversation,
    Cycle,
    Incident,
    IncidentEvent,
    LoginFailure,
    Message,
    Notification,
    PauseSwitch,
    RateLimit,
    SandboxProof,
    Session,
    SessionEvent,
    Source,
    Transcript,
    Watch,
    WorkerHeartbeat,
)
from sessions_app.models.costs import BudgetNotice
from sessions_app.models.search import drop_triggers, rebuild_search_text
from sessions_app.models.session import EventKind, EventSource, StreamKind, Verdict
from sessions_app.tiers import FULL, LOWEST_TIER
from tests.devtools.benchmarks import Tell, silent

# Texts of generated runs.

WATCHES = (
    *("shop", "blog", "mail", "backup", "registry", "metrics", "intranet", "wiki"),
    *("billing", "cameras", "library", "homelab"),
)
SERVICES = ("web", "database", "cache", "proxy", "queue", "search", "storage", "worker")
MODELS = {1: "haiku", 2: "sonnet", 3: "opus"}
REASONS = {
    "healthy": (
        "All services answer, the last backup is four hours old, disks are under 70 percent.",
        "Everything is healthy: eight containers up, no restart since yesterday.",
        "All endpoints answered within 200 ms; certificates are good for 61 days.",
    ),
    "fixed": (
        "The proxy had lost its upstream; it was restarted and answers again.",
        "The cache was full of expired sessions; it was flushed and the pages are fast again.",
    ),
    "needs_person": (
        "The database volume is 96 percent full and nothing may be deleted without a person.",
        "The certificate of the registry expires in two days and renewal fails with HTTP 403.",
    ),
    "could_not_run": ("The CLI ended with exit code 1.",),
    "escalated": (
        "Tier 1 asks for a restart of the proxy, which it may not do itself.",
        "Tier 2 could not bring the database up: the volume has to be grown.",
    ),
}
ERRORS = (
    "API Error: 529 Overloaded. The CLI ended with exit code 1.",
    "The run said nothing for 600 s and was stopped. Broken pipe while reading the stream.",
)
PROMPT = (
    "You are the first tier of an on-call team. Read CLAUDE-OPS.md, look at every service that it "
    "names, at disks, certificates, backups and logs of the last hour, and report what you found. "
    "Change nothing. Ask for escalation only where something is broken that you cannot mend. "
)
FLAGS = ("--output-format", "stream-json", "--verbose", "--strict-mcp-config", "--max-turns", "60")


def prompt(number: int) -> str:
    return f"{PROMPT * 2}This is round {number}."


def argv(model: str) -> str:
    return json.dumps(["/opt/claudeops/claude", "-p", "--model", model, *FLAGS])


def report(service: str, outcome: str) -> str:
    healthy = outcome == "healthy"
    state = "healthy" if healthy else "down"
    return json.dumps(
        {
            "summary": REASONS[outcome][0],
            "services": [
                {"name": name, "status": state if name == service else "healthy", "detail": "ok"}
                for name in SERVICES
            ],
            "needs_escalation": not healthy,
        }
    )


def words_event(sequence: int) -> dict[str, Any]:
    text = f"Looking at {SERVICES[sequence % len(SERVICES)]}: it answers."
    content = [{"type": "text", "text": text}]
    return {
        "source": EventSource.STREAM.value,
        "kind": StreamKind.ASSISTANT.value,
        "payload": json.dumps({"type": "assistant", "message": {"content": content}}),
    }


def verdict_event(sequence: int) -> dict[str, Any]:
    verdict = (Verdict.ALLOW, Verdict.ISOLATE, Verdict.DENY)[sequence // 4 % 3]
    facts = {"command": "docker ps", "verdict": verdict, "rule": "docker ps", "grants": ["docker"]}
    return {
        "source": EventSource.SUPERVISOR.value,
        "kind": EventKind.COMMAND.value,
        "payload": json.dumps({"text": f"docker ps: {verdict}", "level": "info", **facts}),
    }


# One row of each model that does not grow with the runs.


def add_one_of_each(watch: Watch) -> None:
    now, severity = timezone.now(), Incident.Severity.WARNING
    PauseSwitch.objects.create(pk=PauseSwitch.THE_ONE)
    RateLimit.objects.create(pk=RateLimit.THE_ONE)
    LoginFailure.objects.create(username="nobody", address="127.0.0.1")
    BudgetNotice.objects.create(budget="day", period=timezone.localdate(), percent=80)
    SandboxProof.objects.create(
        kind=SandboxProof.Kind.CORPUS, host="lighthouse", tried=1, failed=0, started_at=now
    )
    incident = Incident.objects.order_by("pk").first()
    if incident is not None:
        IncidentEvent.objects.create(incident=incident, kind=IncidentEvent.Kind.OPENED)
    Notification.objects.create(
        kind=Notification.Kind.BUDGET, severity=severity, title="A budget", watch=watch
    )
    channel = Channel.objects.create(name="lamp", encrypted_address=b"")
    source = Source.objects.create(name="am", kind="alertmanager", token_hash="0")
    source.deliveries.create(size=1_000, verdict="noted")
    source.problems.create(fingerprint="a", service="web", severity=2)
    source.refused.create(minute=timezone.now(), reason="method", count=1)
    Message.objects.create(channel=channel, title="A word", body="A word", severity=severity)
    _log_a_change(watch)


def _log_a_change(watch: Watch) -> None:
    user = User.objects.create(username="keeper")
    LogEntry.objects.create(
        user=user,
        content_type=ContentType.objects.get_for_model(Watch),
        object_id=str(watch.pk),
        object_repr=str(watch),
        action_flag=CHANGE,
    )


# Bulk inserts without the ORM: a million sessions in minutes.

BATCH = 20_000


class Table:
    """The columns of a model and a row of its defaults."""

    def __init__(self, model: type[Model]) -> None:
        self._fields: list[Field[Any, Any]] = list(model._meta.concrete_fields)
        self._table = model._meta.db_table
        self._usual = {field.attname: _plain(field, field.get_default()) for field in self._fields}
        self._columns = ", ".join(f'"{field.column}"' for field in self._fields)

    def insert(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Insert rows, each given by its differences from the defaults."""
        names = [field.attname for field in self._fields]
        filled = (
            tuple(row[name] for name in names) for row in ({**self._usual, **own} for own in rows)
        )
        with connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                self._copy(cursor, filled)
            else:
                self._insert(cursor, filled)

    def _insert(self, cursor: Any, rows: Iterator[tuple[Any, ...]]) -> None:
        places = ", ".join(["%s"] * len(self._fields))
        statement = f'INSERT INTO "{self._table}" ({self._columns}) VALUES ({places})'  # noqa: S608
        while batch := list(islice(rows, BATCH)):
            cursor.executemany(statement, batch)

    def _copy(self, cursor: Any, rows: Iterator[tuple[Any, ...]]) -> None:
        with cursor.copy(f'COPY "{self._table}" ({self._columns}) FROM STDIN') as copy:
            for row in rows:
                copy.write_row(row)


def moment(value: datetime) -> Any:
    """Return a time as the database stores it."""
    return connection.ops.adapt_datetimefield_value(value)


def _plain(field: Field[Any, Any], value: Any) -> Any:
    if isinstance(field, JSONField):
        return None if value is None else json.dumps(value)
    return moment(value) if isinstance(value, datetime) else value


def reset_numbers(models: Iterable[type[Model]]) -> None:
    """Let PostgreSQL's sequences continue after rows that brought their own numbers."""
    if connection.vendor != "postgresql":
        return
    with connection.cursor() as cursor:
        for model in models:
            table = model._meta.db_table
            cursor.execute(
                f"SELECT setval(pg_get_serial_sequence('\"{table}\"', 'id'), "  # noqa: S608
                f'greatest((SELECT max(id) FROM "{table}"), 1))'
            )


YEAR = timedelta(days=365)
EVENTS_FOR_THE_LAST = 2_000
"""Sessions with events; those of older ones are pruned."""
# Kinds of cycles by frequency: tiers and result.
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
GROWING = (Cycle, Session, Conversation, Transcript, SessionEvent, Incident, Change, Approval)


Made = tuple[dict[str, Any], list[dict[str, Any]]]


@dataclass(slots=True)
class Numbers:
    """The next id of each table."""

    cycle: int = 0
    session: int = 0
    event: int = 0
    incident: int = 0
    change: int = 0
    approval: int = 0


def seed(sessions: int, tell: Tell = silent) -> None:
    """Fill an empty database; sums and search index are made at the end."""
    make = random.Random(sessions)  # noqa: S311  (a record, no secret)
    now, numbers = timezone.now(), Numbers()
    WorkerHeartbeat.objects.create(host="lighthouse", pid=1, seen_at=now + YEAR)
    watches = [Watch.objects.create(name=name, workdir="/srv") for name in WATCHES]
    cycles = _cycles(make, numbers, sessions, now, [watch.pk for watch in watches])
    tables: dict[type[Model], Table] = {model: Table(model) for model in GROWING}
    _execute(drop_triggers(connection.vendor))
    while some := list(islice(cycles, AT_ONCE)):
        with transaction.atomic():
            for model, rows in _rows(make, numbers, some, sessions, now):
                tables[model].insert(rows)
        tell(f"Making a record: {some[-1][1][-1]['id']:,} of {sessions:,} sessions")
    reset_numbers(GROWING)
    add_one_of_each(watches[0])
    tell(f"Adding up the costs of {sessions:,} sessions")
    rebuild_sums()
    rebuild_search_text()
    _execute(["VACUUM ANALYZE"] if connection.vendor == "postgresql" else [])


def _rows(
    make: random.Random, numbers: Numbers, some: list[Made], sessions: int, now: datetime
) -> Iterator[tuple[type[Model], Iterator[dict[str, Any]]]]:
    """Insert cycles, sessions and what grows with them."""
    runs = [run for _cycle, own in some for run in own]
    troubled = [cycle for cycle, _own in some if cycle["outcome"] == "needs_person"]
    remedies = [run for run in runs if run["tier"] > LOWEST_TIER]
    latest = [run for run in runs if run["id"] > sessions - EVENTS_FOR_THE_LAST]
    highest = [run for run in remedies if run["tier"] == FULL]
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
