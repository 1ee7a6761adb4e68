"""Figures of all experiments, by fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from tests.devtools.chaos.experiments import Experiment


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultFigures:
    fault: str
    experiments: int
    outcomes: dict[str, int]
    violations: int
    """Experiments with a violated invariant."""
    cut_off: int
    recovered: int
    settling_median_seconds: float
    settling_longest_seconds: float


def figures(experiments: Iterable[Experiment]) -> list[FaultFigures]:
    by_fault: dict[str, list[Experiment]] = {}
    for one in experiments:
        by_fault.setdefault(one.fault, []).append(one)
    return [_figures(fault, found) for fault, found in sorted(by_fault.items())]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChaosResult:
    """All experiments and the files and processes left after them."""

    seed: int
    seconds: float
    experiments: list[Experiment]
    leftovers: list[str]
    left_out: str = ""
    """The reason why a fault could not be played."""
    deliveries: int = 0
    """Deliveries of alerts that were accepted meanwhile."""

    @property
    def violated(self) -> int:
        return sum(1 for one in self.experiments if one.violations)


def as_json(played: ChaosResult) -> dict[str, Any]:
    experiments = played.experiments
    return {
        "seed": played.seed,
        "seconds": round(played.seconds, 1),
        "violated": played.violated,
        "leftovers": played.leftovers,
        "left_out": played.left_out,
        "deliveries": played.deliveries,
        "faults": [asdict(one) for one in figures(experiments)],
        "experiments": [asdict(one) for one in experiments],
    }


def _figures(fault: str, experiments: list[Experiment]) -> FaultFigures:
    settling = [one.settling_seconds for one in experiments]
    return FaultFigures(
        fault=fault,
        experiments=len(experiments),
        outcomes=dict(Counter(one.outcome for one in experiments)),
        violations=sum(1 for one in experiments if one.violations),
        cut_off=sum(one.cut_off for one in experiments),
        recovered=sum(one.recovered for one in experiments),
        settling_median_seconds=round(median(settling), 1),
        settling_longest_seconds=max(settling),
    )
