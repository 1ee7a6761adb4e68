"""Reads scenario files: the model's side of a drill, in TOML.

A scenario holds the files of a small simulated system and, for each tier, the replies that the
scripted Messages API gives, in order. Everything else in a drill is real.
"""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from django.conf import settings

from escalation.agent.messages_api import ScriptedAnswer, ScriptedToolCall
from sessions_app.tiers import LOWEST_TIER

__all__ = [
    "DrillAlert",
    "DrillFile",
    "DrillProbe",
    "DrillRemedy",
    "Reply",
    "Scenario",
    "ScenarioError",
    "ScriptedToolCall",
    "load_scenario",
    "parse_reply",
    "parse_scenario",
    "scenario_names",
]

SCENARIO_DIRECTORY = Path(__file__).parent / "scenarios"
SYSTEM_DIRECTORY = Path(__file__).parent / "systems"


class ScenarioError(Exception):
    """A scenario is missing or invalid."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply(ScriptedAnswer):
    """One answer of the model, or one failure of the API."""

    delay: float = 0.0
    """Seconds before the answer starts."""
    pace: float = 0.0
    """Seconds between two parts of the streamed answer."""
    error: int = 0
    """HTTP status to fail with instead of an answer."""
    times: int = 1
    """Number of requests in a row that get this reply."""
    limit: float = 0.0
    """Seconds for which the rate limit is reached, once in a drill."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DrillFile:
    path: str
    content: str
    executable: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class DrillProbe:
    """The probe whose failure starts the drill, and that verifies the fix."""

    name: str
    service: str
    command: str
    fail_after: int = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class DrillRemedy:
    """The remedy that Tier 0 runs for the failing probe."""

    name: str
    command: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DrillAlert:
    """One of the alerts that start the drill together."""

    name: str
    service: str
    summary: str
    severity: str = "warning"


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    name: str
    title: str
    description: str = ""
    prompt: str = ""
    system: str = ""
    """Name of the shipped system that the files are added to."""
    files: tuple[DrillFile, ...] = ()
    tiers: Mapping[int, tuple[Reply, ...]] = field(default_factory=dict)
    meanwhile: tuple[DrillFile, ...] = ()
    """Files that change before the verification cycle."""
    verification: tuple[Reply, ...] = ()
    """Replies of the verification cycle."""
    budget: Decimal | None = None
    """Budget of the whole cycle in dollars."""
    ask: str = ""
    """Rules for commands that a person has to approve."""
    aside: tuple[Reply, ...] = ()
    """Replies for subagents and other side conversations."""
    probe: DrillProbe | None = None
    remedy: DrillRemedy | None = None
    alerts: tuple[DrillAlert, ...] = ()

    @property
    def is_woken(self) -> bool:
        """True if a probe or alerts start the cycle, not a person."""
        return self.probe is not None or bool(self.alerts)

    def replies_for(self, tier: int) -> tuple[Reply, ...]:
        return self.tiers.get(tier, ())

    def at_verification(self) -> Scenario:
        """The scenario with the replies of its verification cycle."""
        return replace(self, tiers={LOWEST_TIER: self.verification})

    def after_limit(self, tier: int) -> Scenario:
        """The scenario with the replies of the tier after the rate limit."""
        replies = self.replies_for(tier)
        met = next((at for at, reply in enumerate(replies, start=1) if reply.limit), 0)
        return replace(self, tiers={**self.tiers, tier: replies[met:]})

    def write_system(self, directory: Path) -> None:
        """Write the simulated system to disk."""
        if self.system:
            shutil.copytree(SYSTEM_DIRECTORY / self.system, directory, dirs_exist_ok=True)
        _write(self.files, directory)

    def write_changes(self, directory: Path) -> None:
        """Write the files that change before the verification."""
        _write(self.meanwhile, directory)


def _write(files: tuple[DrillFile, ...], directory: Path) -> None:
    for drill_file in files:
        target = directory / drill_file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(drill_file.content)
        target.chmod(0o755 if drill_file.executable else 0o644)


def load_scenario(name: str) -> Scenario:
    path = _scenario_files().get(name)
    if path is None:
        known = ", ".join(scenario_names()) or "none"
        raise ScenarioError(f"There is no scenario {name!r}. Known scenarios: {known}.")
    try:
        return parse_scenario(name, tomllib.loads(path.read_text()))
    except (OSError, KeyError, TypeError, ValueError, AttributeError, InvalidOperation) as error:
        raise ScenarioError(
            f"The scenario file {path} is invalid: {_problem_of(error)}. Correct or remove it."
        ) from error


def _problem_of(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"it has no {error.args[0]!r}"
    return str(error).rstrip(".") or repr(error)


def scenario_names() -> list[str]:
    return sorted(_scenario_files())


def _scenario_files() -> dict[str, Path]:
    """Scenario files by name; the operator's files override shipped ones."""
    files = {path.stem: path for path in SCENARIO_DIRECTORY.glob("*.toml")}
    if own := settings.CLAUDEOPS_SCENARIOS_DIR:
        files |= {path.stem: path for path in Path(own).glob("*.toml")}
    return files


def parse_scenario(name: str, data: Mapping[str, Any]) -> Scenario:
    if "remedy" in data and "probe" not in data:
        raise ValueError("it has a remedy of Tier 0 and no probe that starts it")
    return Scenario(
        name=name,
        title=data["title"],
        description=data.get("description", "").strip(),
        prompt=data.get("prompt", "").strip(),
        system=data.get("system", ""),
        budget=Decimal(str(data["budget"])) if "budget" in data else None,
        ask=data.get("ask", "").strip(),
        files=tuple(DrillFile(**entry) for entry in data.get("files", [])),
        tiers={
            int(tier): tuple(parse_reply(entry) for entry in replies)
            for tier, replies in data.get("tier", {}).items()
        },
        meanwhile=tuple(DrillFile(**entry) for entry in data.get("meanwhile", [])),
        verification=tuple(parse_reply(entry) for entry in data.get("verification", [])),
        aside=tuple(parse_reply(entry) for entry in data.get("aside", [])),
        probe=DrillProbe(**data["probe"]) if "probe" in data else None,
        remedy=DrillRemedy(**data["remedy"]) if "remedy" in data else None,
        alerts=tuple(DrillAlert(**entry) for entry in data.get("alerts", [])),
    )


def parse_reply(entry: Mapping[str, Any]) -> Reply:
    """Parse a reply; `run` stands for a Bash call, `report` for the StructuredOutput call."""
    fields = dict(entry)
    calls = [ScriptedToolCall(**call) for call in fields.pop("calls", [])]
    if command := fields.pop("run", ""):
        calls.append(ScriptedToolCall(tool="Bash", input={"command": command}))
    if report := fields.pop("report", None):
        calls.append(ScriptedToolCall(tool="StructuredOutput", input=report))
    return Reply(calls=tuple(calls), **fields)
