"""What is written down of each command: the decision before it runs, and how it ended."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import datetime

from escalation.gate.decision import Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class GateRecord:
    command: str
    verdict: Verdict
    rule: str
    reason: str
    doors: tuple[str, ...]
    actions: tuple[str, ...]
    decision_ms: float
    cwd: str
    at: datetime
    changes: tuple[str, ...] = ()
    may_repeat: bool = False
    allowed_from: int = 0
    call: str = field(default_factory=lambda: secrets.token_hex(4))
    """Tells two calls of the same command apart."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandEnd:
    exit_code: int
    run_ms: float
    room: str
    """Where it ran: "room", "host", or "" for what did not run."""
    has_run: bool = True
    """False where it was denied, or its room could not be entered."""
