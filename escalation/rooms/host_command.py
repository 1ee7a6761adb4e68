"""A command on the host itself: what cannot work in a room, or all of them where there is none."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from escalation.agent import ProcessId, family, process_id, stop_family
from escalation.rooms.place import RunPlace

COMMAND_MARK = "CLAUDEOPS_COMMAND"
GRACE_SECONDS = 2.0


class HostCommand:
    """What one such command is known by: a mark in its environment and its session."""

    def __init__(self, place: RunPlace) -> None:
        self._place = place
        self._mark = uuid.uuid4().hex
        self._leader: ProcessId | None = None

    @property
    def environment(self) -> Mapping[str, str]:
        return {
            **self._place.tool_environment,
            "HOME": str(self._place.operator.home),
            COMMAND_MARK: self._mark,
        }

    def started(self, process: subprocess.Popen[bytes]) -> None:
        """Write it down: whoever takes over after our own death ends it by that."""
        self._leader = process_id(process.pid)
        if self._leader is not None and self._place.tool_log is not None:
            _append(self._place.tool_log, self._leader)

    def end_what_is_left(self) -> None:
        """Services that a service manager started on its behalf are not its own, and stay."""
        stop_family(self._living, GRACE_SECONDS)

    def _living(self) -> set[ProcessId]:
        sessions: Sequence[ProcessId] = [self._leader] if self._leader else []
        return family(self._leader, list(sessions), self._mark)


def _append(log: Path, process: ProcessId) -> None:
    line = f"{process.pid} {process.started}\n".encode()
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)
