"""Processor time and memory of processes, from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
NANOSECONDS = 1e9
# Fields after the name in brackets.
PARENT, USER_TICKS, SYSTEM_TICKS = 1, 11, 12


class Memory(NamedTuple):
    rss_mb: float
    """Resident size; shared memory is counted for each process."""
    pss_mb: float | None
    """Proportional size; shared memory is divided among the processes."""


def with_descendants(roots: Iterable[int]) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))):
            children.setdefault(int(stat[PARENT]), []).append(int(entry.name))
    found = list(roots)
    for process in found:  # grows while it is walked
        found += children.get(process, [])
    return found


def busy_seconds(processes: Iterable[int]) -> float:
    """Return the processor time of the processes that are alive."""
    return sum(_busy(process) for process in processes)


def memory_of(processes: Iterable[int]) -> Memory:
    rolls = [_rollup(process) for process in processes]
    shares = [roll.get("Pss") for roll in rolls]
    known = [share for share in shares if share is not None]
    return Memory(
        rss_mb=sum(roll.get("Rss", 0) for roll in rolls) / 1024,
        pss_mb=sum(known) / 1024 if len(known) == len(shares) else None,
    )


def _busy(process: int) -> float:
    """Read the scheduler's clock, or ticks of 10 ms without it."""
    try:
        threads = list((PROC / str(process) / "task").iterdir())
        spent = [int((thread / "schedstat").read_text().split()[0]) for thread in threads]
    except OSError:
        stat = _stat(process)
        ticks = int(stat[USER_TICKS]) + int(stat[SYSTEM_TICKS]) if stat else 0
        return ticks / os.sysconf("SC_CLK_TCK")
    return sum(spent) / NANOSECONDS


def _stat(process: int) -> list[str]:
    try:
        return (PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _rollup(process: int) -> dict[str, int]:
    """Return kilobytes by name; only the resident size without permission for more."""
    try:
        lines = (PROC / str(process) / "smaps_rollup").read_text().splitlines()[1:]
        return {line.split(":")[0]: int(line.split()[1]) for line in lines}
    except OSError:
        return _status(process)


def _status(process: int) -> dict[str, int]:
    try:
        lines = (PROC / str(process) / "status").read_text().splitlines()
    except OSError:
        return {}
    resident = [int(line.split()[1]) for line in lines if line.startswith("VmRSS:")]
    return {"Rss": resident[0]} if resident else {}
