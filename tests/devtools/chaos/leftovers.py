"""Finds processes and files of an experiment that are still there."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

MARK_VARIABLE = b"CLAUDEOPS_RUN="
PASSING_PLACES = ("handoffs", "spool", "runs")
"""Directories whose files exist only during a run."""


def living_processes(marks: Iterable[str], drill: Path) -> list[str]:
    """Return processes with a mark, a directory or an argument of the experiment."""
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
    """Return the files with content in these directories, of these sessions."""
    found = []
    for place in PASSING_PLACES:
        for folder, _folders, names in os.walk(state / place):
            for path in (Path(folder, name) for name in names):
                with contextlib.suppress(FileNotFoundError):
                    if path.stat().st_size and path.is_file():
                        found.append(str(path.relative_to(state)))
    return sorted(found)


def left_after_all(state: Path, drills: Path) -> list[str]:
    """Return what is left after all experiments and services have ended."""
    files = [f"the file {name} was left behind" for name in passing_files(state)]
    processes = living_processes([], drills.resolve())
    return files + [f"the process {process} was left behind" for process in processes]


def children(pid: int) -> list[int]:
    numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [number for number in numbers if _stat(number)[1:2] == [str(pid)]]


def is_same(pid: int, started: int) -> bool:
    """Whether a process id still belongs to the process with that start time."""
    return _stat(pid)[19:20] == [str(started)]


def _stat(pid: int) -> list[str]:
    """Return the fields after the name; empty for a dead process."""
    fields = _read(Path(f"/proc/{pid}/stat")).decode(errors="replace").rpartition(")")[2].split()
    return [] if fields[:1] in (["Z"], ["X"]) else fields


def _belongs(process: Path, marks: list[bytes], drill: Path) -> bool:
    """Read a link or file of a process; empty for a dead one."""
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
