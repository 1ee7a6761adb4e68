"""What the walls cost: a Bash call inside and outside, a decision, and the gateway's first byte.

Each pair is measured back to back in the same process, so that a slow moment of the machine hits
both sides.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings

from escalation.agent import Traces
from escalation.gate.decision import decide
from escalation.rehearsal.drills.drill import DRILL_KEY
from escalation.rehearsal.drills.messages_api import ScriptedApi
from escalation.rehearsal.drills.scenario import load_scenario
from escalation.rehearsal.walls.corpus import SHIPPED
from escalation.run.walls import Walls, WallsWanted, behind_walls, policy_of
from escalation.tiers import LOWEST_TIER, get_tier

SCENARIO = "all-healthy"
COMMAND = "ls"
SHELL_TEXT = f"eval '{COMMAND}' < /dev/null"
REQUEST = {
    "model": "haiku",
    "max_tokens": 100,
    "stream": True,
    "messages": [{"role": "user", "content": "hello"}],
}


@dataclass(frozen=True, kw_only=True, slots=True)
class WallsCost:
    inside_ms: list[float]
    outside_ms: list[float]
    decision_ms: list[float]
    gateway_ms: list[float]
    direct_ms: list[float]

    @property
    def call_ms(self) -> float:
        """What a Bash call costs more inside."""
        return statistics.median(self.inside_ms) - statistics.median(self.outside_ms)

    @property
    def decision_p99_ms(self) -> float:
        return statistics.quantiles(self.decision_ms, n=100)[-1]

    @property
    def first_byte_ms(self) -> float:
        """What the gateway adds to the first byte."""
        return statistics.median(self.gateway_ms) - statistics.median(self.direct_ms)


def measure(rounds: int) -> WallsCost:
    scenario = load_scenario(SCENARIO)
    with ScriptedApi(scenario).serving() as api, _walls(api, scenario.name) as (wanted, walls):
        upstream = wanted.login["ANTHROPIC_BASE_URL"]
        inside, outside, through, direct = [], [], [], []
        for _ in range(rounds):
            inside.append(_timed(lambda: _inside(walls)))
            outside.append(_timed(lambda: _outside(walls)))
            through.append(_timed(lambda: _first_byte(walls.environment)))
            direct.append(_timed(lambda: _first_byte(wanted.login, upstream)))
        return WallsCost(
            inside_ms=inside,
            outside_ms=outside,
            decision_ms=_decisions(wanted),
            gateway_ms=through,
            direct_ms=direct,
        )


@contextmanager
def _walls(api: ScriptedApi, scenario: str) -> Iterator[tuple[WallsWanted, Walls]]:
    state = Path(settings.CLAUDEOPS_STATE_DIR) / "bench"
    places = [state / name for name in ("system", "claude", "run")]
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
    workdir, config_directory, run_directory = places
    wanted = WallsWanted(
        tier=get_tier(LOWEST_TIER),
        workdir=workdir,
        config_directory=config_directory,
        run_directory=run_directory,
        surroundings=os.environ,
        login={
            "ANTHROPIC_BASE_URL": api.base_url(scenario, LOWEST_TIER, "bench"),
            "ANTHROPIC_API_KEY": DRILL_KEY,
        },
        traces=Traces(mark="bench-walls"),
    )
    with behind_walls(
        wanted, on_decision=lambda record: None, on_end=lambda record, end: None
    ) as walls:
        yield wanted, walls


def _inside(walls: Walls) -> None:
    """As the CLI does it: through the client, the gate and a room."""
    place = walls.place
    subprocess.run(
        [str(place.client), SHELL_TEXT],
        cwd=place.workdir,
        env={"PATH": os.defpath, "TMPDIR": str(place.temp_directory)},
        stdout=subprocess.DEVNULL,
        check=True,
    )


def _outside(walls: Walls) -> None:
    subprocess.run(
        ["/bin/bash", "-c", SHELL_TEXT],
        cwd=walls.place.workdir,
        stdout=subprocess.DEVNULL,
        check=True,
    )


def _first_byte(environment: object, base_url: str = "") -> None:
    assert isinstance(environment, dict)
    url = urlsplit(base_url or environment["ANTHROPIC_BASE_URL"])
    connection = HTTPConnection(str(url.hostname), url.port)
    headers = {
        "content-type": "application/json",
        "x-api-key": environment["ANTHROPIC_API_KEY"],
    }
    connection.request("POST", f"{url.path}/v1/messages", json.dumps(REQUEST), headers)
    connection.getresponse().read(1)
    connection.close()


def _decisions(wanted: WallsWanted) -> list[float]:
    """Every command of the corpus, as Tier 1 would be answered."""
    policy = policy_of(wanted)
    rows = [json.loads(line) for line in SHIPPED.read_text().splitlines() if line.strip()]
    for row in rows:
        decide(policy, row["command"])
    return [_timed(lambda row=row: decide(policy, row["command"])) for row in rows]  # type: ignore[misc]


def _timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1000
