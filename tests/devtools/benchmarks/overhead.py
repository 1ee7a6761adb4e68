"""Measures the overhead of a three-tier drill through the queue against the bare CLI runs.

Both sides start the same binary with the same flags and prompts against the same scripted API.
The bare side is a shell script that runs the three commands one after another; the difference is
the overhead of queueing, recording, deciding and the sandbox. The scripted API answers at once, or
after some time, as a real model does.
"""

from __future__ import annotations

import re
import shlex
import statistics
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from escalation.agent.binary import RunRequest, build_argv, cli_environment, find_binary
from escalation.drills.drill import DRILL_KEY, drill_path, start_drill
from escalation.drills.scenario import SCENARIO_DIRECTORY, Scenario, load_scenario
from escalation.drills.scripted_api import ScriptedApi
from escalation.report import REPORT_SCHEMA_JSON
from escalation.run.prompts import EarlierRun, PromptContext, operator_context_of, rendered
from escalation.tiers import get_tier
from escalation.worker.parent import start_worker
from sessions_app.credentials import API_KEY
from sessions_app.history.resume import Fresh, Resume
from sessions_app.models import Cycle
from sessions_app.tiers import FULL, LOWEST_TIER
from tests.devtools.benchmarks import Tell, silent

SCENARIO = "three-tiers"
TIMEOUT_SECONDS = 120
LOOK_SECONDS = 0.005


@dataclass(frozen=True, kw_only=True, slots=True)
class Overhead:
    queue_seconds: list[float]
    shell_seconds: list[float]

    @property
    def ratio(self) -> float:
        """The median ratio of pairs that ran back to back."""
        pairs = zip(self.queue_seconds, self.shell_seconds, strict=True)
        return statistics.median(through / bare for through, bare in pairs)


@contextmanager
def slow_answers(seconds: float) -> Iterator[Path]:
    """Yield a directory of scenarios whose answers take so long."""
    shipped = (SCENARIO_DIRECTORY / f"{SCENARIO}.toml").read_text()
    slow = re.sub(r"^(\[\[tier\.\d\]\])$", rf"\1\ndelay = {float(seconds)}", shipped, flags=re.M)
    with tempfile.TemporaryDirectory(prefix="claudeops-scenarios-") as directory:
        (Path(directory) / f"{SCENARIO}.toml").write_text(slow)
        yield Path(directory)


def measure(rounds: int, tell: Tell = silent) -> Overhead:
    queue_seconds, shell_seconds = [], []
    scenario = load_scenario(SCENARIO)
    with worker(), ScriptedApi(scenario).serving() as api:
        time_queue_round()  # warm up
        time_shell_round(api, scenario)
        for number in range(1, rounds + 1):
            tell(f"Measuring overhead: round {number} of {rounds}")
            queue_seconds.append(time_queue_round())
            shell_seconds.append(time_shell_round(api, scenario))
    return Overhead(queue_seconds=queue_seconds, shell_seconds=shell_seconds)


@contextmanager
def worker() -> Iterator[None]:
    child = start_worker()
    try:
        yield
    finally:
        child.ask_to_stop()
        child.make_stop(time.monotonic() + 10)


def time_queue_round() -> float:
    began = time.perf_counter()
    cycle = start_drill(SCENARIO)
    while time.perf_counter() - began < TIMEOUT_SECONDS:
        if not Cycle.objects.filter(pk=cycle.pk, state__in=Cycle.ACTIVE_STATES).exists():
            return time.perf_counter() - began
        time.sleep(LOOK_SECONDS)
    raise TimeoutError(f"the drill did not end within {TIMEOUT_SECONDS} s: is the worker alive?")


def time_shell_round(api: ScriptedApi, scenario: Scenario) -> float:
    directory = Path(settings.CLAUDEOPS_STATE_DIR) / "bench" / uuid.uuid4().hex
    script = write_script(directory, api, scenario)
    began = time.perf_counter()
    subprocess.run(["sh", str(script)], check=True)
    return time.perf_counter() - began


def write_script(
    directory: Path, api: ScriptedApi, scenario: Scenario, *, highest: int = FULL
) -> Path:
    system = directory / "system"
    system.mkdir(parents=True)
    scenario.write_system(system)
    cycle = Cycle(drill=scenario.name, workdir=str(system))
    lines = ["set -e", f"cd {shlex.quote(str(system))}"]
    previous = ""
    for number in range(LOWEST_TIER, highest + 1):
        tier, session_id = get_tier(number), str(uuid.uuid4())
        prompt = directory / f"prompt{number}"
        prompt.write_text(
            rendered(
                PromptContext(
                    tier=tier,
                    continuation=Resume(previous, "") if previous else Fresh(""),
                    line=tuple(EarlierRun(tier=below) for below in range(LOWEST_TIER, number)),
                    operator=operator_context_of(cycle),
                )
            )
        )
        argv = build_argv(
            find_binary(),
            RunRequest(
                tier=tier,
                session_id=session_id,
                resumes=previous or None,
                report_schema=REPORT_SCHEMA_JSON,
                max_budget_usd=tier.max_budget_usd,
            ),
        )
        environment = {
            **cli_environment(
                {"PATH": drill_path(system)},
                home=directory,
                config_directory=directory / "claude",
                api_retries=settings.CLAUDEOPS_API_RETRIES,
            ),
            API_KEY: DRILL_KEY,
            "ANTHROPIC_BASE_URL": api.base_url(scenario.name, number, directory.name),
        }
        assignments = [f"{name}={value}" for name, value in environment.items()]
        command = shlex.join(["env", "-i", *assignments, *argv])
        lines.append(f"{command} < {shlex.quote(str(prompt))} > /dev/null")
        previous = session_id
    script = directory / "run.sh"
    script.write_text("\n".join(lines) + "\n")
    return script
