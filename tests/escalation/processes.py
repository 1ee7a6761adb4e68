"""Runs small programs as a tier is run, and finds leftover processes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from escalation.agent.process import Ended, StopAsked, StreamInput, Watcher, run_process


@dataclass
class Ran:
    """A program that has ended, and all that it said."""

    stdout: list[bytes] = field(default_factory=list)
    stderr: list[bytes] = field(default_factory=list)
    ended: Ended | None = None
    seconds: float = 0.0

    @property
    def end(self) -> Ended:
        assert self.ended is not None
        return self.ended


def run_sh(script: str, directory: Path, **options) -> Ran:
    return run_argv(["/bin/sh", "-c", script], directory, **options)


def run_python(program: str, directory: Path, **options) -> Ran:
    return run_argv([sys.executable, "-IS", "-c", program], directory, **options)


def run_argv(
    argv: list[str],
    directory: Path,
    *,
    prompt: str | StreamInput = "",
    timeout: float = 20,
    stop: Callable[[Ran], StopAsked | None] = lambda ran: None,
    result: Callable[[Ran], bool] = lambda ran: False,
) -> Ran:
    ran = Ran()
    began = time.monotonic()
    ran.ended = run_process(
        argv,
        environment={"PATH": os.environ["PATH"]},
        cwd=directory,
        prompt=prompt,
        timeout_seconds=timeout,
        watcher=Watcher(
            on_stdout=ran.stdout.append,
            on_stderr=ran.stderr.append,
            has_result=lambda: result(ran),
            on_tick=lambda: stop(ran),
        ),
    )
    ran.seconds = time.monotonic() - began
    return ran


def is_alive(pid: int) -> bool:
    """Return whether the process runs; a zombie does not."""
    try:
        return psutil.Process(pid).status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    except psutil.NoSuchProcess:
        return False


def is_gone_soon(pid: int, seconds: float = 2.0) -> bool:
    return _soon(lambda: not is_alive(pid), seconds)


def group_is_gone_soon(group: int, seconds: float = 2.0) -> bool:
    return _soon(lambda: not _living_in(group), seconds)


def _soon(condition: Callable[[], bool], seconds: float) -> bool:
    give_up = time.monotonic() + seconds
    while not condition() and time.monotonic() < give_up:
        time.sleep(0.02)
    return condition()


def _living_in(group: int) -> list[int]:
    return [pid for pid in psutil.pids() if _group(pid) == group and is_alive(pid)]


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None
