"""What the page of health shows: the actor's own facts, gathered when the page asks for them."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError
from django_q.models import OrmQ, Schedule, Task

from escalation.agent import (
    NO_CREDENTIALS,
    Capabilities,
    ClaudeBinary,
    credential_in,
    find_binary,
    known_capabilities,
    login_from,
)
from escalation.errors import CliMissing
from escalation.host.disk import Disk, disk_now
from escalation.host.health import LEAST_DISK_BYTES, LONGEST_QUEUE_AGE
from escalation.host.schedules import HOUSEKEEPING
from escalation.host.settings_shown import all_settings
from escalation.host.versions import versions
from sessions_app.archive.sealed_things import what_the_key_opens
from sessions_app.models import WorkerBeat
from sessions_app.models.clock import shared_age

CONTRACT = {
    "works": "Runs, resumes and forks",
    "keeps_id_on_resume": "Keeps its id when resumed",
    "can_fork": "Can fork a conversation",
    "accumulates_on_resume": "Counts the whole conversation's cost when resumed",
    "accumulates_on_fork": "Counts the whole conversation's cost when forked",
    "states_own_share": "Tells each run's own share",
    "appended_prompt_sticks": "Keeps the first run's appended system prompt",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Beat:
    host: str
    pid: int
    seen_at: datetime
    is_silent: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Queue:
    waiting: int
    taken: int
    oldest: timedelta | None

    @property
    def is_slow(self) -> bool:
        return self.oldest is not None and self.oldest >= LONGEST_QUEUE_AGE


@dataclass(frozen=True, kw_only=True, slots=True)
class Housekeeping:
    name: str
    next_run: datetime | None
    ended_at: datetime | None
    went_well: bool | None
    """None where it has not run yet, or its result is no longer kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sealed:
    opens: bool
    said: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Health:
    host: str
    versions: dict[str, str]
    cli: ClaudeBinary | None
    capabilities: Capabilities | None
    login: str
    beats: tuple[Beat, ...]
    queue: Queue
    disk: Disk
    sealed: Sealed
    housekeeping: tuple[Housekeeping, ...]
    settings: tuple[Any, ...]
    """Each with `name`, `shown` and `source`; what is secret is not shown."""

    @property
    def contract(self) -> list[tuple[str, bool | None]]:
        """What the experiment found, in words."""
        if self.capabilities is None:
            return []
        return [(words, getattr(self.capabilities, name)) for name, words in CONTRACT.items()]

    @property
    def disk_is_full(self) -> bool:
        free = self.disk.free_bytes
        return free is not None and free <= LEAST_DISK_BYTES

    @property
    def has_worker(self) -> bool:
        return any(not beat.is_silent for beat in self.beats)


def health_now() -> Health:
    """Six queries, and none of them looks at the record."""
    cli = _binary()
    login = login_from(os.environ, settings.CLAUDEOPS_PASS_ENV)
    return Health(
        host=socket.gethostname(),
        versions=versions(),
        cli=cli,
        capabilities=known_capabilities(cli) if cli else None,
        login=credential_in(login) or NO_CREDENTIALS,
        beats=_beats(),
        queue=_queue(),
        disk=disk_now(),
        sealed=_sealed(),
        housekeeping=_housekeeping(),
        settings=tuple(all_settings()),
    )


def _binary() -> ClaudeBinary | None:
    try:
        return find_binary()
    except CliMissing:
        return None


def _beats() -> tuple[Beat, ...]:
    beats = WorkerBeat.objects.annotate(age=shared_age("seen_at"))
    return tuple(
        Beat(
            host=beat.host,
            pid=beat.pid,
            seen_at=beat.seen_at,
            is_silent=beat.age > WorkerBeat.SILENCE,
        )
        for beat in beats.order_by("-seen_at")[:50]
    )


def _queue() -> Queue:
    """A taken task is locked into the future."""
    ages = list(
        OrmQ.objects.annotate(age=shared_age("lock")).order_by("lock").values_list("age", flat=True)
    )
    waiting = [age for age in ages if age is not None and age >= timedelta(0)]
    return Queue(
        waiting=len(waiting),
        taken=len(ages) - len(waiting),
        oldest=waiting[0] if waiting else None,
    )


def _sealed() -> Sealed:
    try:
        opens, said = what_the_key_opens()
    except (DatabaseError, ImproperlyConfigured) as error:
        opens, said = False, str(error)
    return Sealed(opens=opens, said=said)


def _housekeeping() -> tuple[Housekeeping, ...]:
    found = {row.name: row for row in Schedule.objects.filter(name__in=HOUSEKEEPING)}
    numbers = [row.task for row in found.values() if row.task]
    tasks = {task.pk: task for task in Task.objects.filter(pk__in=numbers)}
    return tuple(_kept_up(name, found.get(name), tasks) for name in sorted(HOUSEKEEPING))


def _kept_up(name: str, schedule: Schedule | None, tasks: dict[str, Task]) -> Housekeeping:
    task = tasks.get(schedule.task or "") if schedule else None
    return Housekeeping(
        name=name,
        next_run=schedule.next_run if schedule else None,
        ended_at=task.stopped if task else None,
        went_well=task.success if task else None,
    )
