"""Sessions and their messages in a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from django.utils import timezone

from escalation.management.chain_text import remarks_on
from escalation.management.tables import Cell
from escalation.run.admission import objection
from sessions_app.archive.messages import StoredMessage
from sessions_app.models import Session
from sessions_app.reading.chain_data import answer_text
from sessions_app.reading.event_text import describe_event, summary_line
from sessions_app.reading.formatting import cost, duration, money
from sessions_app.reading.plain_text import clean

HEADINGS = ("session", "started", "of", "tier", "model", "status", "cost")
TONES = {
    Session.Status.RUNNING: "live",
    Session.Status.COMPLETED: "good",
    Session.Status.ESCALATED: "good",
    Session.Status.FAILED: "bad",
    Session.Status.TIMED_OUT: "bad",
    Session.Status.INTERRUPTED: "warn",
    Session.Status.AWAITING_APPROVAL: "warn",
}


def list_row(session: Session) -> tuple[Cell | str, ...]:
    paid = cost(session.cost_usd, session.estimated_cost_usd)
    return (
        f"#{session.pk}",
        _moment(session.started_at),
        session.cycle.subject,
        f"Tier {session.tier}",
        session.model,
        Cell(session.get_status_display(), TONES.get(Session.Status(session.status), "")),
        f"{paid}{remarks_on(session.cycle)}",
    )


def stretch_line(shown: int, total: int, offset: int, what: str) -> str:
    """Which part of the whole this was, and how to see the next."""
    if not shown:
        return f"No {what} here; {total} in all."
    end = offset + shown
    more = f" The next ones: --offset {end}" if end < total else ""
    return f"{what.capitalize()} {offset + 1} to {end} of {total}.{more}"


def show_lines(session: Session) -> Iterator[str]:
    yield (
        f"Session {session.pk} of {session.cycle.subject}: Tier {session.tier}, "
        f"{session.get_status_display()}{remarks_on(session.cycle)}"
    )
    for name, value in _facts(session).items():
        if value:
            yield f"  {name:14} {value}"
    yield from answer_lines(session)


def answer_lines(session: Session) -> Iterator[str]:
    """The whole answer to a question, as it was written."""
    if answer := clean(answer_text(session)):
        yield ""
        yield answer


def message_lines(message: StoredMessage) -> Iterator[str]:
    payload = {"type": message.type, "message": message.message}
    lines = describe_event("stream", message.type, payload)
    for position, line in enumerate(lines):
        yield f"{f'{message.number}.' if position == 0 else '':5} {summary_line(line)}"


def _facts(session: Session) -> dict[str, str]:
    cycle = session.cycle
    used = f", used {session.model_used}" if session.model_used else ""
    why = f": {session.continued_why}" if session.continued_why else ""
    return {
        "cycle": f"{cycle.pk}, {cycle.get_outcome_display() or cycle.get_state_display()}",
        "purpose": str(session.get_purpose_display()),
        "waits": _waits(session),
        "asked for": session.request,
        "parent": f"#{session.parent_session_id}" if session.parent_session_id else "",
        "model": f"{session.model}{used}",
        "limits": _limits(session),
        "conversation": session.session_id,
        "begun by": f"{session.get_continued_by_display()}{why}",
        "cost": cost(session.cost_usd, session.estimated_cost_usd),
        "tokens": f"{session.input_tokens} in, {session.output_tokens} out",
        "turns": str(session.turns),
        "duration": duration(session.duration_ms),
        "started": _moment(session.started_at),
        "finished": _moment(session.finished_at),
        "directory": session.workdir,
        "host": session.host,
        "CLI": session.cli_version,
        "report": (session.report or {}).get("summary", ""),
        "decision": session.escalation_reason,
        "error": session.error,
    }


def _waits(session: Session) -> str:
    return objection(session) if session.status == Session.Status.QUEUED else ""


def _limits(session: Session) -> str:
    """Only what a person chose for this run: the tier's own are in the settings."""
    turns = f"at most {session.max_turns} turns" if session.max_turns else ""
    budget = f"at most {money(session.max_budget_usd)}" if session.max_budget_usd else ""
    return ", ".join(filter(None, (turns, budget)))


def _moment(moment: datetime | None) -> str:
    return timezone.localtime(moment).strftime("%Y-%m-%d %H:%M") if moment else ""
