"""A round: start a cycle, let something die at a random moment, let all settle, check."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

from django.db import OperationalError

from escalation import queue
from escalation.recovery.recover import recover
from escalation.rehearsal.chaos.faults import FAULTS, Installation
from escalation.rehearsal.chaos.invariants import violations
from escalation.rehearsal.drills.drill import start_drill
from sessions_app.models import Cycle

SCENARIO = "chaos"
SETTLING_SECONDS = 120.0
LATEST_FAULT_SECONDS = 6.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    number: int
    fault: str
    after_seconds: float
    outcome: str
    sessions: int
    violations: list[str]


def play(rounds: int, seed: int) -> Iterator[Round]:
    chance = random.Random(seed)  # noqa: S311 (a repeatable choice of faults, not a secret)
    installation = Installation.start()
    try:
        for number in range(1, rounds + 1):
            yield _play_round(number, chance, installation)
    finally:
        installation.worker.ask_to_stop()
        installation.worker.make_stop(time.monotonic() + 20)


def _play_round(number: int, chance: random.Random, installation: Installation) -> Round:
    name = chance.choice(list(FAULTS))
    after = chance.uniform(0.0, LATEST_FAULT_SECONDS)
    cycle = start_drill(SCENARIO, enqueue=queue.enqueue)
    time.sleep(after)
    FAULTS[name](installation, cycle, chance)
    installation.restart_what_died()
    _settle(cycle)
    return Round(
        number=number,
        fault=name,
        after_seconds=round(after, 2),
        outcome=cycle.outcome or cycle.state,
        sessions=cycle.sessions.count(),
        violations=violations(cycle),
    )


def _settle(cycle: Cycle) -> None:
    """The worker recovers at its start and every minute; by hand it need not be waited for."""
    give_up = time.monotonic() + SETTLING_SECONDS
    while time.monotonic() < give_up:
        try:
            recover(enqueue=queue.enqueue)
            cycle.refresh_from_db()
        except OperationalError:
            pass
        if not cycle.is_active:
            return
        time.sleep(0.5)
