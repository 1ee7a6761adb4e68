"""Strips: one mark for each round, the oldest first, as Uptime Kuma draws them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sessions_app.models import Cycle, ServiceState
from sessions_app.models.service_marks import KEPT, Mark, read_marks

NOT_NAMED = "not named"
LOOKS = {"healthy": "good", "fixed": "good", "degraded": "warn", "unknown": "warn", "down": "bad"}
OUTCOME_LOOKS = {
    Cycle.Outcome.HEALTHY: "good",
    Cycle.Outcome.FIXED: "good",
    Cycle.Outcome.NEEDS_PERSON: "warn",
    Cycle.Outcome.COULD_NOT_RUN: "bad",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class StripMark:
    cycle: int
    word: str
    look: str
    """good, warn, bad, or none: tone and height follow from it."""
    at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Strip:
    marks: tuple[StripMark, ...]

    @property
    def sentence(self) -> str:
        """For those who cannot see it."""
        counts = Counter(mark.word for mark in self.marks)
        told = ", ".join(f"{count} {word}" for word, count in counts.most_common())
        rounds = "round" if len(self.marks) == 1 else f"{len(self.marks)} rounds"
        return f"The last {rounds}: {told}." if told else "No round yet."


def strip_of_rounds(rounds: Iterable[Cycle]) -> Strip:
    """How each ended, or how far it is."""
    return Strip(
        marks=tuple(
            StripMark(
                cycle=cycle.pk,
                word=cycle.get_outcome_display() or cycle.get_state_display(),
                look=OUTCOME_LOOKS.get(Cycle.Outcome(cycle.outcome), "none")
                if cycle.outcome
                else "live",
                at=cycle.created_at,
            )
            for cycle in rounds
        )
    )


def strip_of_service(state: ServiceState) -> Strip:
    """The last rounds that named it."""
    return Strip(marks=tuple(_mark(mark) for mark in read_marks(state.marks)[-KEPT:]))


def strip_beside(state: ServiceState, rounds: Sequence[Cycle]) -> Strip:
    """One mark for each of these rounds, whether it named the service or not."""
    said = {mark.cycle: mark for mark in read_marks(state.marks)}
    return Strip(
        marks=tuple(
            _mark(said[cycle.pk])
            if cycle.pk in said
            else StripMark(cycle=cycle.pk, word=NOT_NAMED, look="none", at=cycle.created_at)
            for cycle in rounds
        )
    )


def _mark(mark: Mark) -> StripMark:
    return StripMark(
        cycle=mark.cycle,
        word=mark.status,
        look=LOOKS.get(mark.status, "none"),
        at=datetime.fromtimestamp(mark.at, UTC),
    )
