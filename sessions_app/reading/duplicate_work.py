"""The duplicate-work meter: how much of a run repeats what an earlier run has already done.

A tool call is repeated when a run before it in the chain (its parent, that one's parent, and so
on) has made the same call: same tool, same normalised input. A call that was denied did no work,
so making it later, with the right to, repeats nothing. A check that is made again after a repair
does count: the meter tells what was done twice, not whether that was wise.

What it cost is an **estimate**. The CLI states the cost of a run, not of a call, so the run's cost
is spread evenly over the model's answers (by message id), and those answers whose calls are all
repeated ones count as repeated work. Answers without a call, and the one with the report, never do.

Where the events of a run or of one before it are no longer kept, there is nothing to compare: the
run is "not measured", which is something else than 0 of 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import groupby
from typing import Any

from django.db.models import Q

from sessions_app.models import Session, SessionEvent
from sessions_app.reading.tool_calls import answers, denied_calls, tool_calls

# Outputs of tools are by far the longest events, and the meter has no use for them.
MEASURED_EVENTS = Q(kind="assistant") | Q(kind__startswith="result")
EVENTS_AT_ONCE = 500

Key = tuple[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What a run did, as far as it can be compared."""

    calls: tuple[Key, ...] = ()
    denied: frozenset[Key] = frozenset()
    answers: tuple[tuple[Key, ...], ...] = ()
    """The calls of each answer; those of the answer with the report are left out."""

    @property
    def done(self) -> frozenset[Key]:
        return frozenset(self.calls) - self.denied


@dataclass(frozen=True, kw_only=True, slots=True)
class RepeatedWork:
    calls: int
    repeated: int
    cost_usd: Decimal | None
    """An estimate; None when the run's cost or its answers are not known."""
    is_measured: bool = True

    @property
    def share(self) -> Decimal | None:
        return Decimal(self.repeated) / self.calls if self.calls and self.is_measured else None


NOT_MEASURED = RepeatedWork(calls=0, repeated=0, cost_usd=None, is_measured=False)


class RememberedWork:
    """What runs that have ended did: it changes no more, and to read their events takes long."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[tuple[int, datetime], Work | None] = {}

    def load(self, sessions: Sequence[Session]) -> dict[int, Work]:
        """At most one query, for those that were not asked for before."""
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
    """The meter of each session, by its number. All their ancestors must be among them: whole
    chains, or several. One query, however many."""
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
    """The model said something, so there must have been events."""
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
    """What one run's events tell about its work."""
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
