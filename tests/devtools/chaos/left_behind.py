"""The third witness: the machine itself. Which processes and files of a round are still there?"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

MARK_VARIABLE = b"CLAUDEOPS_RUN="
PASSING_PLACES = ("handoffs", "spool", "runs")
"""Folders of the state directory whose files live no longer than a run or a step to the next."""


def living_processes(marks: Iterable[str], drill: Path) -> list[str]:
    """Whoever carries a mark of the round, stands in its directory or was told about it."""
    told = [mark.encode() for mark in marks if mark]
    return [
        f"{process.name} ({_command(process).replace(chr(0), ' ').strip()[:80]})"
        for process in Path("/proc").iterdir()
        if process.name.isdigit()
        and int(process.name) != os.getpid()
        and _belongs(process, told, drill)
    ]


def left_files(state: Path, sessions: Iterable[int]) -> list[str]:
    own = {str(number) for number in sessions}
    return [name for name in passing_files(state) if own & set(re.findall(r"[0-9]+", name))]


def passing_files(state: Path) -> list[str]:
    """Nothing but these folders' files with something in them: an empty one holds no secret. What
    goes while one looks is not left."""
    found = []
    for place in PASSING_PLACES:
        for folder, _folders, names in os.walk(state / place):
            for path in (Path(folder, name) for name in names):
                with contextlib.suppress(FileNotFoundError):
                    if path.stat().st_size and path.is_file():
                        found.append(str(path.relative_to(state)))
    return sorted(found)


def left_after_all(state: Path, drills: Path) -> list[str]:
    """When every round is over and every service stopped, whosoever it was."""
    files = [f"the file {name} was left behind" for name in passing_files(state)]
    processes = living_processes([], drills.resolve())
    return files + [f"the process {process} was left behind" for process in processes]


def children(pid: int) -> list[int]:
    numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [number for number in numbers if _stat(number)[1:2] == [str(pid)]]


def is_same(pid: int, started: int) -> bool:
    """Whether a number still means the process that was started at that tick of the clock."""
    return _stat(pid)[19:20] == [str(started)]


def _stat(pid: int) -> list[str]:
    """What the kernel says after the name, which may itself hold spaces; nothing of a dead one."""
    fields = _read(Path(f"/proc/{pid}/stat")).decode(errors="replace").rpartition(")")[2].split()
    return [] if fields[:1] in (["Z"], ["X"]) else fields


def _belongs(process: Path, marks: list[bytes], drill: Path) -> bool:
    """A process that is dead already has neither a directory nor an environment."""
    environment = _read(process / "environ").split(b"\0")
    carried = [word for word in environment if word.startswith(MARK_VARIABLE)]
    if any(mark in word for word in carried for mark in marks):
        return True
    if f"{drill}/" in _command(process) + "/":
        return True
    try:
        directory = (process / "cwd").readlink()
    except OSError:
        return False
    return directory == drill or drill in directory.parents


def _command(process: Path) -> str:
    return _read(process / "cmdline").decode(errors="replace")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
