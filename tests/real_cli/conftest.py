from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.test import override_settings

from escalation.drills import scenario
from escalation.drills.scenario import Reply, Scenario, ScriptedToolCall
from escalation.drills.scripted_api import ScriptedApi
from escalation.run.runner import run_to_end
from escalation.supervisor import cycles
from sessions_app.models import Cycle, Watch
from tests.factories import WatchFactory
from tests.real_cli.playing import PlayedDrill, play

OLD_CLIS = Path(__file__).resolve().parents[2] / ".venv" / "old-clis"
CLIS = {
    "2.0.77": str(OLD_CLIS / "2.0.77" / "cli.js"),
    "2.1.197": str(OLD_CLIS / "2.1.197" / "claude"),
    "bundled": "",
}


def report_call(*, status: str = "healthy", escalate: str = "", did: str = "") -> ScriptedToolCall:
    """The closing call of a tier."""
    actions = [{"action": did, "result": "succeeded"}] if did else []
    return ScriptedToolCall(
        tool="StructuredOutput",
        input={
            "summary": f"web is {status}.",
            "services": [{"name": "web", "status": status}],
            "events": [],
            "actions_taken": actions,
            "escalation": {"needed": bool(escalate), "reason": escalate, "services": []},
        },
    )


@pytest.fixture(autouse=True)
def own_state(settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing of this machine reaches a test, and no test reaches another."""
    settings.CLAUDEOPS_STATE_DIR = tmp_path / "state"
    settings.CLAUDEOPS_API_RETRIES = 1
    forget_login(monkeypatch)
    return settings.CLAUDEOPS_STATE_DIR


def forget_login(patch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        patch.delenv(name, raising=False)


@pytest.fixture(params=CLIS)
def cli_version(request, settings) -> str:
    """The test runs once with each version of the CLI."""
    path = CLIS[request.param]
    assert not path or Path(path).is_file(), "run `make old-clis`: the older CLIs are missing"
    settings.CLAUDEOPS_CLAUDE_BIN = path
    return request.param


@pytest.fixture
def play_drill(db) -> Callable[[str], PlayedDrill]:
    return play


@pytest.fixture(scope="module")
def play_once(
    django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., PlayedDrill]]:
    """Plays a drill for all tests of a module, which only read what it left.

    The rows are there until the last test of the module: every test's own transaction lies within
    the one that is rolled back here.
    """
    states = tmp_path_factory.mktemp("played")
    played: dict[str, PlayedDrill] = {}

    def once(name: str, text: str = "", binary: str = "") -> PlayedDrill:
        if (key := f"{name} {binary}") not in played:
            with pytest.MonkeyPatch.context() as patch:
                if text:
                    patch.setattr(scenario, "SCENARIO_DIRECTORY", tmp_path_factory.mktemp(name))
                    (scenario.SCENARIO_DIRECTORY / f"{name}.toml").write_text(text)
                with override_settings(
                    CLAUDEOPS_STATE_DIR=states / ("other-cli" if binary else "bundled-cli"),
                    CLAUDEOPS_API_RETRIES=1,
                    CLAUDEOPS_CLAUDE_BIN=binary,
                ):
                    forget_login(patch)
                    played[key] = play(name)
        return played[key]

    with django_db_blocker.unblock(), transaction.atomic():
        yield once
        transaction.set_rollback(True)


@pytest.fixture
def write_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """A scenario of the test's own, in place of the shipped ones."""
    monkeypatch.setattr(scenario, "SCENARIO_DIRECTORY", tmp_path)

    def write(name: str, text: str) -> None:
        (tmp_path / f"{name}.toml").write_text(text)

    return write


@pytest.fixture
def scripted_api(monkeypatch: pytest.MonkeyPatch):
    """Point real runs (not drills) at a script: the replies serve the whole conversation.

    A run that starts a conversation of its own, after a handoff, gets the other replies.
    """
    started = []

    def start(*replies: Reply, new_conversation: tuple[Reply, ...] = ()) -> ScriptedApi:
        api = ScriptedApi(
            Scenario(name="test", title="test", tiers={1: replies}, aside=new_conversation)
        )
        serving = api.serving()
        serving.__enter__()
        started.append(serving)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.base_url("test", 1))
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
        return api

    yield start
    for serving in started:
        serving.__exit__(None, None, None)


@dataclass
class WatchCycle:
    """A real cycle (not a drill) of a watch on a directory of the test's own."""

    workdir: Path

    silent_then_report = (
        Reply(say="I looked."),
        Reply(say="No report from me."),
        Reply(say="Here it is.", calls=(report_call(),)),
    )
    healthy = (Reply(say="Fine.", calls=(report_call(),)),)

    def run(
        self,
        *,
        prompt: str = "",
        tier: int = 1,
        listener: Callable[[str], None] = lambda line: None,
        **fields: Any,
    ) -> Cycle:
        watch = WatchFactory(workdir=str(self.workdir), **fields)
        return self.run_watch(watch, prompt=prompt, tier=tier, listener=listener)

    def run_watch(
        self,
        watch: Watch,
        *,
        prompt: str = "",
        tier: int = 1,
        listener: Callable[[str], None] = lambda line: None,
    ) -> Cycle:
        cycle = cycles.start(
            watch,
            trigger=Cycle.Trigger.MANUAL,
            prompt=prompt,
            tier=tier,
        )
        return run_to_end(cycle, listener)


@pytest.fixture
def watch_cycle(db, tmp_path: Path) -> WatchCycle:
    workdir = tmp_path / "workdir"
    workdir.mkdir()
    return WatchCycle(workdir)
