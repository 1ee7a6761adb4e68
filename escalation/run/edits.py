"""The edits of a run, as changes: written once, when the run has ended, whoever saw its end."""

from __future__ import annotations

import logging

from django.db import DatabaseError

from escalation.run.persistence import persistently
from sessions_app.models import Change, Session, SessionEvent
from sessions_app.reading.edits import Edit, Heard, edits_in
from sessions_app.reading.masking import masked

logger = logging.getLogger(__name__)
LINES = ("assistant", "user")


def record_edits(session: Session) -> None:
    """From the stored events, which are masked. A true ending is worth more than its edits."""
    try:
        persistently(lambda: _write(session))
    except DatabaseError:
        logger.exception("Session %s: its edits could not be written down", session.pk)


def _write(session: Session) -> None:
    events = session.events.filter(source=SessionEvent.Source.STREAM, kind__in=LINES).order_by(
        "sequence"
    )
    lines = (
        Heard(payload=event.payload, at=event.created_at)
        for event in events.only("payload", "created_at").iterator()
    )
    rows = [_row(session, edit) for edit in edits_in(lines)]
    Change.objects.bulk_create(rows, ignore_conflicts=True)


def _row(session: Session, edit: Edit) -> Change:
    return Change(
        session=session,
        watch_id=session.cycle.watch_id,
        call=edit.call,
        kind=Change.Kind.EDIT,
        action=masked(edit.action)[:300],
        command=masked(f"{edit.tool} {edit.path}"),
        path=masked(edit.path)[:1000],
        diff=masked(edit.diff),
        at=edit.at,
    )
