"""A round: start a drill, let something die at a random moment, wait for its end, look at it.

Several rounds run at the same time in one installation, so that a fault falls among them all; the
evidence of each stays apart, because every drill has its own directory, configuration and rows.
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
from pathlib import Path

from django.db import OperationalError, connection

from escalation import queue
from escalation.rehearsal.chaos.books import Prices
from escalation.rehearsal.chaos.evidence import DATABASE, Evidence, Place, ask, gather
from escalation.rehearsal.chaos.faults import EVERY_FAULT, KILL_A_HOST, Scene
from escalation.rehearsal.chaos.installation import Installation
from escalation.rehearsal.chaos.invariants import violations
from escalation.rehearsal.drills.drill import start_drill

SCENARIO = "chaos"
EARLY = 0.3
SETTLING_SECONDS = 240.0
STARTING_SECONDS = 60.0
# What goes away by itself within this time was not left behind.
SECOND_LOOK_SECONDS = 2.0
# A host that was killed clears away what it left when it is back.
HOST_BACK_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """All that chance decides about a round, so that a seed means the same faults again."""

    number: int
    fault: str
    moment: float
    """When, as a share of the time that a chain takes here without a fault."""
    seed: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    number: int
    fault: str
    after_seconds: float
    also: list[str]
    """Faults of other rounds that fell into this one."""
    outcome: str
    statuses: list[str]
    cut_off: int
    """Sessions that were ended as interrupted."""
    recovered: int
    """Those of them after which the chain went on."""
    settling_seconds: float
    """From the fault to the end of the cycle."""
    violations: list[str]


@dataclass(slots=True)
class Diary:
    """When which fault happened, for rounds that were struck by the fault of another one."""

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
class Playground:
    installation: Installation
    prices: Prices
    drills: Path
    keep: Path | None
    """Where the evidence of a violated round is kept."""
    diary: Diary = field(default_factory=Diary)
    enough: threading.Event = field(default_factory=threading.Event)


def warm_up(playground: Playground, *, at_once: int) -> list[Round]:
    """Rounds without a fault, as many at a time as later: they tell how long a chain takes here."""
    quiet = Plan(number=0, fault="nothing", moment=0.0, seed="")
    return list(play(playground, [quiet] * at_once, at_once=at_once, chain_seconds=0.0))


def plans(rounds: int, seed: int, faults: list[str]) -> list[Plan]:
    """Every fault comes up once before any comes up again."""
    chance = random.Random(seed)  # noqa: S311 (a repeatable choice of faults, not a secret)
    deck: list[str] = []
    made = []
    for number in range(1, rounds + 1):
        deck = deck or chance.sample(faults, len(faults))
        made.append(
            Plan(
                number=number,
                fault=deck.pop(),
                moment=chance.uniform(0.0, 1.0),
                seed=f"{seed}-{number}",
            )
        )
    return made


def play(
    playground: Playground, planned: list[Plan], *, at_once: int, chain_seconds: float
) -> Iterator[Round]:
    """Rounds in the order in which they end."""
    with ThreadPoolExecutor(at_once) as pool:
        futures = [
            pool.submit(_play_round, playground, plan, round(_share(plan) * chain_seconds, 2))
            for plan in planned
        ]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            playground.enough.set()
            pool.shutdown(cancel_futures=True)
            raise


def _share(plan: Plan) -> float:
    """A host must be at work when it is killed, whatever chance says of the moment."""
    return plan.moment * (EARLY if plan.fault == KILL_A_HOST else 1.0)


def _play_round(playground: Playground, plan: Plan, after_seconds: float) -> Round:
    chance = random.Random(plan.seed)  # noqa: S311 (as above)
    began = time.monotonic()
    try:
        cycle = _started()
    finally:
        connection.close()
    place = Place(
        state=playground.installation.state,
        drills=playground.drills,
        cycle=cycle,
        other_states=playground.installation.other_states,
        address=playground.installation.address,
    )
    playground.enough.wait(after_seconds)
    playground.diary.note(plan.number, plan.fault)
    struck = time.monotonic()
    seen = EVERY_FAULT[plan.fault](Scene(playground.installation, cycle, chance))
    _wait_for_end(place, playground.enough)
    settled = time.monotonic() - struck
    evidence, found = _judged(place, playground.prices)
    statuses = [run.row["status"] for run in evidence.runs]
    if found and playground.keep:
        _keep(place, playground.installation.log, playground.keep / f"round-{plan.number}")
    return Round(
        number=plan.number,
        fault=plan.fault,
        after_seconds=after_seconds,
        also=playground.diary.others(plan.number, began),
        outcome=evidence.cycle["outcome"] or evidence.cycle["state"],
        statuses=statuses,
        cut_off=statuses.count("interrupted"),
        recovered=statuses[:-1].count("interrupted"),
        settling_seconds=round(settled, 1),
        violations=[*seen, *found],
    )


def _started() -> int:
    """A database that is locked or full at this moment is asked again, as a person would."""
    give_up = time.monotonic() + STARTING_SECONDS
    while True:
        try:
            return int(start_drill(SCENARIO, enqueue=queue.enqueue).pk)
        except OperationalError:
            if time.monotonic() > give_up:
                raise
            time.sleep(1.0)


def _wait_for_end(place: Place, enough: threading.Event) -> None:
    """Only wait: the installation has to come to an end by itself."""
    give_up = time.monotonic() + SETTLING_SECONDS
    while time.monotonic() < give_up and not enough.wait(0.25):
        query = "SELECT state FROM sessions_app_cycle WHERE id = ?"
        (cycle,) = ask(place.record, query, place.cycle)
        if cycle["state"] == "finished":
            return


def _judged(place: Place, prices: Prices) -> tuple[Evidence, list[str]]:
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


def _keep(place: Place, log: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy(log, target)
    if not place.address:
        _keep_record(place, target)
    for name, directory in (("claude", place.cli), ("drills", place.drill)):
        if directory.exists():
            shutil.copytree(directory, target / name / directory.name, dirs_exist_ok=True)


def _keep_record(place: Place, target: Path) -> None:
    with (
        closing(sqlite3.connect(place.state / DATABASE, timeout=30)) as record,
        closing(sqlite3.connect(target / DATABASE)) as copy,
    ):
        record.backup(copy)
