"""Page of health, and the endpoints for monitors."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from django_q.models import OrmQ, Schedule, Task

from escalation.agent.binary import (
    ClaudeBinary,
    credential_in,
    find_binary,
    login_from,
    no_credentials,
)
from escalation.agent.capabilities import Capabilities, known_capabilities
from escalation.errors import CliMissing
from escalation.web.sandbox import current_sandbox
from escalation.worker.health import (
    INSTEAD_OF_ROOT,
    LEAST_DISK_BYTES,
    LONGEST_QUEUE_AGE,
    RUNS_AS_ROOT,
    all_settings,
    readiness,
    runs_as_root,
    versions,
)
from escalation.worker.housekeeping import Disk, disk_now
from escalation.worker.schedules import HOUSEKEEPING
from escalation.worker.traces import Exports, exports
from sessions_app.access.permissions import needs
from sessions_app.access.roles import Right, may
from sessions_app.archive.encryption_key import check_keys
from sessions_app.models import SandboxProof, WorkerHeartbeat
from sessions_app.models.installation import shared_age

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
    """None if it has not run or its result is no longer kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Encrypted:
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
    encrypted: Encrypted
    housekeeping: tuple[Housekeeping, ...]
    traces: Exports | None
    """None if no traces are exported."""
    settings: tuple[Any, ...]
    """Settings with `name`, `shown` and `source`; secrets are hidden."""

    @property
    def contract(self) -> list[tuple[str, bool | None]]:
        """Returns the capabilities of the CLI with their descriptions."""
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


def load_health() -> Health:
    """Makes six queries, and two more where traces are exported; none of them on sessions."""
    cli = installed_binary()
    login = login_from(os.environ, settings.CLAUDEOPS_PASS_ENV)
    return Health(
        host=socket.gethostname(),
        versions=versions(),
        cli=cli,
        capabilities=known_capabilities(cli) if cli else None,
        login=credential_in(login) or no_credentials(),
        beats=_beats(),
        queue=_queue(),
        disk=disk_now(),
        encrypted=_encrypted(),
        housekeeping=_housekeeping(),
        traces=exports() if settings.OTEL_TRACES_URL else None,
        settings=tuple(all_settings()),
    )


def installed_binary() -> ClaudeBinary | None:
    try:
        return find_binary()
    except CliMissing:
        return None


def root_warning() -> str:
    return f"{RUNS_AS_ROOT} {INSTEAD_OF_ROOT}" if runs_as_root() else ""


def _beats() -> tuple[Beat, ...]:
    beats = WorkerHeartbeat.objects.annotate(age=shared_age("seen_at"))
    return tuple(
        Beat(
            host=beat.host,
            pid=beat.pid,
            seen_at=beat.seen_at,
            is_silent=beat.age > WorkerHeartbeat.SILENCE,
        )
        for beat in beats.order_by("-seen_at")[:50]
    )


def _queue() -> Queue:
    """Counts tasks; one that a worker has taken is locked into the future."""
    ages = list(
        OrmQ.objects.annotate(age=shared_age("lock")).order_by("lock").values_list("age", flat=True)
    )
    waiting = [age for age in ages if age is not None and age >= timedelta(0)]
    return Queue(
        waiting=len(waiting),
        taken=len(ages) - len(waiting),
        oldest=waiting[0] if waiting else None,
    )


def _encrypted() -> Encrypted:
    try:
        opens, said = check_keys()
    except (DatabaseError, ImproperlyConfigured) as error:
        opens, said = False, str(error)
    return Encrypted(opens=opens, said=said)


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


@needs(Right.SEE_OUTPUT)
@require_safe
def health(request: HttpRequest) -> HttpResponse:
    """Names paths and settings, so it needs the right to see output."""
    return render(
        request,
        "web/health.html",
        {
            "health": load_health(),
            "last_proof": SandboxProof.objects.defer("rows").first(),
            "sandbox_now": current_sandbox(),
            "root_warning": root_warning(),
        },
    )


@login_not_required
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Answers while the web server runs."""
    return HttpResponse("ok\n", content_type="text/plain")


@login_not_required
@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Checks everything that a cycle needs; answers 503 if a check fails.

    Anonymous clients get the names of failed checks only, since details name paths of the host.
    """
    checks = readiness()
    known = may(request.user, Right.SEE)
    answer = {
        check.name: {"ok": check.ok, **({"said": check.said} if known else {})} for check in checks
    }
    ready = all(check.ok for check in checks)
    return JsonResponse({"ready": ready, "checks": answer}, status=200 if ready else 503)
