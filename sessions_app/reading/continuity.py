"""Resume against handoff: what it is worth that a tier continues the conversation.

Only runs of a tier are compared: an escalation, or another try at one. Questions, requests for a
report and runs after a turn limit resume too, but they would look cheap for another reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

from django.db.models import Q
from django.utils import timezone

from sessions_app.models import Session
from sessions_app.models.querysets import SessionQuerySet
from sessions_app.reading.duplicate_work import RememberedWork, RepeatedWork, measure

COMPARED = (Session.Purpose.TIER, Session.Purpose.RETRY)
WAYS = (Session.ContinuedBy.RESUME, Session.ContinuedBy.HANDOFF)
NOT_COMPARED = [purpose for purpose in Session.Purpose if purpose not in COMPARED]
OTHER_WAYS = [way for way in Session.ContinuedBy if way not in WAYS]
# The meter reads every answer of every run compared: the latest steps tell enough.
STEPS_MEASURED = 40
compared_work = RememberedWork(most=10 * STEPS_MEASURED)
NEEDED = ("cycle", "parent_session", "tier", "purpose", "continued_by", "handoff", "finished_at")
FIGURES = ("cost_usd", "context_tokens", "messages", "turns", "output_tokens")


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One run that continued another one's work."""

    session: Session
    parent: Session | None
    work: RepeatedWork

    @property
    def context_carried(self) -> int:
        """Tokens of the parent's conversation that this run began with: all of it, or nothing."""
        resumed = self.session.continued_by == Session.ContinuedBy.RESUME
        return self.parent.context_tokens if self.parent and resumed else 0

    @property
    def handoff_characters(self) -> int:
        return len(json.dumps(self.session.handoff)) if self.session.handoff else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """All steps that were continued in one way. Averages leave out what is not known."""

    label: str
    steps: tuple[Step, ...]

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
    def measured(self) -> tuple[Step, ...]:
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
        """An estimate, of those steps where one can be made."""
        known = [step.work.cost_usd for step in self.measured if step.work.cost_usd is not None]
        return sum(known, Decimal(0)) if known else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    ways: tuple[Way, ...]
    is_cut: bool
    """There were more steps than are compared."""

    @property
    def has_steps(self) -> bool:
        return any(way.steps for way in self.ways)


def compare_ways(sessions: SessionQuerySet, since: date | None = None) -> Comparison:
    """Three queries: the steps, the other runs of their chains, and what those did.

    The newest steps are found along their index. Asking for a time, a purpose or a way by name
    would lead SQLite to another one, and to sort all that it finds there: so the day is looked
    at afterwards, and the rest is told by what it is not.
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


def steps_of(sessions: Sequence[Session], remembered: RememberedWork | None = None) -> list[Step]:
    """Each session of whole chains with what it came from and what it repeated. One query."""
    by_id = {session.pk: session for session in sessions}
    work = measure(sessions, remembered)
    return [
        Step(
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
