"""What a token of each kind costs, by experiment: the CLI alone, before anything else is started.

The same answer is served again and again, each time with some more tokens of one kind; the
difference in what the CLI says it cost is their price. No table of prices takes part.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from escalation.agent import find_binary
from escalation.rehearsal.chaos.api_log import KINDS, exchanges
from escalation.rehearsal.drills.messages_api import ScriptedApi
from escalation.rehearsal.drills.scenario import Reply, Scenario

MORE_TOKENS = 10_000
"""Enough to tell prices apart, and under the size from which some models cost more."""
BASE = dict.fromkeys(KINDS, 100)
RUN_SECONDS = 60.0
AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class Question:
    model: str
    kind: str
    """The kind of token that there is more of, or nothing for the base."""

    @property
    def scenario(self) -> str:
        return self.kind or "base"


def learned_prices(models: list[str], program: str = "") -> dict[str, dict[str, float]]:
    """By the full name of each model, as the API is asked for it. Each CLI has its own table."""
    cli = program or find_binary().path
    questions = [Question(model, kind) for model in models for kind in ("", *KINDS)]
    with tempfile.TemporaryDirectory(prefix="claudeops-prices-") as directory:
        log = Path(directory) / "requests.jsonl"
        with ScriptedApi(*_scenarios(), request_log=log).serving() as api:

            def ask(question: Question) -> float:
                return _cost(cli, question, api, Path(directory))

            with ThreadPoolExecutor(AT_ONCE) as pool:
                costs = dict(zip(questions, pool.map(ask, questions), strict=True))
        names = {one.run: one.model for one in exchanges(log)}
    return {names[model]: _prices(model, costs) for model in models}


def _prices(model: str, costs: dict[Question, float]) -> dict[str, float]:
    base = costs[Question(model, "")]
    return {kind: (costs[Question(model, kind)] - base) / MORE_TOKENS for kind in KINDS}


def _scenarios() -> list[Scenario]:
    return [_scenario("base", BASE)] + [
        _scenario(kind, {**BASE, kind: BASE[kind] + MORE_TOKENS}) for kind in KINDS
    ]


def _scenario(name: str, usage: dict[str, int]) -> Scenario:
    return Scenario(name=name, title=name, tiers={1: (Reply(say="Yes.", usage=usage),)})


def _cost(cli: str, question: Question, api: ScriptedApi, directory: Path) -> float:
    home = Path(tempfile.mkdtemp(dir=directory))
    ended = subprocess.run(
        [cli, "-p", "--output-format", "json", "--model", question.model],
        input="Are you there?",
        capture_output=True,
        text=True,
        cwd=home,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "CLAUDE_CONFIG_DIR": str(home),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "ANTHROPIC_API_KEY": "no-key-needed",
            "ANTHROPIC_BASE_URL": api.base_url(question.scenario, 1, question.model),
        },
        timeout=RUN_SECONDS,
        check=True,
    )
    return float(json.loads(ended.stdout)["total_cost_usd"])
