"""Figures of all rounds, by fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from tests.devtools.chaos.rounds import ChaosRound


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultFigures:
    fault: str
    rounds: int
    outcomes: dict[str, int]
    violations: int
    """Rounds with a violated invariant."""
    cut_off: int
    recovered: int
    settling_median_seconds: float
    settling_longest_seconds: float


def figures(rounds: Iterable[ChaosRound]) -> list[FaultFigures]:
    by_fault: dict[str, list[ChaosRound]] = {}
    for one in rounds:
        by_fault.setdefault(one.fault, []).append(one)
    return [_figures(fault, found) for fault, found in sorted(by_fault.items())]


@dataclass(frozen=True, kw_only=True, slots=True)
class Play:
    """All rounds and the files and processes left after them."""

    seed: int
    seconds: float
    rounds: list[ChaosRound]
    left_behind: list[str]
    left_out: str = ""
    """The reason why a fault could not be played."""

    @property
    def violated(self) -> int:
        return sum(1 for one in self.rounds if one.violations)


def as_json(played: Play) -> dict[str, Any]:
    rounds = played.rounds
    return {
        "seed": played.seed,
        "seconds": round(played.seconds, 1),
        "violated": played.violated,
        "left_behind": played.left_behind,
        "left_out": played.left_out,
        "faults": [asdict(one) for one in figures(rounds)],
        "rounds": [asdict(one) for one in rounds],
    }


def _figures(fault: str, rounds: list[ChaosRound]) -> FaultFigures:
    settling = [one.settling_seconds for one in rounds]
    return FaultFigures(
        fault=fault,
        rounds=len(rounds),
        outcomes=dict(Counter(one.outcome for one in rounds)),
        violations=sum(1 for one in rounds if one.violations),
        cut_off=sum(one.cut_off for one in rounds),
        recovered=sum(one.recovered for one in rounds),
        settling_median_seconds=round(median(settling), 1),
        settling_longest_seconds=max(settling),
    )
