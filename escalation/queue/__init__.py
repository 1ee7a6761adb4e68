"""Hands sessions to the django-q2 worker, one task per session.

Every new session goes through `enqueue_session`. Inside `leave_to_caller` the caller runs the
session itself, and no task is written.

**Hosts.** The task of a bound session is in a queue that is named after the labels of its watch.
The broker of a host reads only queues that name one of its labels; the name of the host is one.

**Slots.** A session without a slot waits, marked by `waiting_since`, without a task in the queue.
Code that frees a slot calls `start_waiting` in its own transaction: the oldest waiting sessions
that fit get a task. Recovery calls it too, for processes that died before they could.

**Locks.** A transaction that changes more than one row takes its locks in this order:

1. the lock of the installation (`installation_lock`), before it changes or locks any row;
2. rows of sessions, cycles, approvals, conversations, incidents, watches and sums, in any order:
   no other transaction that takes several of them is inside at the same time.

A transaction without this lock changes the rows of one table by one statement (a heartbeat, a
request to stop one session), adds rows (events, messages), or saves a watch and then its schedule.
It never enters `installation_lock` afterwards: a transaction that holds a row and waits for this
lock, while the holder of the lock waits for the row, is a deadlock. A row that other rows refer to
is locked with `no_key=True`, so that adding an event to a session does not wait for it.

Messages are sent, tested and routed without this lock. Such a transaction locks or changes the row
of the channel before it writes a message of it.

`tests/escalation/web/test_acting_at_once.py` races every pair of acting endpoints.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Q
from django.utils import timezone
from django_q.brokers import get_broker
from django_q.conf import Conf
from django_q.models import OrmQ
from django_q.tasks import async_task

from sessions_app.models import PauseSwitch, RateLimit, SandboxProof, Session, WorkerHeartbeat
from sessions_app.models.installation import shared_now
from sessions_app.models.watch import may_run, read_host_words
from sessions_app.tiers import FULL, LOWEST_TIER, full_tiers

INSTALLATION_LOCK = 0x636C61756465
"""The key of the advisory lock in PostgreSQL: any number that nothing else there uses."""


@contextmanager
def installation_lock() -> Iterator[None]:
    """Opens a transaction that excludes every other holder of the lock. Reentrant.

    SQLite takes its write lock at the beginning of a transaction. PostgreSQL takes an advisory
    lock, which ends with the transaction.
    """
    with transaction.atomic():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", [INSTALLATION_LOCK])
        yield


@dataclass(frozen=True, slots=True)
class LiveHost:
    labels: frozenset[str]
    free_workers: int


def own_labels() -> frozenset[str]:
    labels = read_host_words(settings.CLAUDEOPS_HOST_LABELS)
    return frozenset({socket.gethostname().lower(), *labels})


def labels_of(session: Session) -> tuple[str, ...]:
    """Returns the labels that the watch requires now. A drill runs anywhere."""
    watch = session.cycle.watch
    return read_host_words(watch.hosts) if watch else ()


def not_for_this_host(session: Session) -> str:
    """Returns why the session may not run on this host, or nothing."""
    wanted, labels = labels_of(session), own_labels()
    if may_run(wanted, labels):
        return ""
    return (
        f"the watch {session.cycle.watch} runs only on {' or '.join(wanted)}, and this host is "
        f"{', '.join(sorted(labels))} (CLAUDEOPS_HOST_LABELS)"
    )


def queue_of(labels: Iterable[str]) -> str:
    """Returns the name of the queue. Commas around each label make it searchable."""
    bound = ",".join(labels)
    return f"{Conf.CLUSTER_NAME}:,{bound}," if bound else str(Conf.CLUSTER_NAME)


def queues_of_this_host(shared: str) -> Q:
    """Selects the tasks that this host may take: unbound ones, and those bound to its labels."""
    ours = Q(key=shared)
    for label in own_labels():
        ours |= Q(key__startswith=f"{shared}:", key__contains=f",{label},")
    return ours


def live_hosts() -> list[LiveHost]:
    busy = Counter(
        Session.objects.filter(status=Session.Status.RUNNING).values_list("host", flat=True)
    )
    return [
        LiveHost(
            frozenset({beat.host.lower(), *beat.labels.split()}),
            max(0, beat.workers - busy[beat.host]),
        )
        for beat in WorkerHeartbeat.lately_seen()
    ]


def has_free_host(labels: Iterable[str], hosts: Iterable[LiveHost]) -> bool:
    """Returns True if a live host with a matching label has a free worker."""
    wanted = tuple(labels)
    return any(host.free_workers and may_run(wanted, host.labels) for host in hosts)


def unschedulable(labels: Iterable[str], hosts: Iterable[LiveHost]) -> bool:
    """Returns True if no live host has one of the labels."""
    wanted = tuple(labels)
    return not any(may_run(wanted, host.labels) for host in hosts)


RUN_SESSION = "escalation.tasks.run_session"
# A task that was taken this long ago, and whose session is still queued, is lost.
LOST_TASK_AGE = timedelta(seconds=45)


def waiting_sessions(*, include_taken: bool) -> set[int]:
    """Returns the queued sessions that have a task. `include_taken`: also a task that a worker has.

    A task that was taken long ago while its session is still queued was lost with its worker: a
    session is claimed within seconds, and a second delivery does no harm.
    """
    now = shared_now()
    rows = OrmQ.objects.filter(lock__lte=now)
    if include_taken:
        taken_lately = now + timedelta(seconds=Conf.RETRY) - LOST_TASK_AGE
        rows = OrmQ.objects.filter(Q(lock__lte=now) | Q(lock__gte=taken_lately))
    queued = Session.objects.filter(status=Session.Status.QUEUED)
    return set(queued.filter(task_number__in=rows.values("pk")).values_list("pk", flat=True))


def enqueue_session(session: Session) -> None:
    """Hands a session to the worker, or to the receiver of a surrounding `enqueue_with`."""
    _receiver.get()(session)


def add_task(session: Session) -> None:
    """Writes the task of the session, in the caller's transaction."""
    broker = get_broker(queue_of(labels_of(session)))
    async_task(
        RUN_SESSION,
        session.pk,
        broker=broker,
        task_name=f"session-{session.pk}-tier-{session.tier}",
        group=f"cycle-{session.cycle_id}",
    )
    session.task_number = broker.last_added
    Session.objects.filter(pk=session.pk).update(task_number=broker.last_added)


