"""Sandbox of a session and decisions on its commands, as plain values.

They are stored as JSON, in which values may be missing or have another type.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from sessions_app.models import Session, SessionEvent
from sessions_app.models.session import EventKind, Verdict
from sessions_app.text import as_text, cut, mapping, one_line

VERDICTS = {
    str(verdict): str(verdict.label)
    for verdict in (Verdict.DENY, Verdict.ASK, Verdict.ISOLATE, Verdict.ALLOW)
}
"""Labels of the verdicts, the most important first."""
LONGEST_COMMAND = 4_000
SHORT_COMMAND = 110
LONGEST_DIFF = 20_000


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxFacts:
    sandbox: str = ""
    """The program, as in "bubblewrap 0.8.0"; empty without a sandbox."""
    why_no_sandbox: str = ""
    key_is_outside: bool = False
    has_key: bool = True
    why_key_inside: str = ""
    grants: tuple[str, ...] | None = None
    """None if not recorded."""
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
    grants: tuple[str, ...]
    actions: tuple[str, ...]
    cwd: str
    milliseconds: float | None
    """Duration of the decision."""
    call: str
    """Id that links the end of the command to it, if recorded."""
    parent: str = ""
    """Call of the shell text that a program ran in; empty for a shell text."""
    exit_code: int | None = None
    took_ms: float | None = None

    @property
    def is_denied(self) -> bool:
        return self.verdict == Verdict.DENY

    @property
    def word(self) -> str:
        return VERDICTS.get(self.verdict, self.verdict or "not judged")

    @property
    def short(self) -> str:
        return one_line(self.command, SHORT_COMMAND)

    @property
    def is_short(self) -> bool:
        return self.short == self.command


def read_sandbox(value: Any) -> SandboxFacts | None:
    """Return the recorded sandbox, also of earlier versions, or None."""
    data = mapping(value)
    if not data:
        return None
    grants = data.get("grants", data.get("doors"))
    return SandboxFacts(
        sandbox=as_text(data.get("sandbox", data.get("rooms"))),
        why_no_sandbox=as_text(data.get("why_no_sandbox", data.get("why_no_rooms"))),
        key_is_outside=data.get("key") in ("proxy", "gateway"),
        has_key=data.get("key") != "none",
        why_key_inside=as_text(data.get("why_key_inside")),
        grants=None if grants is None else _words(grants),
        writable=_words(data["writable"]) if "writable" in data else None,
        changes_nothing=data.get("changes_nothing") is True,
        limits=as_text(data.get("limits")),
    )


def judged_commands(events: Iterable[SessionEvent]) -> list[JudgedCommand]:
    """Return the commands in order. An end without an id belongs to the oldest running one."""
    found: list[JudgedCommand] = []
    running: deque[int] = deque()
    for event in events:
        data = mapping(event.payload)
        if event.kind == EventKind.COMMAND:
            found.append(_command(event, data))
            if not found[-1].is_denied:
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
        grants=_words(data.get("grants")),
        actions=_words(data.get("actions")),
        cwd=as_text(data.get("cwd")),
        milliseconds=_number(data.get("milliseconds")),
        call=as_text(data.get("call")),
        parent=as_text(data.get("parent")),
    )


def _words(value: Any) -> tuple[str, ...]:
    return tuple(map(as_text, value)) if isinstance(value, list) else ()


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None


MOST_SHOWN = 100
MOST_DENIALS = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class DryCommand:
    """Command or edit that was denied because of a dry run."""

    session: int
    tier: int
    command: str
    diff: str = ""
    """Redacted diff of an edit."""


def is_dry(session: Session) -> bool:
    """Return True if the session ran as a dry run, by its recorded sandbox."""
    sandbox = read_sandbox(session.sandbox)
    return sandbox is not None and sandbox.changes_nothing and not session.is_question


@dataclass(frozen=True, kw_only=True, slots=True)
class DeniedCommand:
    """Command that was denied at the tier of its session, and that a higher tier would run."""

    session: int
    allowed_from: int
    """The lowest tier that would run it."""
    command: str


def denied_commands(sessions: Iterable[Session]) -> tuple[DeniedCommand, ...]:
    """Return what was denied in these sessions and what a tier would run, each once, in order.

    Makes at most one query.
    """
    numbers = [session.pk for session in sessions]
    if not numbers:
        return ()
    found: dict[DeniedCommand, None] = {}
    for event in _denials(numbers).only("session_id", "payload")[:MOST_DENIALS]:
        data = mapping(event.payload)
        command = one_line(as_text(data.get("command")), LONGEST_COMMAND)
        one = DeniedCommand(
            session=event.session_id, allowed_from=data["allowed_from"], command=command
        )
        found[one] = None
    return tuple(found)


def _denials(sessions: Iterable[int]) -> QuerySet[SessionEvent]:
    """Return the events of commands that were denied and that some tier would run."""
    return SessionEvent.objects.filter(
        session__in=sessions,
        source=SessionEvent.Source.SUPERVISOR,
        kind=EventKind.COMMAND,
        payload__verdict=Verdict.DENY,
        payload__allowed_from__gt=0,
    ).order_by("session_id", "sequence")


def would_have_run(sessions: Iterable[Session]) -> tuple[DryCommand, ...]:
    """Return what dry runs would have run and edited, each once, with at most one query."""
    tiers = {session.pk: session.tier for session in sessions if is_dry(session)}
    if not tiers:
        return ()
    found: dict[DryCommand, None] = {}
    for event in _denials(tiers).only("session_id", "payload"):
        data, tier = mapping(event.payload), tiers[event.session_id]
        if data["allowed_from"] <= tier:
            command = cut(as_text(data.get("command")), LONGEST_COMMAND)
            one = DryCommand(
                session=event.session_id,
                tier=tier,
                command=command,
                diff=cut(as_text(data.get("diff")), LONGEST_DIFF),
            )
            found[one] = None
    return tuple(found)[:MOST_SHOWN]
