"""Events that the database would not take, kept in a file until it does."""

from __future__ import annotations

import contextlib
import json
import logging
from datetime import datetime
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError, OperationalError, transaction
from django.utils.dateparse import parse_datetime

from sessions_app.models import Session, SessionEvent
from sessions_app.models.event_log import EventLog

logger = logging.getLogger(__name__)


def path_for(session: Session) -> Path:
    return Path(settings.CLAUDEOPS_STATE_DIR) / "spool" / f"session-{session.pk}.jsonl"


def write(session: Session, events: list[SessionEvent]) -> bool:
    """False: the disk would not take them either, and they stay in memory."""
    path = path_for(session)
    lines = [
        json.dumps(
            {
                "source": event.source,
                "kind": event.kind,
                "payload": event.payload,
                "created_at": event.created_at.isoformat(),
            }
        )
        for event in events
    ]
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with path.open("a") as file:
            # A line that a full disk cut off must not swallow the one after it.
            file.write("\n" + "".join(f"{line}\n" for line in lines))
    except OSError as error:
        logger.warning("Session %s: events cannot be spooled: %s", session.pk, error)
        return False
    return True


def read_in(session: Session) -> int:
    """Move what was spooled into the database; a line cut off by a full disk is left out."""
    path = path_for(session)
    if not path.exists():
        return 0
    spooled: list[SessionEvent] = []
    for line in path.read_text(errors="replace").splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            spooled.append(_event(session, json.loads(line)))
    with transaction.atomic():
        _store_new(session, spooled)
    path.unlink()
    return len(spooled)


def _store_new(session: Session, spooled: list[SessionEvent]) -> None:
    """A death between storing and removing the file leaves events in both places."""
    stored = {_identity(event) for event in session.events.all()}
    for event in spooled:
        if _identity(event) not in stored:
            stored.add(_identity(event))
            store_one(session.event_log, event)


def _identity(event: SessionEvent) -> tuple[datetime, str, str, str]:
    """Two events of one moment are the same only if they say the same."""
    return event.created_at, event.source, event.kind, json.dumps(event.payload, sort_keys=True)


def read_in_finished() -> None:
    """What is left of sessions that have ended, when the database was away to the last."""
    for path in (Path(settings.CLAUDEOPS_STATE_DIR) / "spool").glob("session-*.jsonl"):
        number = path.stem.removeprefix("session-")
        session = Session.objects.filter(pk=number).first() if number.isdecimal() else None
        if session is not None and session.status != Session.Status.RUNNING:
            try:
                read_in(session)
            except (OSError, DatabaseError):
                logger.exception("Session %s: its spool cannot be read in", session.pk)


def store_one(log: EventLog, event: SessionEvent) -> None:
    """An event that the database refuses must not cost its neighbours: its place is kept."""
    try:
        log.append([event])
    except OperationalError:
        raise
    except (DatabaseError, ValueError) as error:
        event.payload = {"text": f"(an event that could not be stored: {error})"[:500]}
        log.append([event])


def _event(session: Session, line: dict[str, object]) -> SessionEvent:
    created_at = parse_datetime(str(line["created_at"]))
    if created_at is None:
        raise ValueError("no time")
    return SessionEvent(
        session=session,
        source=str(line["source"]),
        kind=str(line["kind"]),
        payload=line["payload"],
        created_at=created_at,
    )
