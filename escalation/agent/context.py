"""How much a conversation fills, and how much a model holds, as this CLI tells it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from escalation.agent.stream import MAX_COUNT, tokens_in

SMALLEST_WINDOW = 200_000
LARGE_WINDOW = 1_000_000

# By the version from which on it was so: seen by experiment with 2.1.197 and 2.1.325. A version in
# between counts as the older one: a window that is thought too small costs a handoff, one that is
# thought too large costs the run.
DEFAULT_WINDOWS: tuple[tuple[tuple[int, ...], dict[str, int]], ...] = (
    (
        (2, 1, 325),
        {
            "haiku": LARGE_WINDOW,
            "sonnet": LARGE_WINDOW,
            "opus": LARGE_WINDOW,
            "claude-haiku-5-5": LARGE_WINDOW,
            "claude-sonnet-5-5": LARGE_WINDOW,
            "claude-opus-5-5": LARGE_WINDOW,
        },
    ),
    ((0,), {}),
)


def default_window(model: str, cli_version: str) -> int:
    """For a model of which no run with this version of the CLI has reported its window yet."""
    version = _numbers(cli_version)
    known = next(windows for since, windows in DEFAULT_WINDOWS if version >= since)
    return known.get(model, SMALLEST_WINDOW)


def occupancy_of(entries: Iterable[dict[str, Any]]) -> int:
    """The tokens of the last answer on the main thread of a transcript, and all before it.

    Each block of an answer is an entry of its own. The stream gives the output as it stood when the
    answer began; only the transcript has what it came to.
    """
    answers: dict[str, int] = {}
    for entry in entries:
        if number := _answer_id(entry):
            answers[number] = max(answers.pop(number, 0), _filled(entry["message"]))
    return next(reversed(answers.values()), 0)


def _answer_id(entry: dict[str, Any]) -> str:
    message = entry.get("message")
    if entry.get("type") != "assistant" or not isinstance(message, dict):
        return ""
    if entry.get("isSidechain") is True or message.get("model") == "<synthetic>":
        return ""
    return str(message.get("id") or entry.get("uuid") or "")


def _filled(message: dict[str, Any]) -> int:
    usage = message.get("usage")
    tokens = tokens_in(usage if isinstance(usage, dict) else {})
    return min(MAX_COUNT, tokens.input + tokens.cache_read + tokens.cache_creation + tokens.output)


def _numbers(cli_version: str) -> tuple[int, ...]:
    found = re.match(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})", cli_version)
    return tuple(int(number) for number in found.groups()) if found else (0,)
