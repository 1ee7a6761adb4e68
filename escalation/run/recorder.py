"""Writes the events of a session to the database in small batches, or to a spool file.

`persistently` and `timeout` serve every writer of a run: for a database that is locked,
unavailable or out of space.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from django.conf import settings
from django.db import DatabaseError, OperationalError, connection, transaction
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from stamina import RetryingCaller
from stamina.instrumentation import RetryDetails, set_on_retry_hooks

from escalation.agent.stream import StreamLine, parse_line, storable
from sessions_app.models import Session, SessionEvent
from sessions_app.models.session import EventKind, EventLog
from sessions_app.redaction.redact import (
    SecretOutputs,
    SplitSecrets,
    known_here,
    redacted,
    redacted_data,
)

logger = logging.getLogger(__name__)


@contextmanager
def timeout(seconds: int) -> Iterator[None]:
    """Limit how long statements wait for locks.

    A database that is unavailable cannot be told so, and its next connection has the usual
    timeout; that must not end the session.
    """
    with contextlib.suppress(OperationalError):
        _wait_for_locks(seconds * 1000)
    try:
        yield
    finally:
        with contextlib.suppress(OperationalError):
            _wait_as_usual()


def _wait_for_locks(milliseconds: int) -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(f"PRAGMA busy_timeout = {milliseconds}")
        else:
            # 0 would mean no limit.
            cursor.execute(f"SET lock_timeout = {max(1, milliseconds)}")


def _wait_as_usual() -> None:
    if connection.vendor == "sqlite":
        _wait_for_locks(int(connection.settings_dict["OPTIONS"].get("timeout", 5)) * 1000)
        return
    with connection.cursor() as cursor:
        cursor.execute("RESET lock_timeout")


TIMEOUT_SECONDS = 300.0
LOOK_SECONDS = 1.0

Result = TypeVar("Result")


def persistently(
    action: Callable[[], Result],
    *,
    within: float | None = None,
) -> Result:
    """Call `action` until it raises no OperationalError; give up after `within` seconds.

    The waits grow from 0.1 s to LOOK_SECONDS, with jitter, so that writers that were refused
    together do not come back together.
    """
    call = RetryingCaller(
        attempts=None,
        timeout=TIMEOUT_SECONDS if within is None else within,
        wait_initial=0.1,
        wait_max=LOOK_SECONDS,
        wait_jitter=0.1,
    )
    return call(OperationalError, action)


def _log_first_retry(details: RetryDetails) -> None:
    """Log the first retry with its error; stamina's own hook logs each one without it."""
    if details.retry_num == 1:
        logger.warning("The database is not available (%s); trying again", details.caused_by)


set_on_retry_hooks([_log_first_retry])


def spool_path(session: Session) -> Path:
    return Path(settings.CLAUDEOPS_STATE_DIR) / "spool" / f"session-{session.pk}.jsonl"


def write_spool(session: Session, events: list[SessionEvent]) -> bool:
    """Append the events to the session's spool file; return False if the disk refuses them."""
    path = spool_path(session)
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
            # A line that a full disk cut off must not join the next one.
            file.write("\n" + "".join(f"{line}\n" for line in lines))
    except OSError as error:
        logger.warning("Session %s: could not spool its events: %s", session.pk, error)
        return False
    return True


def read_spool(session: Session) -> int:
    """Move the spooled events into the database; return how many. A broken line is skipped."""
    path = spool_path(session)
    try:
        lines = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return 0
    spooled: list[SessionEvent] = []
    for line in lines:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            spooled.append(_event(session, json.loads(line)))
    with transaction.atomic():
        _store_new(session, spooled)
    path.unlink(missing_ok=True)  # another process may have read it too
    return len(spooled)


def _store_new(session: Session, spooled: list[SessionEvent]) -> None:
    """Skip stored events: a crash before the file was removed leaves them in both places."""
    stored = {_identity(event) for event in session.events.all()}
    for event in spooled:
        if _identity(event) not in stored:
            stored.add(_identity(event))
            store_one(session.event_log, event)


def _identity(event: SessionEvent) -> tuple[datetime, str, str, str]:
    """Key by which a spooled event equals a stored one."""
    return event.created_at, event.source, event.kind, json.dumps(event.payload, sort_keys=True)


def read_finished_spools() -> None:
    """Read the spool files of sessions that ended while the database was unavailable."""
    for path in (Path(settings.CLAUDEOPS_STATE_DIR) / "spool").glob("session-*.jsonl"):
        number = path.stem.removeprefix("session-")
        session = Session.objects.filter(pk=number).first() if number.isdecimal() else None
        if session is not None and session.status != Session.Status.RUNNING:
            try:
                read_spool(session)
            except (OSError, DatabaseError):
                logger.exception("Session %s: could not read its spool file", session.pk)


def store_one(log: EventLog, event: SessionEvent) -> None:
    """Store an event; one that the database refuses is replaced by a note."""
    try:
        log.append([event])
    except OperationalError:
        raise
    except (DatabaseError, ValueError) as error:
        event.payload = {"text": f"(an event that could not be stored: {error})"[:500]}
        log.append([event])


