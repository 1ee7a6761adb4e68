"""The stream of a run, written to the database in small batches while it arrives."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from django.db import DatabaseError, OperationalError, transaction
from django.db.models import Max
from django.utils import timezone

from escalation.agent.stream import StreamLine, parse_line, storable
from escalation.run import spool
from escalation.run.sqlite_patience import patience
from sessions_app.models import Session, SessionEvent

logger = logging.getLogger(__name__)

# An event is readable within 300 ms of being printed: this wait, the write, and some air.
FLUSH_SECONDS = 0.1
FLUSH_COUNT = 200
# How long the last batch is tried for when the database is locked.
CLOSING_PATIENCE_SECONDS = 60.0
# While a run is read, its output must not wait long for the database.
TICK_PATIENCE_SECONDS = 1
STDERR_KEPT_LENGTH = 2000
LOG_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

Listener = Callable[[SessionEvent], None]


class Recorder:
    """Numbers the events of one session and writes them in order, none twice."""

    def __init__(self, session: Session, listener: Listener | None = None) -> None:
        self._session = session
        self._listener = listener
        self._sequence = session.events.aggregate(last=Max("sequence"))["last"] or 0
        self._waiting: list[SessionEvent] = []
        self._oldest = 0.0
        self._spooled = 0
        self.stderr = ""

    def stream_line(self, line: bytes) -> StreamLine:
        parsed = parse_line(line)
        source = SessionEvent.Source.NOISE if parsed.is_noise else SessionEvent.Source.STREAM
        self._add(source, parsed.kind, parsed.payload)
        return parsed

    def stderr_line(self, line: bytes) -> None:
        text = storable(line.decode("utf-8", "replace").rstrip())
        self.stderr = (self.stderr + text + "\n")[-STDERR_KEPT_LENGTH:]
        self._add(SessionEvent.Source.STDERR, "", {"text": text})

    def note(self, kind: str, text: str, level: str = "info") -> None:
        """Something that Claude Ops itself did, decided or found worth a warning."""
        if self._listener is None:
            logger.log(LOG_LEVELS[level], "Session %s: %s", self._session.pk, text)
        self._add(SessionEvent.Source.SUPERVISOR, kind, {"text": storable(text), "level": level})

    def skip(self, count: int) -> None:
        """Somebody else has written so many events after the last of ours."""
        self._sequence += count

    def tick(self) -> None:
        """Write what has waited long enough; a locked database is tried again next time."""
        if not self._waiting:
            return
        if len(self._waiting) < FLUSH_COUNT and time.monotonic() - self._oldest < FLUSH_SECONDS:
            return
        try:
            with patience(TICK_PATIENCE_SECONDS):
                self._write()
        except OperationalError as error:
            self._spool(error)

    def close(self) -> None:
        """Write all that is left, with patience: these events exist nowhere else."""
        give_up = time.monotonic() + CLOSING_PATIENCE_SECONDS
        while self._waiting or self._spooled:
            try:
                self._write()
            except OperationalError:
                if time.monotonic() > give_up:
                    spool.write(self._session, self._waiting)
                    raise
                time.sleep(0.5)

    def _add(self, source: str, kind: str, payload: dict[str, Any]) -> None:
        self._sequence += 1
        event = SessionEvent(
            session=self._session,
            sequence=self._sequence,
            source=source,
            kind=kind,
            payload=payload,
            created_at=timezone.now(),
        )
        if not self._waiting:
            self._oldest = time.monotonic()
        self._waiting.append(event)
        if self._listener:
            self._listener(event)

    def _spool(self, error: OperationalError) -> None:
        """The run goes on: what the database will not take now waits on disk."""
        if spool.write(self._session, self._waiting):
            self._spooled += len(self._waiting)
            self._waiting = []
        logger.warning("Events of session %s are kept aside: %s", self._session.pk, error)

    def _unspool(self) -> None:
        if not self._spooled:
            return
        spool.read_in(self._session)
        count, self._spooled = self._spooled, 0
        self.note(
            "spool",
            f"The database was away: {count} events were kept aside and read in.",
            "warning",
        )

    def _write(self) -> None:
        self._unspool()
        try:
            with transaction.atomic():
                SessionEvent.objects.bulk_create(self._waiting)
        except OperationalError:
            raise
        except (DatabaseError, ValueError):
            self._write_one_by_one()
        self._waiting = []

    def _write_one_by_one(self) -> None:
        """One event that the database refuses must not cost its neighbours."""
        while self._waiting:
            event = self._waiting[0]
            try:
                self._insert(event)
            except OperationalError:
                raise
            except (DatabaseError, ValueError) as error:
                event.payload = {"text": f"(an event that could not be stored: {error})"[:500]}
                self._insert(event)
            self._waiting.pop(0)

    def _insert(self, event: SessionEvent) -> None:
        event.pk = None  # a failed batch may have left a number on it
        with transaction.atomic():
            event.save(force_insert=True)
