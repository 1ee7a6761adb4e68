"""What a run has used, by the gateway's own count, and the file that outlives the process.

Each answer is written down twice: when it begins (what was read is charged from then on) and when
it ends. The second line takes the place of the first, by the answer's name.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from escalation.agent import Tokens

logger = logging.getLogger(__name__)
MAX_MODEL_LENGTH = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """One answer's."""

    model: str
    tokens: Tokens
    complete: bool
    """False while it streams, and for ever if it was cut off: then this is the least it was."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Spending:
    by_model: dict[str, Tokens] = field(default_factory=dict)
    answers: int = 0
    cut_off: int = 0
    """Answers whose end was not seen (yet): their true usage may be higher."""

    @property
    def tokens(self) -> Tokens:
        return sum(self.by_model.values(), Tokens())


class Ledger:
    """Counts answers and writes each down at once. Any thread may note."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        # What is settled is summed once: the sum is wanted before every request.
        answers = _read(path)
        self._settled = _sum(usage for usage in answers.values() if usage.complete)
        self._unsettled = {name: usage for name, usage in answers.items() if not usage.complete}

    @property
    def spending(self) -> Spending:
        with self._lock:
            return _sum(self._unsettled.values(), self._settled)

    def new_name(self) -> str:
        return secrets.token_hex(6)

    def note(self, name: str, usage: Usage) -> None:
        """What is complete is noted once, and last. A disk that is full takes nothing from the
        count that this process goes by."""
        entry = {"answer": name, "model": usage.model, "complete": usage.complete}
        line = json.dumps({**entry, **asdict(usage.tokens)}) + "\n"
        with self._lock:
            if usage.complete:
                self._unsettled.pop(name, None)
                self._settled = _sum([usage], self._settled)
            else:
                self._unsettled[name] = usage
            try:
                _append(self._path, line.encode())
            except OSError as problem:
                logger.warning("The usage of an answer was not written down: %s", problem)


def read_ledger(path: Path) -> Spending:
    """What the file proves; torn and foreign lines prove nothing."""
    return _sum(_read(path).values())


def _append(path: Path, line: bytes) -> None:
    """A line begins on a line of its own, even after one that was torn."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        os.write(descriptor, b"\n" * torn + line)
    finally:
        os.close(descriptor)


def _read(path: Path) -> dict[str, Usage]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    answers = {}
    for line in content.splitlines():
        if (entry := _entry(line)) is not None:
            name, usage = entry
            answers[name] = usage
    return answers


def _entry(line: bytes) -> tuple[str, Usage] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    name, model, complete = entry.get("answer"), entry.get("model"), entry.get("complete")
    if not isinstance(name, str) or not isinstance(model, str) or not isinstance(complete, bool):
        return None
    tokens = Tokens(**{kind: _count(entry.get(kind)) for kind in asdict(Tokens())})
    return name, Usage(model=model[:MAX_MODEL_LENGTH], tokens=tokens, complete=complete)


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _sum(answers: Iterable[Usage], before: Spending = Spending()) -> Spending:  # noqa: B008 (frozen)
    by_model = dict(before.by_model)
    seen = list(answers)
    for usage in seen:
        by_model[usage.model] = by_model.get(usage.model, Tokens()) + usage.tokens
    return Spending(
        by_model=by_model,
        answers=before.answers + len(seen),
        cut_off=before.cut_off + sum(not usage.complete for usage in seen),
    )
