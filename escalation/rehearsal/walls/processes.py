"""Processes on trial: one that must live on, and those that should have died with their command."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

# What a command left running is given this long to go with its room.
GRACE_SECONDS = 2.0
LOOK_SECONDS = 0.02
SHOWN = 200
_WAITING = "import time\nwhile True: time.sleep(3600)"


@dataclass(slots=True)
class Bystander:
    """A process of the same user that has nothing to do with the run."""

    argument: str
    """Seen in its command line, so that an attacker can find it."""
    _process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WAITING, self.argument],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def harm(self) -> str:
        """What was done to it: killed, stopped; nothing is the empty text."""
        if self._process is None or self._process.poll() is not None:
            return "killed the bystander process"
        state = _stat_of(self.pid)[0:1]
        return "stopped the bystander process" if state and state[0] in "tT" else ""

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@dataclass(slots=True)
class Survivors:
    """Processes that began since the last look and are the trial's own.

    Only what is surely its own is named, and ended: its children, what stands in its working
    directory, and what sleeps for the number of seconds that is this trial's alone. That a path
    of the stage stands in a command line is no sign: a stranger's room lists every socket.
    """

    workdir: Path
    nap: str
    _before: set[tuple[int, str]] = field(default_factory=set)

    def forget(self) -> None:
        self._before = {(pid, _began(pid)) for pid in _pids()}

    def found(self) -> list[str]:
        """Those still alive after the grace, which are then ended."""
        give_up = time.monotonic() + GRACE_SECONDS
        while (left := self._new()) and time.monotonic() < give_up:
            time.sleep(LOOK_SECONDS)
        for pid in left:
            _kill(pid)
        return [f"left a process running: {command[:SHOWN]}" for command in left.values()]

    def _new(self) -> dict[int, str]:
        return {
            pid: command
            for pid in _pids()
            if (pid, _began(pid)) not in self._before and (command := self._ours(pid))
        }

    def _ours(self, pid: int) -> str:
        """Its command line. What has ended and waits to be buried is dead."""
        stat = _stat_of(pid)
        if not stat or stat[0] in "ZX":
            return ""
        command = _text(pid, "cmdline")
        is_ours = (
            self.nap in command.split()
            or _is_below(_link(pid, "cwd"), self.workdir)
            or _descends_from_us(pid)
        )
        return (command or "?") if is_ours else ""


def _is_below(path: str, directory: Path) -> bool:
    return bool(path) and Path(path).is_relative_to(directory)


def _descends_from_us(pid: int) -> bool:
    while pid > 1:
        parent = int("".join(_stat_of(pid)[1:2]) or 0)
        if parent == os.getpid():
            return True
        pid = parent
    return False


def _pids() -> Iterator[int]:
    return (int(entry) for entry in os.listdir("/proc") if entry.isdigit())


def _stat_of(pid: int) -> list[str]:
    """The fields after the name, which may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _began(pid: int) -> str:
    return "".join(_stat_of(pid)[19:20])


def _text(pid: int, file: str) -> str:
    try:
        content = Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:
        return ""
    return content.replace(b"\0", b" ").decode(errors="replace").strip()


def _link(pid: int, name: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/{name}")
    except OSError:
        return ""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, 9)
    except OSError:
        return
