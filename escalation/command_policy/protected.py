"""Recognizes commands that would end or change Claude Ops itself.

No tier may stop the units, processes or containers of Claude Ops, or remove what the sandbox needs.
No I/O: `escalation/sandbox` looks up the facts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType
from urllib.parse import unquote

from escalation.command_policy.understanding import LOOK, Argv, ProcessChoice, Understanding

DEPLOYED_UNITS = frozenset({"claudeops-web.service", "claudeops-worker.service"})
"""Unit names of the documentation, protected even if no process runs."""
SHORTEST_ID = 4
NAME_LENGTH = 15
NOTHING_CHOSEN = ("false",)
"""Executed if no process is chosen: pkill and killall end with 1, too."""
UNIT_TYPES = re.compile(
    r"\.(?:service|socket|device|mount|automount|swap|target|path|timer|slice|scope)\Z"
)
SANDBOX_PACKAGE = "bubblewrap"
REVEALS = frozenset({"show", "cat", "inspect"})
"""Verbs that show the variables of a unit or container."""
PUTS_IN = frozenset({"install", "upgrade", "reinstall", "add", "update"})
PACKAGE_PROGRAMS = frozenset(
    {"apt", "apt-get", "aptitude", "dpkg", "dnf", "yum", "apk", "pacman", "zypper", "rpm"}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnProcess:
    pid: int
    name: str
    """The name for `killall`."""
    command: str
    """The command line for `pkill -f`."""
    numbers: frozenset[int] = frozenset()
    """Other numbers by which it can be signalled: its threads and its group."""
    is_client: bool = False
    """Passes on one command, whose words are in its command line: `pgrep -f` finds it, too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OtherProcess:
    """A process of the host that does not belong to Claude Ops."""

    pid: int
    parent: int
    name: str
    command: str
    users: frozenset[str] = frozenset()
    """Name and number of its user."""
    started: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Alive:
    """Facts that change during a run."""

    processes: tuple[OwnProcess, ...] = ()
    units: frozenset[str] = frozenset()
    """Units of the processes, including slices and scopes."""
    others: tuple[OtherProcess, ...] = ()


def _nothing_alive() -> Alive:
    return Alive()


@dataclass(frozen=True, kw_only=True, slots=True)
class Supervisor:
    alive: Callable[[], Alive] = field(default=_nothing_alive)
    """Called only if needed: it takes milliseconds."""
    users: frozenset[str] = frozenset()
    """Name and number of the user of Claude Ops."""
    containers: frozenset[str] = frozenset()
    """Names and ids of its own container."""
    databases: frozenset[str] = frozenset()
    """Names of its own database, where it uses PostgreSQL."""


