"""Comparison of resume and handoff by cost and repeated work.

Only escalations and retries of a tier are compared. Questions, report requests and continuations
after a turn limit resume too, but are cheap for other reasons.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from itertools import groupby
from typing import Any

from django.db.models import Q
from django.utils import timezone

from escalation.agent.stream import answers, denied_calls, tool_calls
from sessions_app.models import Session, SessionEvent
from sessions_app.models.session import SessionQuerySet, StreamKind, purposes_where

# Duplicate-work meter: the part of a session that repeats what an ancestor in the chain has done.
# A tool call is repeated if an ancestor made the same call: same tool, same normalised input. A
# denied call did no work, so making it later repeats nothing; a check after a repair counts.
# Its cost is an estimate: the CLI reports a cost per session, so it is spread evenly over the
# model's answers (by message id). Answers whose calls are all repeated count; answers without a
# call, and the one with the report, do not. If events of the session or of an ancestor are no
# longer kept, the session is "not measured", which differs from 0 of 0.

# Tool outputs are by far the longest events and are not needed.
MEASURED_EVENTS = Q(kind=StreamKind.ASSISTANT) | Q(kind__startswith=StreamKind.RESULT)
EVENTS_AT_ONCE = 500

Key = tuple[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Tool calls of a session, for comparison."""

    calls: tuple[Key, ...] = ()
    denied: frozenset[Key] = frozenset()
    answers: tuple[tuple[Key, ...], ...] = ()
    """Calls of each answer, without the answer that holds the report."""

    @property
    def done(self) -> frozenset[Key]:
        return frozenset(self.calls) - self.denied


@dataclass(frozen=True, kw_only=True, slots=True)
class RepeatedWork:
    calls: int
    repeated: int
    cost_usd: Decimal | None
    """Estimated cost; None if the session's cost or answers are unknown."""
    is_measured: bool = True

    @property
    def share(self) -> Decimal | None:
        return Decimal(self.repeated) / self.calls if self.calls and self.is_measured else None


NOT_MEASURED = RepeatedWork(calls=0, repeated=0, cost_usd=None, is_measured=False)


class RememberedWork:
    """Cache of the work of ended sessions, whose events no longer change."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[tuple[int, datetime], Work | None] = {}

    def load(self, sessions: Sequence[Session]) -> dict[int, Work]:
        """Makes at most one query, for sessions that are not cached."""
        keys = {s.pk: (s.pk, s.finished_at) for s in sessions if s.finished_at is not None}
        unknown = [s.pk for s in sessions if keys.get(s.pk) not in self._kept]
        found = load_work(unknown) if unknown else {}
        for number in unknown:
            if number in keys:
                self._kept[keys[number]] = found.get(number)
        found |= {
            number: work for number, key in keys.items() if (work := self._kept[key]) is not None
        }
        while len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]
        return found


def measure(
    sessions: Sequence[Session], remembered: RememberedWork | None = None
) -> dict[int, RepeatedWork]:
    """Returns the meter of each session by key.

    `sessions` must contain all ancestors. Makes one query.
    """
    numbers = (session.pk for session in sessions)
    work = remembered.load(sessions) if remembered else load_work(numbers)
    by_id = {session.pk: session for session in sessions}
    return {
        session.pk: repeated_work(session, list(_ancestors(session, by_id)), work)
        for session in sessions
    }


def repeated_work(
    session: Session, ancestors: Iterable[Session], work: Mapping[int, Work]
) -> RepeatedWork:
    earlier: set[Key] = set()
    for run in (session, *ancestors):
        if run.pk not in work and has_answered(run):
            return NOT_MEASURED
        if run is not session and run.pk in work:
            earlier |= work[run.pk].done
    own = work.get(session.pk, Work())
    return RepeatedWork(
        calls=len(own.calls),
        repeated=sum(call in earlier for call in own.calls),
        cost_usd=_cost_of_repeats(session.cost_usd, own, earlier),
    )


def has_answered(session: Session) -> bool:
    """Returns whether the model answered, so that events must exist."""
    return bool(session.messages or session.turns or session.output_tokens)


def load_work(numbers: Iterable[int]) -> dict[int, Work]:
    rows = (
        SessionEvent.objects.filter(
            MEASURED_EVENTS, session__in=list(numbers), source=SessionEvent.Source.STREAM
        )
        .order_by("session__pk", "sequence")
        .values_list("session__pk", "payload")
    )
    grouped = groupby(rows.iterator(chunk_size=EVENTS_AT_ONCE), key=lambda row: row[0])
    return {number: work_in([payload for _, payload in group]) for number, group in grouped}


def work_in(events: Sequence[Any]) -> Work:
    """Extracts the tool calls from the events of one session."""
    calls = tool_calls(events)
    by_answer: dict[str, list[Key]] = defaultdict(list)
    for call in calls:
        by_answer[call.message_id].append(call.key)
    return Work(
        calls=tuple(call.key for call in calls),
        denied=frozenset(denied_calls(events)),
        answers=tuple(
            () if has_report else tuple(by_answer[message_id])
            for message_id, has_report in answers(events).items()
        ),
    )


def _cost_of_repeats(cost: Decimal | None, own: Work, earlier: set[Key]) -> Decimal | None:
    if not any(call in earlier for call in own.calls):
        return Decimal(0)
    if cost is None or not own.answers:
        return None
    repeats = sum(bool(calls) and earlier.issuperset(calls) for calls in own.answers)
    return cost * repeats / len(own.answers)


def _ancestors(session: Session, by_id: Mapping[int, Session]) -> Iterator[Session]:
    seen = {session.pk}
    while (parent := by_id.get(session.parent_session_id or 0)) and parent.pk not in seen:
        seen.add(parent.pk)
        yield parent
        session = parent


WAYS = (Session.ContinuedBy.RESUME, Session.ContinuedBy.HANDOFF)
NOT_COMPARED = purposes_where(lambda traits: not traits.is_compared)
OTHER_WAYS = [way for way in Session.ContinuedBy if way not in WAYS]
# Limits the comparison to the latest steps, since it reads every answer.
STEPS_MEASURED = 40
compared_work = RememberedWork(most=10 * STEPS_MEASURED)
NEEDED = ("cycle", "parent_session", "tier", "purpose", "continued_by", "handoff", "finished_at")
FIGURES = ("cost_usd", "context_tokens", "messages", "turns", "output_tokens")


@dataclass(frozen=True, kw_only=True, slots=True)
class ContinuedSession:
    """A session that continued the work of another one."""

    session: Session
    parent: Session | None
    work: RepeatedWork

    @property
    def context_carried(self) -> int:
        """Returns the tokens of the parent's conversation that the session started with."""
        resumed = self.session.continued_by == Session.ContinuedBy.RESUME
        return self.parent.context_tokens if self.parent and resumed else 0

    @property
    def handoff_characters(self) -> int:
        return len(json.dumps(self.session.handoff)) if self.session.handoff else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """All steps continued in one way; averages leave out unknown values."""

    label: str
    steps: tuple[ContinuedSession, ...]

    @property
    def context_carried(self) -> Decimal | None:
        return _average(step.context_carried for step in self.steps)

    @property
    def handoff_characters(self) -> Decimal | None:
        return _average(step.handoff_characters for step in self.steps if step.handoff_characters)

    @property
    def cost_usd(self) -> Decimal | None:
        return _average(step.session.cost_usd for step in self.steps)

    @property
    def without_cost(self) -> int:
        return sum(step.session.cost_usd is None for step in self.steps)

    @property
    def measured(self) -> tuple[ContinuedSession, ...]:
        return tuple(step for step in self.steps if step.work.is_measured)

    @property
    def calls(self) -> int:
        return sum(step.work.calls for step in self.measured)

    @property
    def repeated(self) -> int:
        return sum(step.work.repeated for step in self.measured)

    @property
    def repeated_share(self) -> Decimal | None:
        return Decimal(self.repeated) / self.calls if self.calls else None

    @property
    def repeated_cost_usd(self) -> Decimal | None:
        """Returns the estimated cost of repeated work, where known."""
        known = [step.work.cost_usd for step in self.measured if step.work.cost_usd is not None]
        return sum(known, Decimal(0)) if known else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    ways: tuple[Way, ...]
    is_cut: bool
    """True if more steps exist than were compared."""

    @property
    def has_steps(self) -> bool:
        return any(way.steps for way in self.ways)


