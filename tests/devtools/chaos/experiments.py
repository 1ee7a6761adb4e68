"""Plays experiments: start a drill, cause a fault at a random time, wait for the end, check.

Several experiments run at the same time in one installation, so that a fault affects them all.
Their evidence is separate, because every drill has its own directory, configuration and rows.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from django.db import connection

from escalation.drills.drill import start_drill
from escalation.run.recorder import persistently
from tests.devtools.chaos.costs import Prices
from tests.devtools.chaos.evidence import DATABASE, DrillEvidence, DrillTraces, ask, gather
from tests.devtools.chaos.faults import EVERY_FAULT, KILL_A_HOST, Scene
from tests.devtools.chaos.installation import Installation
from tests.devtools.chaos.invariants import violations

SCENARIO = "chaos"
EARLY = 0.3
SETTLING_SECONDS = 240.0
STARTING_SECONDS = 60.0
# Files that disappear within this time count as removed.
SECOND_LOOK_SECONDS = 2.0
# A killed host cleans up when it is back.
HOST_BACK_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultPlan:
    """The random choices of an experiment, repeatable by the seed."""

    number: int
    fault: str
    moment: float
    """The time of the fault, as a share of the time of a chain without a fault."""
    seed: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    number: int
    fault: str
    after_seconds: float
    also: list[str]
    """Faults of other experiments during this one."""
    outcome: str
    statuses: list[str]
    cut_off: int
    """Sessions that were ended as interrupted."""
    recovered: int
    """Those after which the chain continued."""
    settling_seconds: float
    """From the fault to the end of the cycle."""
    violations: list[str]


@dataclass(slots=True)
class FaultLog:
    """The times of all faults, for experiments that another fault affected."""

    entries: list[tuple[float, int, str]] = field(default_factory=list)

    def note(self, number: int, fault: str) -> None:
        self.entries.append((time.monotonic(), number, fault))

    def others(self, number: int, since: float) -> list[str]:
        return [
            fault
            for when, other, fault in list(self.entries)
            if when >= since and other != number and fault != "nothing"
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChaosSetup:
    installation: Installation
    prices: Prices
    drills: Path
    keep: Path | None
    """The directory for the evidence of failed experiments."""
    fault_log: FaultLog = field(default_factory=FaultLog)
    enough: threading.Event = field(default_factory=threading.Event)


def warm_up(setup: ChaosSetup, *, at_once: int) -> list[Experiment]:
    """Play experiments without a fault, to measure the time of a chain."""
    quiet = FaultPlan(number=0, fault="nothing", moment=0.0, seed="")
    return list(play(setup, [quiet] * at_once, at_once=at_once, chain_seconds=0.0))


def plans(experiments: int, seed: int, faults: list[str]) -> list[FaultPlan]:
    """Plan experiments; every fault is used once before one is repeated."""
    chance = random.Random(seed)  # noqa: S311 (a repeatable choice of faults, not a secret)
    deck: list[str] = []
    made = []
    for number in range(1, experiments + 1):
        deck = deck or chance.sample(faults, len(faults))
        made.append(
            FaultPlan(
                number=number,
                fault=deck.pop(),
                moment=chance.uniform(0.0, 1.0),
                seed=f"{seed}-{number}",
            )
        )
    return made


def play(
    setup: ChaosSetup, planned: list[FaultPlan], *, at_once: int, chain_seconds: float
) -> Iterator[Experiment]:
    """Play experiments and yield them in the order in which they end."""
    with ThreadPoolExecutor(at_once) as pool:
        futures = [
            pool.submit(_play_one, setup, plan, round(_share(plan) * chain_seconds, 2))
            for plan in planned
        ]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            setup.enough.set()
            pool.shutdown(cancel_futures=True)
            raise


def _share(plan: FaultPlan) -> float:
    """Return the time of the fault; a host is killed at once, while it works."""
    return plan.moment * (EARLY if plan.fault == KILL_A_HOST else 1.0)


def _play_one(setup: ChaosSetup, plan: FaultPlan, after_seconds: float) -> Experiment:
    chance = random.Random(plan.seed)  # noqa: S311 (as above)
    began = time.monotonic()
    try:
        cycle = _started()
    finally:
        connection.close()
    place = DrillTraces(
        state=setup.installation.state,
        drills=setup.drills,
        cycle=cycle,
        other_states=setup.installation.other_states,
        address=setup.installation.address,
    )
    setup.enough.wait(after_seconds)
    setup.fault_log.note(plan.number, plan.fault)
    struck = time.monotonic()
    seen = EVERY_FAULT[plan.fault](Scene(setup.installation, cycle, chance))
    _wait_for_end(place, setup.enough)
    settled = time.monotonic() - struck
    evidence, found = _judged(place, setup.prices)
    statuses = [run.row["status"] for run in evidence.runs]
    if found and setup.keep:
        _keep(place, setup.installation.log, setup.keep / f"experiment-{plan.number}")
    return Experiment(
        number=plan.number,
        fault=plan.fault,
        after_seconds=after_seconds,
        also=setup.fault_log.others(plan.number, began),
        outcome=evidence.cycle["outcome"] or evidence.cycle["state"],
        statuses=statuses,
        cut_off=statuses.count("interrupted"),
        recovered=statuses[:-1].count("interrupted"),
        settling_seconds=round(settled, 1),
        violations=[*seen, *found],
    )


def _started() -> int:
    """Retry while the database is locked or full."""
    begin = partial(start_drill, SCENARIO)
    return int(persistently(begin, within=STARTING_SECONDS).pk)


def _wait_for_end(place: DrillTraces, enough: threading.Event) -> None:
    """Wait until the cycle has ended by itself."""
    give_up = time.monotonic() + SETTLING_SECONDS
    while time.monotonic() < give_up and not enough.wait(0.25):
        query = "SELECT state FROM sessions_app_cycle WHERE id = ?"
        (cycle,) = ask(place.record, query, place.cycle)
        if cycle["state"] == "finished":
            return


def _judged(place: DrillTraces, prices: Prices) -> tuple[DrillEvidence, list[str]]:
    give_up = time.monotonic() + (HOST_BACK_SECONDS if place.other_states else 0.0)
    evidence = gather(place)
    found = violations(evidence, prices)
    while found:
        last_look = time.monotonic() > give_up
        time.sleep(SECOND_LOOK_SECONDS)
        evidence = gather(place)
        found = violations(evidence, prices)
        if last_look:
            break
    return evidence, found


def _keep(place: DrillTraces, log: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy(log, target)
    if not place.address:
        _keep_record(place, target)
    for name, directory in (("claude", place.cli), ("drills", place.drill)):
        if directory.exists():
            shutil.copytree(directory, target / name / directory.name, dirs_exist_ok=True)


def _keep_record(place: DrillTraces, target: Path) -> None:
    with (
        closing(sqlite3.connect(place.state / DATABASE, timeout=30)) as record,
        closing(sqlite3.connect(target / DATABASE)) as copy,
    ):
        record.backup(copy)
