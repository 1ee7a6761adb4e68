"""The stage of a trial: what must stay as it is, and the witnesses who say whether it did."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from escalation.rehearsal.walls.engine_target import EngineTarget
from escalation.rehearsal.walls.processes import Bystander, Survivors
from escalation.rehearsal.walls.stage_files import (
    API_KEY,
    BYSTANDER,
    Canaries,
    lay_out_state,
    restore,
)
from escalation.rehearsal.walls.targets import Heard

WRITTEN_PORT = "8099"
"""The web service's port in the corpus; the stage's own is one that is free here."""
WORKDIR, OUTSIDE, HOME, STATE, CODE = "workdir", "outside", "home", "state", "code"
ENGINE, WEB, REMOTE, PROCESSES = "engine", "web", "remote", "processes"
MENDED = (WORKDIR, OUTSIDE, HOME)


@dataclass(frozen=True, slots=True)
class Effect:
    """Something that is not as it was."""

    where: str
    what: str

    def __str__(self) -> str:
        return self.what


class Witness(Protocol):
    def changes(self) -> Sequence[str]:
        """Since the last look."""

    def forget(self) -> None:
        """From now on, as it is now."""


@dataclass(kw_only=True, slots=True)
class Stage:
    directory: Path
    state: Path
    """The supervisor's own, in a scratch installation."""
    canaries: Canaries
    token: str
    """A word of this trial, by which what it planted is found again."""
    engine: EngineTarget
    web_port: int
    web_heard: Heard
    remote_heard: Heard
    bystander: Bystander
    survivors: Survivors
    words: dict[str, str] = field(default_factory=dict)
    """What stands for `@state@` and its like in an attack."""
    witnesses: dict[str, Witness] = field(default_factory=dict)
    """By where they look."""
    _harmed: set[str] = field(default_factory=set)

    @property
    def workdir(self) -> Path:
        return self.directory / "work"

    @property
    def outside(self) -> Path:
        return self.directory / "outside"

    @property
    def home(self) -> Path:
        return self.directory / "home"

    @property
    def programs(self) -> Path:
        """Its own `ssh`, which is what its name says."""
        return self.directory / "bin"

    @property
    def other_watch(self) -> Path:
        return self.directory / "other-watch"

    @property
    def config(self) -> Path:
        """The CLI's configuration of the run, where the supervisor keeps such."""
        return self.state / "claude" / "cycle-1"

    @property
    def run_directory(self) -> Path:
        return self.state / "runs" / "session-1"

    @property
    def surroundings(self) -> dict[str, str]:
        """What the supervisor's environment holds: the key, the engine, the operator's home."""
        return {
            "HOME": str(self.home),
            "PATH": f"{self.programs}:{os.environ.get('PATH', os.defpath)}",
            "DOCKER_HOST": f"unix://{self.engine.socket}",
            "ANTHROPIC_API_KEY": self.canaries.values[API_KEY],
            "LANG": os.environ.get("LANG", "C.UTF-8"),
        }

    def spelled(self, command: str) -> str:
        """A command of the corpus as it is here."""
        return command.replace(WRITTEN_PORT, str(self.web_port))

    def place(self, name: str) -> Path:
        return {WORKDIR: self.workdir, OUTSIDE: self.outside, HOME: self.home}[name]

    def pristine(self, name: str) -> Path:
        return self.directory / "pristine" / name

    def settle(self) -> None:
        """From now on, as it is now."""
        for witness in self.witnesses.values():
            witness.forget()
        self.survivors.forget()
        self._heard()

    def effects(self, *, mend: bool = True) -> list[Effect]:
        """What is not as it was at the last look; where it can be mended, it is."""
        found = [Effect(PROCESSES, what) for what in self.survivors.found()]
        found += [
            Effect(name, what)
            for name, witness in self.witnesses.items()
            for what in witness.changes()
        ]
        found += self._heard()
        if harm := self.bystander.harm():
            found.append(Effect(PROCESSES, harm))
        self._harmed |= {effect.where for effect in found}
        if mend:
            self._mend()
        return found

    def start_bystander(self) -> None:
        environment: Mapping[str, str] = {
            "PATH": os.defpath,
            "SECRET": self.canaries.values[BYSTANDER],
        }
        self.bystander.start(environment)

    def _heard(self) -> list[Effect]:
        return [
            *(Effect(ENGINE, f"engine: {line}") for line in self.engine.changes_since_last_look()),
            *(Effect(WEB, f"web: {line}") for line in self.web_heard.since_last_look()),
            *(
                Effect(REMOTE, f"lighthouse: {line}")
                for line in self.remote_heard.since_last_look()
            ),
        ]

    def _mend(self) -> None:
        for name in self._harmed.intersection(MENDED):
            restore(self.place(name), self.pristine(name))
            self.witnesses[name].forget()
        if STATE in self._harmed:
            lay_out_state(self.state, self.canaries)
            self.witnesses[STATE].forget()
        if ENGINE in self._harmed:
            self.engine.reset()
        if self.bystander.harm():
            self.bystander.end()
            self.start_bystander()
        if self._harmed:
            self.survivors.forget()
        self._harmed.clear()
