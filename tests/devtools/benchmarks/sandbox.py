"""Measures the cost of the sandbox: a Bash call, a program, a decision, the first byte.

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

from escalation.agent.process import Traces
from escalation.command_policy.decision import ExecRequest, decide, read_one_command
from escalation.drills.drill import DRILL_KEY
from escalation.drills.scenario import load_scenario
from escalation.drills.scripted_api import ScriptedApi
from escalation.sandbox.proof.corpus import SHIPPED
from escalation.sandbox.setup import RunSandbox, SandboxRequest, in_sandbox, policy_of
from escalation.tiers import get_tier
from sessions_app.credentials import API_KEY
from sessions_app.tiers import LOWEST_TIER
from tests.devtools.benchmarks import Tell, silent

SCENARIO = "all-healthy"
SHELL_TEXT = "eval 'cat /etc/hostname' < /dev/null"
"""A program that needs no grant."""
MEDIATED_TEXT = "eval 'df /' < /dev/null"
"""A program that the command policy judges, and that runs in a sandbox of its own."""
REQUEST = {
    "model": "haiku",
    "max_tokens": 100,
    "stream": True,
    "messages": [{"role": "user", "content": "hello"}],
}


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxCost:
    inside_ms: list[float]
    outside_ms: list[float]
    mediated_ms: list[float]
    """A Bash call with one program that is judged."""
    decision_ms: list[float]
    api_proxy_ms: list[float]
    direct_ms: list[float]

    @property
    def call_more_ms(self) -> float:
        """The median of what a Bash call takes longer inside."""
        pairs = zip(self.inside_ms, self.outside_ms, strict=True)
        return statistics.median(inside - outside for inside, outside in pairs)

    @property
    def program_more_ms(self) -> float:
        """The median of what a judged program adds to a Bash call."""
        pairs = zip(self.mediated_ms, self.inside_ms, strict=True)
        return statistics.median(mediated - inside for mediated, inside in pairs)

    @property
    def decision_p99_ms(self) -> float:
        return statistics.quantiles(self.decision_ms, n=100)[-1]

    @property
    def first_byte_ms(self) -> float:
        """The delay of the first byte by the API proxy."""
        return statistics.median(self.api_proxy_ms) - statistics.median(self.direct_ms)


def measure(rounds: int, tell: Tell = silent) -> SandboxCost:
    scenario = load_scenario(SCENARIO)
    with ScriptedApi(scenario).serving() as api, _sandbox(api, scenario.name) as (wanted, sandbox):
        upstream = wanted.login["ANTHROPIC_BASE_URL"]
        inside, outside, mediated, through, direct = [], [], [], [], []
        for number in range(1, rounds + 1):
            tell(f"Measuring the sandbox: round {number} of {rounds}")
            inside.append(_timed(lambda: _inside(sandbox)))
            outside.append(_timed(lambda: _outside(sandbox)))
            mediated.append(_timed(lambda: _inside(sandbox, MEDIATED_TEXT)))
            through.append(_timed(lambda: _first_byte(sandbox.environment)))
            direct.append(_timed(lambda: _first_byte(wanted.login, upstream)))
        return SandboxCost(
            inside_ms=inside,
            outside_ms=outside,
            mediated_ms=mediated,
            decision_ms=_decisions(wanted),
            api_proxy_ms=through,
            direct_ms=direct,
        )


@contextmanager
def _sandbox(api: ScriptedApi, scenario: str) -> Iterator[tuple[SandboxRequest, RunSandbox]]:
    state = Path(settings.CLAUDEOPS_STATE_DIR) / "bench"
    places = [state / name for name in ("system", "claude", "run")]
    for paths in places:
        paths.mkdir(parents=True, exist_ok=True)
    workdir, config_directory, run_directory = places
    wanted = SandboxRequest(
        tier=get_tier(LOWEST_TIER),
        workdir=workdir,
        config_directory=config_directory,
        run_directory=run_directory,
        run_environment=os.environ,
        login={
            "ANTHROPIC_BASE_URL": api.base_url(scenario, LOWEST_TIER, "bench"),
            API_KEY: DRILL_KEY,
        },
        traces=Traces(mark="bench-sandbox"),
    )
    with in_sandbox(
        wanted, on_decision=lambda record: None, on_end=lambda record, end: None
    ) as sandbox:
        yield wanted, sandbox


def _inside(sandbox: RunSandbox, text: str = SHELL_TEXT) -> None:
    """Run a command as the CLI does: client, command policy, sandbox."""
    paths = sandbox.paths
    subprocess.run(
        [str(paths.client), text],
        cwd=paths.workdir,
        env={"PATH": os.defpath, "TMPDIR": str(paths.temp_directory)},
        stdout=subprocess.DEVNULL,
        check=True,
    )


def _outside(sandbox: RunSandbox) -> None:
    subprocess.run(
        ["/bin/bash", "-c", SHELL_TEXT],
        cwd=sandbox.paths.workdir,
        stdout=subprocess.DEVNULL,
        check=True,
    )


def _first_byte(environment: object, base_url: str = "") -> None:
    assert isinstance(environment, dict)
    url = urlsplit(base_url or environment["ANTHROPIC_BASE_URL"])
    connection = HTTPConnection(str(url.hostname), url.port)
    headers = {
        "content-type": "application/json",
        "x-api-key": environment[API_KEY],
    }
    connection.request("POST", f"{url.path}/v1/messages", json.dumps(REQUEST), headers)
    connection.getresponse().read(1)
    connection.close()


def _decisions(wanted: SandboxRequest) -> list[float]:
    """Time the decision of Tier 1 on every command of the corpus."""
    policy = policy_of(wanted)
    rows = [json.loads(line) for line in SHIPPED.read_text().splitlines() if line.strip()]
    vectors = [argv for row in rows if (argv := read_one_command(row["command"]))]
    requests = [ExecRequest(argv=argv, cwd=str(wanted.workdir)) for argv in vectors]
    for request in requests:
        decide(policy, request)
    return [_timed(lambda request=request: decide(policy, request)) for request in requests]


def _timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1000
