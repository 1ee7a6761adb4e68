"""What held a run, and what the gate said to each of its commands, as plain values.

Both are JSON of the record: whatever is missing or of another type is normal here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sessions_app.models import SessionEvent
from sessions_app.reading.plain_text import as_text, cut, one_line
from sessions_app.reading.stream_shape import mapping

GATE, GATE_END = "gate", "gate_end"
ALLOW, CONTAIN, DENY, ASK = "allow", "contain", "deny", "ask"
VERDICTS = {DENY: "denied", ASK: "asked for", CONTAIN: "contained", ALLOW: "allowed"}
"""What needs a look first."""
LONGEST_COMMAND = 4_000
SHORT_COMMAND = 110


@dataclass(frozen=True, kw_only=True, slots=True)
class Walls:
    rooms: str = ""
    """What makes the rooms, as in "bubblewrap 0.8.0"; empty where there are none."""
    why_no_rooms: str = ""
    key_is_outside: bool = False
    has_key: bool = True
    why_key_inside: str = ""
    doors: tuple[str, ...] | None = None
    """None where that depends on tier and watch."""
    writable: tuple[str, ...] | None = None
    changes_nothing: bool = False
    limits: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedCommand:
    at: datetime
    command: str
    verdict: str
    rule: str
    reason: str
    doors: tuple[str, ...]
    actions: tuple[str, ...]
    cwd: str
    milliseconds: float | None
    """How long the decision took."""
    call: str
    """Which end belongs to it, where that is recorded."""
    exit_code: int | None = None
    took_ms: float | None = None

    @property
    def word(self) -> str:
        return VERDICTS.get(self.verdict, self.verdict or "not judged")

    @property
    def short(self) -> str:
        return one_line(self.command, SHORT_COMMAND)

    @property
    def is_short(self) -> bool:
        return self.short == self.command


def read_walls(value: Any) -> Walls | None:
    """None where nothing was recorded."""
    data = mapping(value)
    if not data:
        return None
    return Walls(
        rooms=as_text(data.get("rooms")),
        why_no_rooms=as_text(data.get("why_no_rooms")),
        key_is_outside=data.get("key") == "gateway",
        has_key=data.get("key") != "none",
        why_key_inside=as_text(data.get("why_key_inside")),
        doors=_words(data["doors"]) if "doors" in data else None,
        writable=_words(data["writable"]) if "writable" in data else None,
        changes_nothing=data.get("changes_nothing") is True,
        limits=as_text(data.get("limits")),
    )


def judged_commands(events: Iterable[SessionEvent]) -> list[JudgedCommand]:
    """In their order. An end without a name belongs to the oldest command that still runs."""
    found: list[JudgedCommand] = []
    running: deque[int] = deque()
    for event in events:
        data = mapping(event.payload)
        if event.kind == GATE:
            found.append(_command(event, data))
            if found[-1].verdict != DENY:
                running.append(len(found) - 1)
        elif running:
            call = as_text(data.get("call"))
            at = next((number for number in running if found[number].call == call), running[0])
            running.remove(at)
            code = data.get("exit_code")
            found[at] = replace(
                found[at],
                exit_code=code if isinstance(code, int) else None,
                took_ms=_number(data.get("milliseconds")),
            )
    return found


def _command(event: SessionEvent, data: Mapping[str, Any]) -> JudgedCommand:
    return JudgedCommand(
        at=event.created_at,
        command=cut(as_text(data.get("command")), LONGEST_COMMAND),
        verdict=as_text(data.get("verdict")),
        rule=as_text(data.get("rule")),
        reason=as_text(data.get("reason")),
        doors=_words(data.get("doors")),
        actions=_words(data.get("actions")),
        cwd=as_text(data.get("cwd")),
        milliseconds=_number(data.get("milliseconds")),
        call=as_text(data.get("call")),
    )


def _words(value: Any) -> tuple[str, ...]:
    return tuple(map(as_text, value)) if isinstance(value, list) else ()


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None