def touches_supervisor(
    understood: Understanding,
    supervisor: Supervisor,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return what a vector would end, change or reveal of Claude Ops; empty if nothing."""
    program, _space, verb = understood.action.partition(" ")
    if program == "psql":
        return _databases(understood.arguments, environment, supervisor)
    if understood.level <= LOOK and verb not in REVEALS:
        return ""
    words = understood.arguments
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


def chosen(choice: ProcessChoice, supervisor: Supervisor) -> Argv:
    """Return `kill` with the processes that a choice means, without those of Claude Ops.

    The command line of a client has the words of the command itself: pkill would end it, too.
    """
    found = [one for one in supervisor.alive().others if _is_chosen(one, choice)]
    found.sort(key=lambda one: (one.started, one.pid))
    if choice.newest:
        found = found[-1:]
    if choice.oldest:
        found = found[:1]
    pids = tuple(str(one.pid) for one in found)
    return ("kill", f"-{choice.signal}", *pids) if pids else NOTHING_CHOSEN


def _is_chosen(process: OtherProcess, choice: ProcessChoice) -> bool:
    if process.pid < 2 or (choice.users and not process.users.intersection(choice.users)):
        return False
    if choice.parents and str(process.parent) not in choice.parents:
        return False
    flags = re.IGNORECASE if choice.ignore_case else 0
    text = (process.command or process.name) if choice.whole_line else process.name
    matches = re.fullmatch if choice.exact else re.search
    # The kernel keeps 15 characters of a name.
    longer = process.command.partition(" ")[0].rpartition("/")[2]
    texts = (text, longer) if not choice.whole_line and len(text) == NAME_LENGTH else (text,)
    return any(matches(pattern, one, flags) for pattern in choice.patterns for one in texts)


def without_clients(argv: Argv, supervisor: Supervisor) -> Argv:
    """Return `kill` without the clients of this command, which `pgrep -f` lists as well.

    Where the list has such a client, processes of the search itself are in it that have ended.
    """
    alive = supervisor.alive()
    clients = {str(own.pid) for own in alive.processes if own.is_client}
    others = {str(one.pid) for one in alive.others}
    own = {str(own.pid) for own in alive.processes} - clients
    if not clients.intersection(argv[1:]) or not others.intersection(argv[1:]):
        return argv
    is_kept = others | own
    kept = tuple(word for word in argv[1:] if word in is_kept or not word.isdecimal())
    return (argv[0], *kept)


def _by_number(words: tuple[str, ...], supervisor: Supervisor) -> str:
    """Check process ids; a negative number is a process group."""
    named = {abs(int(word)) for word in words if re.fullmatch(r"-?[0-9]{1,10}", word)}
    living = supervisor.alive().processes
    found = next((own for own in living if named & {own.pid, *own.numbers}), None)
    return f"the process {found.pid} ({found.name})" if found else ""


def _by_name(words: tuple[str, ...], supervisor: Supervisor) -> str:
    """Check patterns, whatever the options are. Clients have the words of the command itself."""
    patterns = [word for word in words if not word.startswith("-")]
    for own in supervisor.alive().processes:
        if not own.is_client and any(_may_mean(pattern, own) for pattern in patterns):
            return f"the process {own.pid} ({own.name})"
    return next((f"what {word} names" for word in patterns if "claudeops" in word), "")


def _may_mean(pattern: str, own: OwnProcess) -> bool:
    try:
        meant = re.compile(pattern, re.IGNORECASE)
    except re.error:
        return True
    return bool(meant.search(own.name) or meant.search(own.command))


def _containers(words: tuple[str, ...], supervisor: Supervisor) -> str:
    """Check names and beginnings of ids. The Docker filter checks its requests separately."""
    for word in words:
        plain = word.lstrip("/").partition(":")[0]
        is_id = len(plain) >= SHORTEST_ID and re.fullmatch(r"[0-9a-f]+", plain)
        if plain in supervisor.containers or (
            is_id and any(own.startswith(plain) for own in supervisor.containers)
        ):
            return f"the container {plain}"
    return ""


def _databases(
    words: tuple[str, ...], environment: Mapping[str, str], supervisor: Supervisor
) -> str:
    """Check the database that psql connects to: its user may log in there without a password.

    Any word may name it. Without one, psql takes the name of the user.
    """
    user = environment.get("PGUSER")
    default = environment.get("PGDATABASE") or user
    named = {
        *map(_database_in, words),
        *([default] if default else supervisor.users),
    }
    return next((f"the database {name}" for name in sorted(supervisor.databases & named)), "")


def _database_in(word: str) -> str:
    """Return the name that a word of psql may give: `-dNAME`, `--dbname=NAME`, a URI, a name."""
    value = re.sub(r"\A(?:-[dU]|--(?:dbname|username)=)", "", word)
    return unquote(value).partition("?")[0].rpartition("/")[2]


def _packages(verb: str, words: tuple[str, ...]) -> str:
    """Check packages; `apt install bubblewrap-` removes one, too."""
    for word in words:
        is_meant = fnmatchcase(SANDBOX_PACKAGE, word.rstrip("+-").partition(":")[0])
        if is_meant and not (verb in PUTS_IN and not word.endswith("-")):
            return f"what its sandbox needs ({SANDBOX_PACKAGE})"
    return ""
