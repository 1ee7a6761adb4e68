"""The stream of a run, written to the database in small batches while it arrives."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.db import DatabaseError, OperationalError
from django.utils import timezone

from escalation.agent import StreamLine, parse_line, storable
from escalation.run import spool
from escalation.run.spool import store_one
from sessions_app.models import Session, SessionEvent
from sessions_app.reading.masking import known_here, masked, masked_data
from sessions_app.reading.split_secrets import SplitSecrets

logger = logging.getLogger(__name__)

# An event is readable within 300 ms of being printed: this wait, the write, and some air.
FLUSH_SECONDS = 0.1
FLUSH_COUNT = 200
# How long the last batch is tried for when the database is locked.
CLOSING_PATIENCE_SECONDS = 60.0
STDERR_KEPT_LENGTH = 2000
LOG_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

Listener = Callable[[SessionEvent], None]


class Recorder:
    """Writes the events of one session in order, none twice and none lost."""

    def __init__(self, session: Session, listener: Listener | None = None) -> None:
        self._session = session
        self._listener = listener
        self._log = session.event_log
        self._waiting: list[SessionEvent] = []
        self._oldest = 0.0
        self._spooled = 0
        self._split = SplitSecrets()
        self.stderr = ""
        self.first_line_at: datetime | None = None
        self.last_line_at: datetime | None = None

    def stream_line(self, line: bytes) -> StreamLine:
        parsed = parse_line(line)
        source = SessionEvent.Source.NOISE if parsed.is_noise else SessionEvent.Source.STREAM
        self._heard(self._add(source, parsed.kind, parsed.payload))
        return parsed

    def _heard(self, event: SessionEvent) -> None:
        """A line of the stream: when the run spoke first and last."""
        self.first_line_at = self.first_line_at or event.created_at
        self.last_line_at = event.created_at

    def hear_again(self, event: SessionEvent) -> None:
        """An event that a dead runner has stored: it counts, and is not written again."""
        match event.source:
            case SessionEvent.Source.STREAM | SessionEvent.Source.NOISE:
                self._heard(event)
            case SessionEvent.Source.STDERR:
                self._heard_on_stderr(event)

    def message_from_transcript(self, entry: dict[str, Any]) -> None:
        """A message that the CLI wrote down and that never reached us through the stream."""
        payload = storable({**entry, "read_from": "transcript"})
        self._add(SessionEvent.Source.STREAM, str(entry.get("type"))[:100], payload)

    def stderr_line(self, line: bytes) -> None:
        text = storable(line.decode("utf-8", "replace").rstrip())
        self._heard_on_stderr(self._add(SessionEvent.Source.STDERR, "", {"text": text}))

    def _heard_on_stderr(self, event: SessionEvent) -> None:
        """The end of what was said on stderr is kept for the verdict."""
        self.stderr = f"{self.stderr}{event.payload.get('text')}\n"[-STDERR_KEPT_LENGTH:]

    def note(self, kind: str, text: str, level: str = "info", **facts: Any) -> None:
        """Something that Claude Ops itself did, decided or found worth a warning."""
        text = masked(text)
        if self._listener is None:
            logger.log(LOG_LEVELS[level], "Session %s: %s", self._session.pk, text)
        payload = storable({"text": text, "level": level, **facts})
        self._add(SessionEvent.Source.SUPERVISOR, kind, payload)

    def tick(self) -> None:
        """Write what has waited long enough; a locked database is tried again next time."""
        if not self._waiting:
            return
        if len(self._waiting) < FLUSH_COUNT and time.monotonic() - self._oldest < FLUSH_SECONDS:
            return
        try:
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

    def _add(self, source: str, kind: str, payload: dict[str, Any]) -> SessionEvent:
        """Masked here, before anyone else has it: listener, spool, database."""
        event = SessionEvent(
            session=self._session,
            source=source,
            kind=masked(kind),
            payload=masked_data(self._split.hidden_in(source, payload, known_here())),
            created_at=timezone.now(),
        )
        if not self._waiting:
            self._oldest = time.monotonic()
        self._waiting.append(event)
        if self._listener:
            self._listener(event)
        return event

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
            self._log.append(self._waiting)
        except OperationalError:
            raise
        except (DatabaseError, ValueError):
            self._write_one_by_one()
        self._waiting = []

    def _write_one_by_one(self) -> None:
        """One event that the database refuses must not cost its neighbours."""
        while self._waiting:
            event = self._waiting[0]
            store_one(self._log, event)
            self._waiting.pop(0)
