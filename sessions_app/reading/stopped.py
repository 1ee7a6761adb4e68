"""A deliberate stop in words: who wanted it, which is something else than an error."""

from __future__ import annotations

from collections.abc import Iterable

from sessions_app.models import Session
from sessions_app.reading.plain_text import one_line

LONGEST = 80
Cause = Session.StopCause
WITHOUT_A_NAME = {
    Cause.PAUSE: "the pause of everything",
    Cause.WORKER: "the worker, which was told to end",
    Cause.FOREGROUND: "whoever ended the command in the terminal",
}


def stopped_by(cause: str, words: str) -> str:
    """As in "stopped by ada"; empty where nobody wanted it."""
    if cause == Cause.PERSON:
        return f"stopped by {one_line(words, LONGEST) or 'a person'}"
    return f"stopped by {WITHOUT_A_NAME[Cause(cause)]}" if cause in WITHOUT_A_NAME else ""


def stop_of(sessions: Iterable[Session]) -> str:
    """Of a chain: what its last run was stopped by, unless something went on from there."""
    last = max(sessions, key=lambda session: session.pk or 0, default=None)
    if last is None or last.status != Session.Status.INTERRUPTED:
        return ""
    return stopped_by(last.stop_cause, last.stop_requested)
