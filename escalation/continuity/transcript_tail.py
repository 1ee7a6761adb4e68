"""What a run said last, when its last lines did not reach us: the CLI wrote them down itself."""

from __future__ import annotations

from escalation.agent import Entry
from escalation.continuity import transcripts
from sessions_app.models import Session
from sessions_app.reading import stream_shape as shape


def own_and_unheard(session: Session) -> tuple[list[Entry], list[Entry]]:
    """All messages of this run in its transcript, and those not among its stored events."""
    heard = {
        str(payload.get("uuid"))
        for payload in session.events.values_list("payload", flat=True)
        if isinstance(payload, dict)
    }
    own = own_messages(session)
    return own, [entry for entry in own if str(entry.get("uuid")) not in heard]


def is_torn(session: Session, heard: set[str]) -> bool:
    """Whether the transcript lacks calls that were heard of, or that its parent's transcript has.

    A CLI that was killed, or had no room on its disk, has not written them down, and whoever
    resumes would not know of them. Where there is no transcript at all, a guard says so.
    """
    entries = transcripts.messages_on_disk(session)
    parent = session.parent_session if session.resumed else None
    inherited = _calls_in(transcripts.messages_on_disk(parent)) if parent is not None else set()
    return bool(entries) and not heard | inherited <= _calls_in(entries)


def _calls_in(entries: list[Entry]) -> set[str]:
    return {call for entry in entries for call in shape.begun_calls(entry)}


def own_messages(session: Session) -> list[Entry]:
    """What was said in this run, of all that its transcript holds.

    A fork begins with a copy of its parent's messages, which are older than the run; prompts are
    kept with the session; and what the CLI puts in by itself, such as an answer to a tool call that
    an earlier run left open, is nobody's word.
    """
    began = (session.started_at or session.created_at).isoformat()
    recent = [
        entry
        for entry in transcripts.messages_on_disk(session)
        if str(entry.get("timestamp", "")).replace("Z", "+00:00") >= began
    ]
    called = {
        call for entry in recent if shape.is_answer(entry) for call in shape.begun_calls(entry)
    }
    return [
        entry for entry in recent if shape.is_answer(entry) or called & shape.answered_calls(entry)
    ]
