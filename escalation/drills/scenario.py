"""Scenario files: what the model says in a drill, written down in TOML.

A scenario holds the files of a small make-believe system and, for each tier, the replies that the
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

from escalation.agent import Answer, ToolCall
from escalation.tiers import LOWEST_TIER

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
    limit: float = 0.0
    """The account's limit is reached, for so many seconds. In a drill it is met once."""


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
    meanwhile: tuple[DrillFile, ...] = ()
    """What has changed when a fresh round looks whether the fix holds."""
    verification: tuple[Reply, ...] = ()
    """The replies to that round."""
    budget: Decimal | None = None
    """Dollars of the whole chain, where a drill is about that."""
    ask: str = ""
    """Rules for commands that a person has to approve in this drill."""
    aside: tuple[Reply, ...] = ()
    """What subagents and other side conversations of a run are told."""

    def replies_for(self, tier: int) -> tuple[Reply, ...]:
        return self.tiers.get(tier, ())

    def at_verification(self) -> Scenario:
        """The same with what a round hears that looks whether the fix holds."""
        return replace(self, tiers={LOWEST_TIER: self.verification})

    def after_limit(self, tier: int) -> Scenario:
        """The same with what the tier hears once the account's limit is behind it."""
        replies = self.replies_for(tier)
        met = next((at for at, reply in enumerate(replies, start=1) if reply.limit), 0)
        return replace(self, tiers={**self.tiers, tier: replies[met:]})

    def lay_out(self, directory: Path) -> None:
        """Write the make-believe system to disk, for the real tools to work on."""
        if self.system:
            shutil.copytree(SYSTEM_DIRECTORY / self.system, directory, dirs_exist_ok=True)
        _write(self.files, directory)

    def let_time_pass(self, directory: Path) -> None:
        """What happens to the system between the fix and the look at it."""
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
            f"The scenario file {path} cannot be read: {_what_is_wrong(error)}. Mend or remove it."
        ) from error


def _what_is_wrong(error: Exception) -> str:
    """The field that is missing, or the place in the file."""
    if isinstance(error, KeyError):
        return f"it has no {error.args[0]!r}"
    return str(error).rstrip(".") or repr(error)


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
