"""How much of the host one command may use.

Two kinds of limit, because each alone has a gap. A process's own limits (`ulimit`) hold for an
ordinary user everywhere; the kernel counts root's processes against none. A control group holds
for root too, and for all processes of a command together, where we may make one.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

MEBIBYTE = 1024 * 1024
GIBIBYTE = 1024 * MEBIBYTE
CGROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")
OUR_GROUP = "claudeops-tools"
EMPTY_PATIENCE_SECONDS = 2.0
FORGOTTEN_SECONDS = 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    processes: int = 512
    memory_bytes: int = 4 * GIBIBYTE
    """Of one process its written memory (node and Java reserve far more address space than they
    use); of a control group all."""
    file_bytes: int = 4 * GIBIBYTE
    output_bytes: int = 256 * MEBIBYTE
    """What a command may print into a file of the CLI."""
    open_files: int = 4096
    cpu_seconds: int = 3600
    temporary_bytes: int = 512 * MEBIBYTE
    home_bytes: int = 64 * MEBIBYTE
    longest_seconds: float = float("inf")
    """For one command, where the CLI's own time-out had to be raised so that it can wait."""


def shell_limits(limits: Limits) -> str:
    """`ulimit` words for the shell that starts a command, inside its room: the count of processes
    belongs to the room's user namespace. Never over what we ourselves may have."""
    wanted = (
        ("-c", resource.RLIMIT_CORE, 0, 1),
        ("-u", resource.RLIMIT_NPROC, limits.processes, 1),
        ("-d", resource.RLIMIT_DATA, limits.memory_bytes, 1024),
        ("-f", resource.RLIMIT_FSIZE, limits.file_bytes, 1024),
        ("-n", resource.RLIMIT_NOFILE, limits.open_files, 1),
        ("-t", resource.RLIMIT_CPU, limits.cpu_seconds, 1),
    )
    words = []
    for option, number, value, unit in wanted:
        hardest = resource.getrlimit(number)[1]
        value = value if hardest == resource.RLIM_INFINITY else min(value, hardest)
        words.append(f"{option} {value // unit}")
    return f"ulimit {' '.join(words)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ControlGroups:
    """The parents under which each command gets a group of its own."""

    parents: tuple[tuple[Path, str], ...] = ()
    """Directory, and the file that limits processes or memory ("" for both: version 2)."""

    @property
    def in_force(self) -> str:
        """For people."""
        if not self.parents:
            root = "" if os.getuid() else " (processes of root are not counted)"
            return f"limits of each process{root}, no control group"
        version = 2 if not self.parents[0][1] else 1
        return f"limits of each process, control groups version {version}"


@lru_cache
def control_groups() -> ControlGroups:
    """Those of this process: it does not change its own."""
    return find_control_groups()


def find_control_groups(root: Path = CGROUPS, own: Path = OWN_GROUPS) -> ControlGroups:
    """Tried, not guessed: a group is made, limited and removed again."""
    for parents in _candidates(root, own):
        if all((parent / "cgroup.procs").exists() for parent, _file in parents):
            groups = ControlGroups(parents=tuple((path / OUR_GROUP, f) for path, f in parents))
            if _can_be_used(groups):
                return groups
    return ControlGroups()


def _candidates(root: Path, own: Path) -> Iterator[tuple[tuple[Path, str], ...]]:
    """Version 2 has groups for everything; of version 1 we stay below the groups we are in."""
    if (root / "cgroup.controllers").exists():
        yield ((root, ""),)
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        return
    below = {words[1]: words[2].lstrip("/") for words in lines if len(words) == 3}
    if {"pids", "memory"} <= below.keys():
        yield (
            (root / "pids" / below["pids"], "pids.max"),
            (root / "memory" / below["memory"], "memory.limit_in_bytes"),
        )


def _can_be_used(groups: ControlGroups) -> bool:
    group = CommandGroup(groups, Limits())
    try:
        for parent, _file in groups.parents:
            parent.mkdir(exist_ok=True)
        group.make()
        _remove_forgotten(groups)
    except OSError:
        return False
    finally:
        group.remove()
    return True


class CommandGroup:
    """The control group of one command."""

    def __init__(self, groups: ControlGroups, limits: Limits) -> None:
        name = uuid.uuid4().hex
        self._limits = limits
        self._groups = [(parent / name, file) for parent, file in groups.parents]

    @property
    def paths(self) -> Sequence[Path]:
        return [path for path, _file in self._groups]

    def make(self) -> None:
        for path, file in self._groups:
            if not file:
                (path.parent / "cgroup.subtree_control").write_text("+pids +memory")
            path.mkdir()
            for name, value in self._values(file):
                (path / name).write_text(str(value))

    def remove(self) -> None:
        """Gone when its last process is; a killed room needs a moment for that."""
        until = time.monotonic() + EMPTY_PATIENCE_SECONDS
        for path in self.paths:
            while path.exists():
                with contextlib.suppress(OSError):
                    path.rmdir()
                if time.monotonic() > until:
                    break
                if path.exists():
                    time.sleep(0.005)

    def entering(self, argv: Sequence[str]) -> list[str]:
        """The same command, begun inside the group: a process moved later leaves children out."""
        if not self._groups:
            return list(argv)
        enter = "".join('echo $$ >"$1/cgroup.procs" || exit 126; shift; ' for _ in self._groups)
        return ["/bin/sh", "-c", f'{enter}exec "$@"', "sh", *map(str, self.paths), *argv]

    def _values(self, file: str) -> list[tuple[str, int]]:
        processes, memory = self._limits.processes, self._limits.memory_bytes
        if not file:
            return [("pids.max", processes), ("memory.max", memory)]
        return [(file, processes if file == "pids.max" else memory)]


def _remove_forgotten(groups: ControlGroups) -> None:
    """Of a runner that was killed. A group in use cannot be removed, one just made is young."""
    for parent, _file in groups.parents:
        for path in parent.iterdir():
            with contextlib.suppress(OSError):
                if path.is_dir() and time.time() - path.stat().st_mtime > FORGOTTEN_SECONDS:
                    path.rmdir()