_receiver: ContextVar[Callable[[Session], None]] = ContextVar("receiver", default=add_task)


@contextmanager
def enqueue_with(receiver: Callable[[Session], None]) -> Iterator[None]:
    """Passes sessions that are enqueued inside the block to a receiver instead of the queue."""
    token = _receiver.set(receiver)
    try:
        yield
    finally:
        _receiver.reset(token)


def leave_to_caller(*, unless: bool = False) -> AbstractContextManager[None]:
    """Writes no tasks inside the block: the caller runs the new sessions in the foreground.

    `unless`: use the queue nevertheless, for `--queue`.
    """
    return nullcontext() if unless else enqueue_with(lambda session: None)


class SessionLimits(NamedTuple):
    sessions: int
    tier3_sessions: int
    """The limit for Tier 3 and above together."""

    @classmethod
    def configured(cls) -> SessionLimits:
        return cls(settings.CLAUDEOPS_MAX_SESSIONS, settings.CLAUDEOPS_MAX_TIER3_SESSIONS)

    def objection(self, tier: int, running: list[int]) -> str:
        """Returns why there is no slot for this tier beside the running sessions, or nothing."""
        if len(running) >= self.sessions:
            return f"{self.sessions} sessions are running (CLAUDEOPS_MAX_SESSIONS)"
        if tier >= FULL and len(full_tiers(tuple(running))) >= self.tier3_sessions:
            return (
                f"{self.tier3_sessions} Tier {FULL} sessions are running "
                "(CLAUDEOPS_MAX_TIER3_SESSIONS)"
            )
        return ""


class WaitingSession(NamedTuple):
    key: int
    tier: int


def whose_turn(
    line: Iterable[WaitingSession], running: list[int], limits: SessionLimits
) -> list[int]:
    """Returns the sessions that get a slot, oldest first. Waiting for Tier 3 blocks no other."""
    taken, turn = list(running), []
    for waiting in sorted(line):
        if not limits.objection(waiting.tier, taken):
            taken.append(waiting.tier)
            turn.append(waiting.key)
    return turn


def running_tiers(*, without: Session | None = None) -> list[int]:
    running = Session.objects.filter(status=Session.Status.RUNNING)
    if without is not None:
        running = running.exclude(pk=without.pk)
    return list(running.values_list("tier", flat=True))


def is_turn_of(session: Session) -> bool:
    """Returns False if the free slots belong to older waiting sessions."""
    older = _line(pk__lt=session.pk)
    if not older:
        return True
    line = [*older, WaitingSession(session.pk, session.tier)]
    turn = whose_turn(line, running_tiers(), SessionLimits.configured())
    # If no session gets a slot, the admission refuses with the reason.
    return session.pk in turn or not turn


def wait_for_slot(session: Session) -> None:
    Session.objects.filter(
        pk=session.pk, status=Session.Status.QUEUED, waiting_since__isnull=True
    ).update(waiting_since=timezone.now())


def start_waiting() -> int:
    """Gives free slots to the sessions that have waited longest. Returns the number of tasks.

    Called in the transaction that freed a slot. A slot is never given twice: the worker that takes
    the task counts the running sessions again (`admission`).
    """
    with installation_lock():
        line = _line()
        if not line or PauseSwitch.current().paused:
            return 0
        turn = set(whose_turn(line, running_tiers(), SessionLimits.configured()))
        turn -= waiting_sessions(include_taken=False)
        sessions = Session.objects.filter(pk__in=turn).select_related("cycle__watch")
        for session in sessions.order_by("pk"):
            # Not `enqueue_session`: these are for the worker, even if a foreground run ends.
            add_task(session)
    return len(turn)


def _line(**which: int) -> list[WaitingSession]:
    """Returns the sessions that wait for a slot, without those that the sandbox proof or the rate
    limit holds back."""
    waiting = Session.objects.filter(
        status=Session.Status.QUEUED, waiting_since__isnull=False, **which
    )
    if waiting.filter(tier__gt=LOWEST_TIER).exists() and SandboxProof.holding():
        waiting = waiting.filter(tier=LOWEST_TIER)
    if waiting.filter(cycle__drill="").exists() and RateLimit.holding():
        waiting = waiting.exclude(cycle__drill="")
    line = list(waiting.values_list("pk", "tier", "cycle__watch__hosts"))
    # A session whose hosts are away or busy keeps no slot from the others.
    hosts = live_hosts() if any(words for _key, _tier, words in line) else []
    return [
        WaitingSession(key, tier)
        for key, tier, words in line
        if not words or has_free_host(read_host_words(words), hosts)
    ]
