"""Events that the database would not take, kept in a file until it does."""

from __future__ import annotations

import contextlib
import json
import logging
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.utils.dateparse import parse_datetime

from sessions_app.models import Session, SessionEvent

logger = logging.getLogger(__name__)


def path_for(session: Session) -> Path:
    return Path(settings.CLAUDEOPS_STATE_DIR) / "spool" / f"session-{session.pk}.jsonl"


def write(session: Session, events: list[SessionEvent]) -> bool:
    """False: the disk would not take them either, and they stay in memory."""
    path = path_for(session)
    lines = [
        json.dumps(
            {
                "sequence": event.sequence,
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
            file.write("".join(f"{line}\n" for line in lines))
    except OSError as error:
        logger.warning("Session %s: events cannot be spooled: %s", session.pk, error)
        return False
    return True


def read_in(session: Session) -> int:
    """Move what was spooled into the database; a line cut off by a full disk is left out."""
    path = path_for(session)
    if not path.exists():
        return 0
    spooled = []
    for line in path.read_text(errors="replace").splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            spooled.append(_event(session, json.loads(line)))
    with transaction.atomic():
        stored = set(session.events.values_list("sequence", flat=True))
        SessionEvent.objects.bulk_create(event for event in spooled if event.sequence not in stored)
    path.unlink()
    return len(spooled)


def _event(session: Session, line: dict[str, object]) -> SessionEvent:
    created_at = parse_datetime(str(line["created_at"]))
    if created_at is None:
        raise ValueError("no time")
    return SessionEvent(
        session=session,
        sequence=int(str(line["sequence"])),
        source=str(line["source"]),
        kind=str(line["kind"]),
        payload=line["payload"],
        created_at=created_at,
    )