def compare_ways(sessions: SessionQuerySet, since: date | None = None) -> Comparison:
    """Makes three queries: the steps, the other sessions of their chains, and their events.

    The newest steps are found along one index. A filter by time, purpose or way would make SQLite
    choose another one and sort, so the day is checked afterwards and the rest is excluded by value.
    """
    found = sessions.filter(parent_session__isnull=False).exclude(
        Q(purpose__in=NOT_COMPARED) | Q(continued_by__in=OTHER_WAYS)
    )
    newest = (
        found.filter(finished_at__isnull=False)
        .order_by("-id")
        .values_list("pk", "cycle_id", "started_at")[: STEPS_MEASURED + 1]
    )
    latest = [
        (pk, cycle) for pk, cycle, began in newest if since is None or _is_since(began, since)
    ]
    numbers = {pk for pk, _cycle in latest[:STEPS_MEASURED]}
    cycles = {cycle for _pk, cycle in latest[:STEPS_MEASURED]}
    relatives = list(Session.objects.filter(cycle__in=cycles).only(*NEEDED, *FIGURES))
    steps = [step for step in steps_of(relatives, compared_work) if step.session.pk in numbers]
    return Comparison(
        ways=tuple(
            Way(
                label=way.value,
                steps=tuple(step for step in steps if step.session.continued_by == way),
            )
            for way in WAYS
        ),
        is_cut=len(latest) > STEPS_MEASURED,
    )


def steps_of(
    sessions: Sequence[Session], remembered: RememberedWork | None = None
) -> list[ContinuedSession]:
    """Returns each session of whole chains with its parent and repeated work, with one query."""
    by_id = {session.pk: session for session in sessions}
    work = measure(sessions, remembered)
    return [
        ContinuedSession(
            session=session,
            parent=by_id.get(session.parent_session_id or 0),
            work=work[session.pk],
        )
        for session in sessions
    ]


def _is_since(began: datetime | None, day: date) -> bool:
    return began is not None and timezone.localdate(began) >= day


def _average(values: Iterable[Decimal | int | None]) -> Decimal | None:
    known = [Decimal(value) for value in values if value is not None]
    return sum(known, Decimal(0)) / len(known) if known else None
