"""What the page of one session shows, as plain values: its chain, its report and its events."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from sessions_app.chain import Chain, chain_of
from sessions_app.event_text import EventLine, describe_event
from sessions_app.models import Cycle, Session, SessionEvent
from sessions_app.report_text import Report, read_report

EVENTS_SHOWN = 500


@dataclass(frozen=True, slots=True)
class LogEntry:
    event: SessionEvent
    lines: tuple[EventLine, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Log:
    """A stretch of a session's events, oldest first."""

    entries: tuple[LogEntry, ...]
    first: int
    last: int
    has_earlier: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Overview:
    """Everything on the page that changes when the run moves on."""

    session: Session
    chain: Chain
    report: Report | None
    version: str

    @property
    def cycle(self) -> Cycle:
        return self.session.cycle

    @property
    def may_change(self) -> bool:
        return self.session.is_open or self.cycle.is_active


def load_overview(session: Session) -> Overview:
    chain = chain_of(session)
    return Overview(
        session=session,
        chain=chain,
        report=read_report(session.report),
        version=_version(session.cycle, chain),
    )


def _version(cycle: Cycle, chain: Chain) -> str:
    facts = (
        f"{cycle.state} {cycle.outcome} {cycle.outcome_reason}",
        [(s.pk, s.status, s.cost_usd, s.session_id, s.escalation_reason) for s in chain.sessions],
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def load_log(session_pk: int, before: int | None = None) -> Log:
    """The last events, or the last ones before a number. One more is read than shown, to know
    whether there are earlier ones without counting them all."""
    events = SessionEvent.objects.filter(session=session_pk).order_by("-sequence")
    if before is not None:
        events = events.filter(sequence__lt=before)
    newest_first = list(events[: EVENTS_SHOWN + 1])
    shown = newest_first[:EVENTS_SHOWN][::-1]
    return Log(
        entries=tuple(log_entries(shown)),
        first=shown[0].sequence if shown else 0,
        last=shown[-1].sequence if shown else -1,
        has_earlier=len(newest_first) > EVENTS_SHOWN,
    )


def log_entries(events: Iterable[SessionEvent]) -> list[LogEntry]:
    entries = [
        LogEntry(event, describe_event(event.source, event.kind, event.payload)) for event in events
    ]
    return [entry for entry in entries if entry.lines]
