"""Limits the resources of one command, by `ulimit` and by control groups.

Both are used because each has a gap: `ulimit` works everywhere, but the kernel does not count the
processes of root; a control group counts all processes of a command, also for root, but cannot be
created everywhere.
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
EMPTY_TIMEOUT_SECONDS = 2.0
FORGOTTEN_SECONDS = 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxLimits:
    processes: int = 512
    memory_bytes: int = 4 * GIBIBYTE
    """Written memory of one process (node and Java reserve far more address space than they use),
    and all memory of a control group."""
    file_bytes: int = 4 * GIBIBYTE
    output_bytes: int = 256 * MEBIBYTE
    """The most that a command may print into a file of the CLI."""
    open_files: int = 4096
    cpu_seconds: int = 3600
    temporary_bytes: int = 512 * MEBIBYTE
    home_bytes: int = 64 * MEBIBYTE
    longest_seconds: float = float("inf")
    """Ends a command where the CLI's own time-out is raised so that it can wait for an approval."""


def shell_limits(limits: SandboxLimits) -> str:
    """Return the `ulimit` call for the shell that starts a command.

    It runs inside the sandbox, because processes are counted for its user namespace. No limit
    exceeds the hard limit of this process.
    """
    wanted = (
        ("-c", resource.RLIMIT_CORE, 0, 1),
        ("-u", resource.RLIMIT_NPROC, limits.processes, 1),
        ("-d", resource.RLIMIT_DATA, limits.memory_bytes, 1024),
        ("-f", resource.RLIMIT_FSIZE, limits.file_bytes, 1024),
        ("-n", resource.RLIMIT_NOFILE, limits.open_files, 1),
        ("-t", resource.RLIMIT_CPU, limits.cpu_seconds, 1),
    )
    options = []
    for option, number, value, unit in wanted:
        hardest = resource.getrlimit(number)[1]
        value = value if hardest == resource.RLIM_INFINITY else min(value, hardest)
        options.append(f"{option} {value // unit}")
    return f"ulimit {' '.join(options)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ControlGroups:
    """The parent groups under which each command gets its own group."""

    parents: tuple[tuple[Path, str], ...] = ()
    """Pairs of directory and limit file ("" for version 2, which has both limits)."""

    @property
    def in_force(self) -> str:
        """A description for an operator."""
        if not self.parents:
            root = "" if os.getuid() else " (processes of root are not counted)"
            return f"process limits{root}, no control group"
        version = 2 if not self.parents[0][1] else 1
        return f"process limits, control groups version {version}"


@lru_cache
def control_groups() -> ControlGroups:
    """The control groups of this process, found once."""
    return find_control_groups()


def find_control_groups(root: Path = CGROUPS, own: Path = OWN_GROUPS) -> ControlGroups:
    """Find groups that work: one is created, limited and removed.

    The group of a worker that ran as root is of no use to another user, who gets an own one.
    """
    for parents in _candidates(root, own):
        if all(_exists(parent / "cgroup.procs") for parent, _file in parents):
            for name in (OUR_GROUP, f"{OUR_GROUP}-{os.geteuid()}"):
                groups = ControlGroups(parents=tuple((path / name, f) for path, f in parents))
                if _can_be_used(groups):
                    return groups
    return ControlGroups()


def _exists(path: Path) -> bool:
    """Return False also in a directory of another user, where pathlib raises an error."""
    try:
        return path.exists()
    except OSError:
        return False


def _candidates(root: Path, own: Path) -> Iterator[tuple[tuple[Path, str], ...]]:
    """Yield the root for version 2, or the groups of this process for version 1."""
    if _exists(root / "cgroup.controllers"):
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
    group = CommandGroup(groups, SandboxLimits())
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

    def __init__(self, groups: ControlGroups, limits: SandboxLimits) -> None:
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
        """Wait until its last process has ended, for a limited time, and remove the group."""
        until = time.monotonic() + EMPTY_TIMEOUT_SECONDS
        for path in self.paths:
            while _exists(path):
                with contextlib.suppress(OSError):
                    path.rmdir()
                if time.monotonic() > until:
                    break
                if _exists(path):
                    time.sleep(0.005)

    def entering(self, argv: Sequence[str]) -> list[str]:
        """Return a command line that enters the group first, so that all children are inside."""
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
    """Remove old groups of killed workers; a group in use cannot be removed."""
    for parent, _file in groups.parents:
        for path in parent.iterdir():
            with contextlib.suppress(OSError):
                if path.is_dir() and time.time() - path.stat().st_mtime > FORGOTTEN_SECONDS:
                    path.rmdir()
