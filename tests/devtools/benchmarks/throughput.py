"""How many cycles a minute go through at saturation, against the same CLI runs by `xargs -P`.

Both sides start the same binary with the same flags and prompts against a scripted API, as many at
once. What the bare side does not have is all that Claude Ops is for: the queue, the record, walls,
the gate, the report, the decision.
"""

from __future__ import annotations

import statistics
import subprocess
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from escalation import queue
from escalation.rehearsal.benchmarks.overhead import worker, write_script
from escalation.rehearsal.drills.drill import start_drill
from escalation.rehearsal.drills.messages_api import ScriptedApi
from escalation.rehearsal.drills.scenario import Scenario, load_scenario
from escalation.tiers import LOWEST_TIER
from sessions_app.models import Cycle

SCENARIO = "all-healthy"
PATIENCE_SECONDS = 600
LOOK_SECONDS = 0.02


@dataclass(frozen=True, kw_only=True, slots=True)
class Throughput:
    cycles: int
    at_once: int
    queue_seconds: list[float]
    bare_seconds: list[float]

    @property
    def cycles_a_minute(self) -> float:
        return self.cycles * 60 / statistics.median(self.queue_seconds)

    @property
    def bare_a_minute(self) -> float:
        return self.cycles * 60 / statistics.median(self.bare_seconds)

    @property
    def ratio(self) -> float:
        """Median of the pairs' ratios: a pair ran back to back, so a slow moment hits both."""
        pairs = zip(self.bare_seconds, self.queue_seconds, strict=True)
        return statistics.median(bare / through for bare, through in pairs)


def measure(cycles: int, at_once: int, rounds: int) -> Throughput:
    scenario = load_scenario(SCENARIO)
    queue_seconds, bare_seconds = [], []
    with worker(), ScriptedApi(scenario).serving() as api:
        time_queue(1)  # the first round warms both sides up
        time_bare(1, 1, api, scenario)
        for _ in range(rounds):
            queue_seconds.append(time_queue(cycles))
            bare_seconds.append(time_bare(cycles, at_once, api, scenario))
    return Throughput(
        cycles=cycles, at_once=at_once, queue_seconds=queue_seconds, bare_seconds=bare_seconds
    )


def time_queue(cycles: int) -> float:
    """From the first cycle that is queued to the last that has ended."""
    began = time.perf_counter()
    numbers = [start_drill(SCENARIO, enqueue=queue.enqueue).pk for _ in range(cycles)]
    active = Cycle.objects.filter(pk__in=numbers, state__in=Cycle.ACTIVE_STATES)
    while time.perf_counter() - began < PATIENCE_SECONDS:
        if not active.exists():
            return time.perf_counter() - began
        time.sleep(LOOK_SECONDS)
    raise TimeoutError(f"{active.count()} cycles did not end: is the worker alive?")


def time_bare(cycles: int, at_once: int, api: ScriptedApi, scenario: Scenario) -> float:
    place = Path(settings.CLAUDEOPS_STATE_DIR) / "bench"
    began = time.perf_counter()
    scripts = [
        write_script(place / uuid.uuid4().hex, api, scenario, highest=LOWEST_TIER)
        for _ in range(cycles)
    ]
    subprocess.run(
        ["xargs", "-P", str(at_once), "-n", "1", "sh"],
        input="\n".join(map(str, scripts)),
        text=True,
        check=True,
    )
    return time.perf_counter() - began
