"""Scenario files: what the model says in a drill, written down in TOML.

A scenario holds the files of a small make-believe system and, for each tier, the replies that the
scripted Messages API gives, in order. Everything else in a drill is real.
"""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings

from escalation.agent import Answer, ToolCall

__all__ = [
    "DrillFile",
    "Reply",
    "Scenario",
    "ScenarioError",
    "ToolCall",
    "load_scenario",
    "parse_reply",
    "parse_scenario",
    "scenario_names",
]

SCENARIO_DIRECTORY = Path(__file__).parent / "scenarios"
SYSTEM_DIRECTORY = Path(__file__).parent / "systems"


class ScenarioError(Exception):
    """A scenario is missing or cannot be understood."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply(Answer):
    """One answer of the model's side, or one failure of the service."""

    delay: float = 0.0
    """Seconds before the answer starts."""
    pace: float = 0.0
    """Seconds between two pieces of the streamed answer."""
    error: int = 0
    """An HTTP status to fail with in place of an answer."""
    times: int = 1
    """How many requests in a row get this reply."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DrillFile:
    path: str
    content: str
    executable: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    name: str
    title: str
    description: str = ""
    prompt: str = ""
    system: str = ""
    """The make-believe system that the files are laid over."""
    files: tuple[DrillFile, ...] = ()
    tiers: Mapping[int, tuple[Reply, ...]] = field(default_factory=dict)
    aside: tuple[Reply, ...] = ()
    """What subagents and other side conversations of a run are told."""

    def replies_for(self, tier: int) -> tuple[Reply, ...]:
        return self.tiers.get(tier, ())

    def lay_out(self, directory: Path) -> None:
        """Write the make-believe system to disk, for the real tools to work on."""
        if self.system:
            shutil.copytree(SYSTEM_DIRECTORY / self.system, directory, dirs_exist_ok=True)
        for drill_file in self.files:
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
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ScenarioError(f"The scenario file {path.name} cannot be read: {error!r}.") from error


def scenario_names() -> list[str]:
    return sorted(_scenario_files())


def _scenario_files() -> dict[str, Path]:
    """The shipped ones and the operator's own, which win where they share a name."""
    files = {path.stem: path for path in SCENARIO_DIRECTORY.glob("*.toml")}
    if own := settings.CLAUDEOPS_SCENARIOS_DIR:
        files |= {path.stem: path for path in Path(own).glob("*.toml")}
    return files


def parse_scenario(name: str, data: Mapping[str, Any]) -> Scenario:
    return Scenario(
        name=name,
        title=data["title"],
        description=data.get("description", "").strip(),
        prompt=data.get("prompt", "").strip(),
        system=data.get("system", ""),
        files=tuple(DrillFile(**entry) for entry in data.get("files", [])),
        tiers={
            int(tier): tuple(parse_reply(entry) for entry in replies)
            for tier, replies in data.get("tier", {}).items()
        },
        aside=tuple(parse_reply(entry) for entry in data.get("aside", [])),
    )


def parse_reply(entry: Mapping[str, Any]) -> Reply:
    """`run` is short for a Bash call and `report` for the closing StructuredOutput call."""
    fields = dict(entry)
    calls = [ToolCall(**call) for call in fields.pop("calls", [])]
    if command := fields.pop("run", ""):
        calls.append(ToolCall(tool="Bash", input={"command": command}))
    if report := fields.pop("report", None):
        calls.append(ToolCall(tool="StructuredOutput", input=report))
    return Reply(calls=tuple(calls), **fields)
