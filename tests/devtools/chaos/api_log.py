"""Reads the log of the scripted API: requests, offered and served answers.

It shares no code with the recording of a run, and is not on the disk that is filled.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KINDS = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)
"""The kinds of tokens, as the API names them."""

Usage = dict[str, int]


@dataclass(slots=True, kw_only=True)
class LoggedExchange:
    """One request of a run and its answer."""

    run: str
    """The key of the session."""
    conversation: str
    """The id under which the CLI was started."""
    model: str
    messages: str
    """The conversation as it was sent, as JSON."""
    offered: Usage
    served: bool = False


def exchanges(log: Path) -> list[LoggedExchange]:
    found: list[LoggedExchange] = []
    for entry in _entries(log):
        if "body" in entry:
            found.append(_exchange(entry))
            continue
        waiting = [one for one in found if one.run == entry["run"] and not one.served]
        if waiting:
            waiting[-1].served = True
    return found


def total(usages: list[Usage]) -> Usage:
    return {kind: sum(usage.get(kind, 0) for usage in usages) for kind in KINDS}


def _exchange(entry: dict[str, Any]) -> LoggedExchange:
    body = entry["body"]
    user = json.loads(body["metadata"]["user_id"])
    return LoggedExchange(
        run=entry["run"],
        conversation=user["session_id"],
        model=body["model"],
        messages=json.dumps(body["messages"]),
        offered=entry["offered"],
    )


def _entries(log: Path) -> list[dict[str, Any]]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [entry for line in lines if (entry := _entry(line)) is not None]


def _entry(line: str) -> dict[str, Any] | None:
    """Skip incomplete lines, which a killed server leaves."""
    for start in (0, line.rfind('{"tier": ')):
        try:
            entry: dict[str, Any] = json.loads(line[max(0, start) :])
        except ValueError:
            continue
        return entry
    return None
