"""Every Bash call of the stream is held against what the gate decided: none may run without.

The gate sees a command before it runs, so its decision is there before the stream can bring a
result. A result without a decision means that the command went past the walls (a CLI that does not
know the shell prefix, say), and the run must not go on.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

from sessions_app.reading import stream_shape as shape

BASH = "Bash"
# How the CLI begins the result of a command that ran and failed; other errors are its own refusals.
RAN_AND_FAILED = ("Exit code", "Command failed", "Command timed out")


class UnguardedCommands:
    """Decisions come from the gate's threads, lines from the run's own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._decided: Counter[str] = Counter()
        self._asked: dict[str, str] = {}

    def decided(self, command: str) -> None:
        with self._lock:
            self._decided[_compared(command)] += 1

    def look_at(self, line: Mapping[str, Any]) -> str:
        """The first command of the line's results that ran without a decision, or nothing."""
        for call in shape.calls_of(line):
            if call.get("name") == BASH:
                command = shape.text(shape.mapping(call.get("input")).get("command"))
                self._asked[shape.text(call.get("id"))] = command
        for result in shape.results_of(line):
            command = self._asked.pop(shape.text(result.get("tool_use_id")), "")
            if command and _has_run(result) and not self._was_decided(command):
                return command
        return ""

    def _was_decided(self, command: str) -> bool:
        with self._lock:
            if not self._decided[_compared(command)]:
                return False
            self._decided[_compared(command)] -= 1
            return True


def _has_run(result: Mapping[str, Any]) -> bool:
    if not result.get("is_error"):
        return True
    return shape.output_of(result).startswith(RAN_AND_FAILED)


def _compared(command: str) -> str:
    """The CLI takes some spaces away before it runs a command."""
    return " ".join(command.split())
