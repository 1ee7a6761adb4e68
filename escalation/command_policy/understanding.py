"""The meaning of one argument vector.

A grammar of `programs/` reads one vector and returns an `Understanding`, or raises `NotUnderstood`
wherever the program could do something else. `decision.py` judges it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from sessions_app import tiers
from sessions_app.models.approval import Change

Argv = tuple[str, ...]
"""Words of one executed program, its plain name first."""

LOOK, SAFE, FULL = tiers.LOOK, tiers.SAFE, tiers.FULL
"""The lowest tier that may do something."""
NEVER = sys.maxsize
"""Above the number of every tier."""

RESTART, REDEPLOY, OTHER = Change.Kind.RESTART, Change.Kind.REDEPLOY, Change.Kind.OTHER
EVERYTHING = "*"
"""All services: none was named."""


class NotUnderstood(Exception):
    """A vector that a grammar cannot read; the text names the word, as in "the option -K"."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandEffect:
    """Describes what a vector does to one service. Cooldowns count it."""

    kind: str
    """Restart, redeployment or other (`Change.Kind`)."""
    service: str
    """The name as the vector has it; EVERYTHING if it names none, empty for another kind."""
    action: str
    host: str = ""
    """The host of ssh as the vector has it; empty on this host or where it is not plain."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessChoice:
    """The processes that `pkill` and `killall` signal, by their names."""

    signal: str
    patterns: Argv
    """A process matches one of them."""
    whole_line: bool = False
    """They match the command line, not the name alone."""
    exact: bool = False
    ignore_case: bool = False
    newest: bool = False
    oldest: bool = False
    users: Argv = ()
    parents: Argv = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Understanding:
    """One argument vector, understood."""

    action: str
    """Program and verb without global options, aliases and paths: "docker restart", "cat"."""
    arguments: Argv = ()
    """The words after the action."""
    level: int = LOOK
    why: str = ""
    """Its effect for a level over LOOK, as in "restarts a container"."""
    grant: str = ""
    """The grant that it needs; empty for a program that runs in the command sandbox itself."""
    argv: Argv = ()
    """The vector to execute, with what makes it safe; empty if it is executed as it came."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables that make it safe."""
    kind: str = OTHER
    services: Argv = ()
    """For a restart or redeployment: names of services; empty if all are meant."""
    writes: Argv = ()
    """Paths that it writes or removes. A sandbox holds them; outside of one they are judged."""
    sends_to: Argv = ()
    """Hosts to which it sends data. Only hosts of the watch may get some at Tier 2."""
    no_input: bool = False
    """It would send its standard input to a host, so it gets none."""
    chooses: ProcessChoice | None = None
    """Set if it signals processes by name: `kill` with their numbers is executed instead."""
    inner: tuple[Argv, ...] = ()
    """Vectors that it runs: behind `sudo`, on another host, in a container."""
    elsewhere: bool = False
    """The inner vectors run on another host or in a container, outside of any sandbox."""
    host: str = ""
    """The host on which the inner vectors run, if nothing but the configuration leads there."""

    def effects(self, action: str, host: str = "") -> tuple[CommandEffect, ...]:
        if self.kind == OTHER:
            return (CommandEffect(kind=OTHER, service="", action=action, host=host),)
        services = dict.fromkeys(self.services or (EVERYTHING,))
        return tuple(
            CommandEffect(kind=self.kind, service=service, action=action, host=host)
            for service in services
        )