# In the spool of an earlier version.
OLD_KINDS = {"gate": EventKind.COMMAND, "gate_end": EventKind.COMMAND_END}


def _event(session: Session, line: dict[str, object]) -> SessionEvent:
    created_at = parse_datetime(str(line["created_at"]))
    if created_at is None:
        raise ValueError("no time")
    return SessionEvent(
        session=session,
        source=str(line["source"]),
        kind=OLD_KINDS.get(str(line["kind"]), str(line["kind"])),
        payload=line["payload"],
        created_at=created_at,
    )


# An event is readable within 300 ms of being printed.
FLUSH_SECONDS = 0.1
FLUSH_COUNT = 200
# Time for which the last batch is tried when the database is locked.
CLOSING_TIMEOUT_SECONDS = 60.0
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
        self._outputs = SecretOutputs()
        self.stderr = ""
        self.first_line_at: datetime | None = None
        self.last_line_at: datetime | None = None

    def stream_line(self, line: bytes) -> StreamLine:
        parsed = parse_line(line)
        source = SessionEvent.Source.NOISE if parsed.is_noise else SessionEvent.Source.STREAM
        self._heard(self._add(source, parsed.kind, parsed.payload))
        return parsed

    def _heard(self, event: SessionEvent) -> None:
        """Note the times of the first and the last line."""
        self.first_line_at = self.first_line_at or event.created_at
        self.last_line_at = event.created_at

    def hear_again(self, event: SessionEvent) -> None:
        """Take an event into account that a dead runner has stored, without storing it again."""
        match event.source:
            case SessionEvent.Source.STREAM | SessionEvent.Source.NOISE:
                self._heard(event)
                self._outputs.redact(event.payload)
            case SessionEvent.Source.STDERR:
                self._heard_on_stderr(event)

    def message_from_transcript(self, entry: dict[str, Any]) -> None:
        """Record a message of the transcript that did not arrive through the stream."""
        payload = storable({**entry, "read_from": "transcript"})
        self._add(SessionEvent.Source.STREAM, str(entry.get("type")), payload)

    def stderr_line(self, line: bytes) -> None:
        text = storable(line.decode("utf-8", "replace").rstrip())
        self._heard_on_stderr(self._add(SessionEvent.Source.STDERR, "", {"text": text}))

    def _heard_on_stderr(self, event: SessionEvent) -> None:
        """Keep the end of stderr for the verdict."""
        self.stderr = f"{self.stderr}{event.payload.get('text')}\n"[-STDERR_KEPT_LENGTH:]

    def note(self, kind: EventKind, text: str, level: str = "info", **facts: Any) -> None:
        """Record something that Claude Ops itself did, decided or warns about."""
        text = redacted(text)
        if self._listener is None:
            logger.log(LOG_LEVELS[level], "Session %s: %s", self._session.pk, text)
        payload = storable({"text": text, "level": level, **facts})
        self._add(SessionEvent.Source.SUPERVISOR, kind, payload)

    def tick(self) -> None:
        """Write the batch if it is due."""
        if not self._waiting:
            return
        if len(self._waiting) < FLUSH_COUNT and time.monotonic() - self._oldest < FLUSH_SECONDS:
            return
        self.flush()

    def flush(self) -> None:
        """Write the batch now; where the database refuses, spool it."""
        try:
            self._write()
        except OperationalError as error:
            self._spool(error)

    def close(self) -> None:
        """Write all remaining events, retrying for CLOSING_TIMEOUT_SECONDS."""
        try:
            persistently(self._write_all, within=CLOSING_TIMEOUT_SECONDS)
        except OperationalError:
            write_spool(self._session, self._waiting)
            raise

    def _add(self, source: str, kind: str, payload: dict[str, Any]) -> SessionEvent:
        """Redact an event before it reaches the listener, the spool or the database."""
        payload = self._split.redact(source, self._outputs.redact(payload), known_here())
        event = SessionEvent(
            session=self._session,
            source=source,
            kind=redacted(kind),
            payload=redacted_data(payload),
            created_at=timezone.now(),
        )
        if not self._waiting:
            self._oldest = time.monotonic()
        self._waiting.append(event)
        if self._listener:
            self._listener(event)
        return event

    def _spool(self, error: OperationalError) -> None:
        if write_spool(self._session, self._waiting):
            self._spooled += len(self._waiting)
            self._waiting = []
        logger.warning(
            "Session %s: events are spooled, because the database refuses them: %s",
            self._session.pk,
            error,
        )

    def _unspool(self) -> None:
        if not self._spooled:
            return
        read_spool(self._session)
        count, self._spooled = self._spooled, 0
        self.note(
            EventKind.SPOOL,
            f"The database was unavailable: {count} events were spooled and read back.",
            "warning",
        )

    def _write_all(self) -> None:
        while self._waiting or self._spooled:
            self._write()

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
        while self._waiting:
            event = self._waiting[0]
            store_one(self._log, event)
            self._waiting.pop(0)
