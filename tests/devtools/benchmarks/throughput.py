"""Measures cycles per minute at saturation, against the same CLI runs by `xargs -P`.

Both sides start the same binary with the same flags and prompts against a scripted API, as many at
once. The bare side has no queue, record, sandbox, command policy, report or decision.
"""

from __future__ import annotations

import statistics
import subprocess
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from escalation.drills.drill import start_drill
from escalation.drills.scenario import Scenario, load_scenario
from escalation.drills.scripted_api import ScriptedApi
from sessions_app.models import Cycle
from sessions_app.tiers import LOWEST_TIER
from tests.devtools.benchmarks import Tell, silent
from tests.devtools.benchmarks.overhead import worker, write_script

SCENARIO = "all-healthy"
TIMEOUT_SECONDS = 600
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
        """The median ratio of pairs that ran back to back."""
        pairs = zip(self.bare_seconds, self.queue_seconds, strict=True)
        return statistics.median(bare / through for bare, through in pairs)


def measure(cycles: int, at_once: int, rounds: int, tell: Tell = silent) -> Throughput:
    scenario = load_scenario(SCENARIO)
    queue_seconds, bare_seconds = [], []
    with worker(), ScriptedApi(scenario).serving() as api:
        time_queue(1)  # the first round warms both sides up
        time_bare(1, 1, api, scenario)
        for number in range(1, rounds + 1):
            tell(f"Measuring throughput: round {number} of {rounds}")
            queue_seconds.append(time_queue(cycles))
            bare_seconds.append(time_bare(cycles, at_once, api, scenario))
    return Throughput(
        cycles=cycles, at_once=at_once, queue_seconds=queue_seconds, bare_seconds=bare_seconds
    )


def time_queue(cycles: int) -> float:
    """Return the seconds from queueing the first cycle to the end of the last."""
    began = time.perf_counter()
    numbers = [start_drill(SCENARIO).pk for _ in range(cycles)]
    active = Cycle.objects.filter(pk__in=numbers, state__in=Cycle.ACTIVE_STATES)
    while time.perf_counter() - began < TIMEOUT_SECONDS:
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
