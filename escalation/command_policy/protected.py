"""What Claude Ops itself is on this host, and which commands would end or change that.

An agent that stops its own supervisor is held by nobody any more, so no tier may: neither by the
unit, nor by the process, nor by the container, nor by taking away what the rooms stand on. Pure:
the facts come in, looked up by `rooms/ourselves`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from escalation.gate.understanding import LOOK, Understanding

DEPLOYED_UNITS = frozenset({"claudeops-web.service", "claudeops-worker.service"})
"""As the documentation names them: also the one of which no process runs at the moment."""
SHORTEST_ID = 4
UNIT_TYPES = re.compile(
    r"\.(?:service|socket|device|mount|automount|swap|target|path|timer|slice|scope)\Z"
)
ROOMS_STAND_ON = "bubblewrap"
SETTINGS_OF_ROOMS = re.compile(r"user[./]max_|.*userns", re.IGNORECASE)
PUTS_IN = frozenset({"install", "upgrade", "reinstall", "add", "update"})
PACKAGE_PROGRAMS = frozenset(
    {"apt", "apt-get", "aptitude", "dpkg", "dnf", "yum", "apk", "pacman", "zypper", "rpm"}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnProcess:
    pid: int
    name: str
    """As `killall` compares it."""
    command: str
    """With its arguments, as `pkill -f` does."""
    numbers: frozenset[int] = frozenset()
    """By which it can be signalled besides: its threads, each of which stands for the whole, and
    its group."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Alive:
    """What changes while a run goes on."""

    processes: tuple[OwnProcess, ...] = ()
    units: frozenset[str] = frozenset()
    """Those in which the processes live, with the slices and scopes around them."""


def _nothing_alive() -> Alive:
    return Alive()


@dataclass(frozen=True, kw_only=True, slots=True)
class Supervisor:
    alive: Callable[[], Alive] = field(default=_nothing_alive)
    """Asked only for a command that signals processes or changes units: it costs milliseconds."""
    users: frozenset[str] = frozenset()
    """Name and number of the user that it runs as."""
    containers: frozenset[str] = frozenset()
    """Names and ids, where it runs in one."""


def touches_supervisor(understood: Understanding, supervisor: Supervisor) -> str:
    """What of the supervisor's own a command would end or change; empty where it is nothing."""
    if understood.level <= LOOK:
        return ""
    program, _space, verb = understood.action.partition(" ")
    words = tuple(word for word in understood.arguments if word)
    match program:
        case "systemctl" | "service":
            return _units(words, supervisor)
        case "loginctl":
            return _sessions(verb, words, supervisor)
        case "kill":
            return _by_number(words, supervisor)
        case "pkill" | "killall":
            return _by_name(words, supervisor)
        case "docker" | "podman":
            return _containers(words, supervisor)
        case "sysctl":
            found = next((word for word in words if SETTINGS_OF_ROOMS.match(word)), "")
            return f"what its rooms stand on ({found})" if found else ""
        case _ if program in PACKAGE_PROGRAMS:
            return _packages(verb, words)
    return ""


def _units(words: tuple[str, ...], supervisor: Supervisor) -> str:
    own = DEPLOYED_UNITS | supervisor.alive().units
    for word in words:
        name = word if UNIT_TYPES.search(word) else f"{word}.service"
        if found := next((unit for unit in sorted(own) if fnmatchcase(unit, name)), ""):
            return f"the unit {found}"
    return ""


def _sessions(verb: str, words: tuple[str, ...], supervisor: Supervisor) -> str:
    if not verb.startswith(("terminate", "kill")):
        return ""
    names = [word for word in words if not word.startswith("-")]
    units = supervisor.alive().units
    if not names or supervisor.users.intersection(names):
        return "its user's sessions"
    ours = [name for name in names if f"session-{name}.scope" in units]
    return f"the session {ours[0]}" if ours else ""


def _by_number(words: tuple[str, ...], supervisor: Supervisor) -> str:
    """A group is called by the number of its first process, with a minus."""
    named = {abs(int(word)) for word in words if re.fullmatch(r"-?[0-9]{1,10}", word)}
    living = supervisor.alive().processes
    found = next((own for own in living if named & {own.pid, *own.numbers}), None)
    return f"the process {found.pid} ({found.name})" if found else ""


def _by_name(words: tuple[str, ...], supervisor: Supervisor) -> str:
    """Whatever the options are: a pattern that could mean one of ours is enough."""
    patterns = [word for word in words if not word.startswith("-")]
    for own in supervisor.alive().processes:
        if any(_may_mean(pattern, own) for pattern in patterns):
            return f"the process {own.pid} ({own.name})"
    return ""


def _may_mean(pattern: str, own: OwnProcess) -> bool:
    try:
        meant = re.compile(pattern, re.IGNORECASE)
    except re.error:
        return True
    return bool(meant.search(own.name) or meant.search(own.command))


def _containers(words: tuple[str, ...], supervisor: Supervisor) -> str:
    """By name, or by the beginning of an id. Behind the door the filter asks the engine itself;
    this is for what goes another way."""
    for word in words:
        plain = word.lstrip("/").partition(":")[0]
        is_id = len(plain) >= SHORTEST_ID and re.fullmatch(r"[0-9a-f]+", plain)
        if plain in supervisor.containers or (
            is_id and any(own.startswith(plain) for own in supervisor.containers)
        ):
            return f"the container {plain}"
    return ""


def _packages(verb: str, words: tuple[str, ...]) -> str:
    """`apt install bubblewrap-` removes it, too."""
    for word in words:
        is_meant = fnmatchcase(ROOMS_STAND_ON, word.rstrip("+-").partition(":")[0])
        if is_meant and not (verb in PUTS_IN and not word.endswith("-")):
            return f"what its rooms stand on ({ROOMS_STAND_ON})"
    return ""
