"""Places: how many sessions may run at once, and whose turn it is when one is free.

A session that finds no place waits, marked by `waiting_since`, without a task in the queue.
Whatever frees a place calls `start_waiting`, in its own transaction: the oldest waiting sessions
that fit get a task. Recovery calls it too, for what a dead process could not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from django.conf import settings
from django.utils import timezone

from escalation.queue import enqueue, waiting_sessions
from escalation.queue.hosts import has_free_host, live_hosts
from escalation.queue.one_at_a_time import one_at_a_time
from sessions_app.models import AccountClock, PauseSwitch, Session, WallsProof
from sessions_app.models.host_words import read_host_words
from sessions_app.models.policy import HIGHEST_TIER, LOWEST_TIER


class Limits(NamedTuple):
    sessions: int
    tier3_sessions: int

    @classmethod
    def configured(cls) -> Limits:
        return cls(settings.CLAUDEOPS_MAX_SESSIONS, settings.CLAUDEOPS_MAX_TIER3_SESSIONS)

    def objection(self, tier: int, running: list[int]) -> str:
        """Why a session of this tier finds no place beside the running ones, or nothing."""
        if len(running) >= self.sessions:
            return f"{self.sessions} sessions are running (CLAUDEOPS_MAX_SESSIONS)"
        if tier == HIGHEST_TIER and running.count(HIGHEST_TIER) >= self.tier3_sessions:
            return (
                f"{self.tier3_sessions} Tier {HIGHEST_TIER} sessions are running "
                "(CLAUDEOPS_MAX_TIER3_SESSIONS)"
            )
        return ""


class Standing(NamedTuple):
    key: int
    tier: int


def whose_turn(line: Iterable[Standing], running: list[int], limits: Limits) -> list[int]:
    """Oldest first; one that must wait for a Tier 3 place does not hold up the others."""
    taken, turn = list(running), []
    for standing in sorted(line):
        if not limits.objection(standing.tier, taken):
            taken.append(standing.tier)
            turn.append(standing.key)
    return turn


def running_tiers(*, without: Session | None = None) -> list[int]:
    running = Session.objects.filter(status=Session.Status.RUNNING)
    if without is not None:
        running = running.exclude(pk=without.pk)
    return list(running.values_list("tier", flat=True))


def is_turn_of(session: Session) -> bool:
    """False: the free places belong to older sessions that wait for one."""
    older = _line(pk__lt=session.pk)
    if not older:
        return True
    line = [*older, Standing(session.pk, session.tier)]
    turn = whose_turn(line, running_tiers(), Limits.configured())
    # Where nobody finds a place, the admission refuses, and says why.
    return session.pk in turn or not turn


def wait_for_place(session: Session) -> None:
    Session.objects.filter(
        pk=session.pk, status=Session.Status.QUEUED, waiting_since__isnull=True
    ).update(waiting_since=timezone.now())


def start_waiting() -> int:
    """Give the free places to those who have waited longest: how many got a task.

    Called inside the transaction that freed a place. It is never given twice: a task only asks for
    a place, and whoever runs the task is counted again (`admission`).
    """
    with one_at_a_time():
        line = _line()
        if not line or PauseSwitch.current().paused:
            return 0
        turn = set(whose_turn(line, running_tiers(), Limits.configured()))
        turn -= waiting_sessions(include_taken=False)
        sessions = Session.objects.filter(pk__in=turn).select_related("cycle__watch")
        for session in sessions.order_by("pk"):
            enqueue(session)
    return len(turn)


def _line(**which: int) -> list[Standing]:
    """Those who wait for a place; who is held back by the walls or by the account's limit keeps
    none from the others."""
    waiting = Session.objects.filter(
        status=Session.Status.QUEUED, waiting_since__isnull=False, **which
    )
    if waiting.filter(tier__gt=LOWEST_TIER).exists() and WallsProof.holding():
        waiting = waiting.filter(tier=LOWEST_TIER)
    if waiting.filter(cycle__drill="").exists() and AccountClock.holding():
        waiting = waiting.exclude(cycle__drill="")
    return _with_a_host(waiting.values_list("pk", "tier", "cycle__watch__hosts"))


def _with_a_host(waiting: Iterable[tuple[int, int, str | None]]) -> list[Standing]:
    """Who is bound to hosts that are away or busy keeps no place from the others, either."""
    line = list(waiting)
    hosts = live_hosts() if any(words for _key, _tier, words in line) else []
    return [
        Standing(key, tier)
        for key, tier, words in line
        if not words or has_free_host(read_host_words(words), hosts)
    ]
