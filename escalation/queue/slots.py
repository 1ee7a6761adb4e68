"""Slots: how many sessions may run at once, and which waiting session starts next.

A session without a slot waits, marked by `waiting_since`, without a task in the queue. Code that
frees a slot calls `start_waiting` in its own transaction: the oldest waiting sessions that fit get
a task. Recovery calls it too, for processes that died before they could.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from django.conf import settings
from django.utils import timezone

from escalation.queue import add_task, waiting_sessions
from escalation.queue.hosts import has_free_host, live_hosts
from escalation.queue.lock import installation_lock
from sessions_app.models import PauseSwitch, RateLimit, SandboxProof, Session
from sessions_app.models.watch import read_host_words
from sessions_app.tiers import FULL, LOWEST_TIER, full_tiers


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
