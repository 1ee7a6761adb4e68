"""Measures the price of each kind of token with the CLI, without a price table.

The same answer is served repeatedly, each time with more tokens of one kind; the difference in the
cost that the CLI reports is their price.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from escalation.agent.binary import find_binary
from escalation.drills.scenario import Reply, Scenario
from escalation.drills.scripted_api import ScriptedApi
from sessions_app.credentials import API_KEY
from tests.devtools.chaos.api_log import KINDS, exchanges

MORE_TOKENS = 10_000
"""Enough to distinguish prices, and below the limit from which some models cost more."""
BASE = dict.fromkeys(KINDS, 100)
RUN_SECONDS = 60.0
AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class PriceQuestion:
    model: str
    kind: str
    """The kind of token that is added; empty for the base."""

    @property
    def scenario(self) -> str:
        return self.kind or "base"


def learned_prices(models: list[str], program: str = "") -> dict[str, dict[str, float]]:
    """Measure the prices of this CLI by full model name."""
    cli = program or find_binary().path
    questions = [PriceQuestion(model, kind) for model in models for kind in ("", *KINDS)]
    with tempfile.TemporaryDirectory(prefix="claudeops-prices-") as directory:
        log = Path(directory) / "requests.jsonl"
        with ScriptedApi(*_scenarios(), request_log=log).serving() as api:

            def ask(question: PriceQuestion) -> float:
                return _cost(cli, question, api, Path(directory))

            with ThreadPoolExecutor(AT_ONCE) as pool:
                costs = dict(zip(questions, pool.map(ask, questions), strict=True))
        names = {one.run: one.model for one in exchanges(log)}
    return {names[model]: _prices(model, costs) for model in models}


def _prices(model: str, costs: dict[PriceQuestion, float]) -> dict[str, float]:
    base = costs[PriceQuestion(model, "")]
    return {kind: (costs[PriceQuestion(model, kind)] - base) / MORE_TOKENS for kind in KINDS}


def _scenarios() -> list[Scenario]:
    return [_scenario("base", BASE)] + [
        _scenario(kind, {**BASE, kind: BASE[kind] + MORE_TOKENS}) for kind in KINDS
    ]


def _scenario(name: str, usage: dict[str, int]) -> Scenario:
    return Scenario(name=name, title=name, tiers={1: (Reply(say="Yes.", usage=usage),)})


def _cost(cli: str, question: PriceQuestion, api: ScriptedApi, directory: Path) -> float:
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
            API_KEY: "no-key-needed",
            "ANTHROPIC_BASE_URL": api.base_url(question.scenario, 1, question.model),
        },
        timeout=RUN_SECONDS,
        check=True,
    )
    return float(json.loads(ended.stdout)["total_cost_usd"])
