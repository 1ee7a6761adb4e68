"""All processes of a run: the CLI, its tools, and the processes that tools started.

Tools run in sessions of their own and survive a kill of the CLI's process group. They are found by
descent, by the recorded sessions of tool shells, and by a mark in the environment. A process is
identified by pid and start time, because pids are reused.

This reads /proc directly. psutil gives the start as a time of day, which changes with the clock,
knows no sessions, and stops reading an environment at the first gap.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
TOOL_LINE = re.compile(r"([0-9]{1,10}) ([0-9]{1,19})")
SANDBOX_NAME = b"bwrap"
LOOK_SECONDS = 0.1
KILL_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ProcessId:
    pid: int
    started: int
    """In clock ticks since boot."""

    @property
    def is_alive(self) -> bool:
        return started_at(self.pid) == self.started

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.is_alive:
                os.kill(self.pid, number)


@dataclass(frozen=True, slots=True)
class _Entry:
    process: ProcessId
    parent: int
    session: int


def process_id(pid: int) -> ProcessId | None:
    started = started_at(pid)
    return None if started is None else ProcessId(pid, started)


def started_at(pid: int) -> int | None:
    entry = _entry(pid)
    return entry.process.started if entry else None


def recorded_tools(log: Path) -> list[ProcessId]:
    """Return the recorded tool shells; incomplete lines are ignored."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return []
    found = (TOOL_LINE.fullmatch(line) for line in lines)
    return [ProcessId(int(pair[1]), int(pair[2])) for pair in found if pair]


def family(root: ProcessId | None, tools: list[ProcessId], mark: str) -> set[ProcessId]:
    """Return all living processes of a run, except the current process."""
    entries = {entry.process.pid: entry for entry in _entries()}
    found = {entry.process.pid for entry in entries.values() if _has_mark(entry, mark)}
    if root is not None and root.is_alive:
        found.add(root.pid)
    sessions = {tool.pid for tool in tools if _is_still(tool, entries)}
    found |= {entry.process.pid for entry in entries.values() if entry.session in sessions}
    grown = True
    while grown:
        children = {pid for pid, entry in entries.items() if entry.parent in found} - found
        found |= children
        grown = bool(children)
    return {entries[pid].process for pid in found if pid in entries and pid != os.getpid()}


def stop_family(
    find: Callable[[], set[ProcessId]],
    grace_seconds: float,
    wait: Callable[[float], None] = time.sleep,
) -> set[ProcessId]:
    """Send SIGTERM to every process, wait, then kill what is left; return survivors.

    A sandbox ends by itself when it is empty. It gets no SIGTERM, because it would kill its
    processes before they could write their last output.
    """
    asked: set[ProcessId] = set()
    give_up = time.monotonic() + grace_seconds
    while (living := find()) and time.monotonic() < give_up:
        for process in living - asked:
            if not _is_sandbox(process):
                process.send(signal.SIGTERM)
        asked |= living
        wait(LOOK_SECONDS)
    give_up = time.monotonic() + KILL_TIMEOUT_SECONDS
    while (living := find()) and time.monotonic() < give_up:
        for process in living:
            process.send(signal.SIGKILL)
        wait(LOOK_SECONDS / 10)
    return find()


def boot_id() -> str:
    """Return the id of this boot: pids of an earlier one mean nothing."""
    try:
        return (PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _is_sandbox(process: ProcessId) -> bool:
    return _read(process.pid, "comm").strip() == SANDBOX_NAME


def _entries() -> list[_Entry]:
    numbers = [int(name) for name in os.listdir(PROC) if name.isdigit()]
    return [entry for entry in map(_entry, numbers) if entry is not None]


def _entry(pid: int) -> _Entry | None:
    # The name stands in parentheses and may itself hold spaces and parentheses.
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    if len(fields) < 20 or fields[0] in {b"Z", b"X"}:
        return None  # gone, or a zombie
    return _Entry(ProcessId(pid, int(fields[19])), int(fields[1]), int(fields[3]))


def _has_mark(entry: _Entry, mark: str) -> bool:
    return bool(mark) and mark.encode() in _read(entry.process.pid, "environ")


def _read(pid: int, name: str) -> bytes:
    """Return a file of /proc; empty if the process is gone or belongs to another user."""
    try:
        with open(f"{PROC}/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""


def _is_still(tool: ProcessId, entries: dict[int, _Entry]) -> bool:
    """Return False if the pid now belongs to a process that started later."""
    leader = entries.get(tool.pid)
    return leader is None or leader.process.started == tool.started
