"""Events are stored in order, in batches, and none is lost to a locked database or a bad event."""

from __future__ import annotations

import logging
import threading
import time

import pytest
from django.db import OperationalError

from escalation.run import recorder as recorder_module
from escalation.run.recorder import Recorder, timeout
from sessions_app.models import Session, SessionEvent
from sessions_app.models.session import EventKind
from tests.escalation.locked_database import locked_database
from tests.factories import SessionEventFactory, SessionFactory

Source = SessionEvent.Source


@pytest.fixture
def running(db) -> Session:
    return SessionFactory(running=True)


def texts(session: Session) -> list[str]:
    return [event.payload["text"] for event in session.events.all()]


def line(number: int) -> bytes:
    return b'{"type": "assistant", "text": "line %d"}' % number


def test_events_keep_their_order_and_source(running):
    recorder = Recorder(running)
    recorder.note(EventKind.STARTED, "Tier 1 starts.")
    recorder.stream_line(b'{"type": "system", "subtype": "init"}')
    recorder.stderr_line(b"a warning\n")
    recorder.stream_line(b"garbage")

    recorder.close()

    assert list(running.events.values_list("sequence", "source", "kind")) == [
        (1, Source.SUPERVISOR, "started"),
        (2, Source.STREAM, "system/init"),
        (3, Source.STDERR, ""),
        (4, Source.NOISE, ""),
    ]


def test_numbers_continue_after_existing_events(running):
    SessionEventFactory(session=running, sequence=1)

    recorder = Recorder(running)
    recorder.note(EventKind.DECISION, "x")
    recorder.close()

    assert list(running.events.values_list("sequence", flat=True)) == [1, 2]


def test_a_batch_is_delayed(running):
    recorder = Recorder(running)
    recorder.stream_line(line(1))

    recorder.tick()

    assert running.events.count() == 0


def test_batch_is_written_when_due(running, monkeypatch):
    monkeypatch.setattr(recorder_module, "FLUSH_SECONDS", 0.0)
    recorder = Recorder(running)
    recorder.stream_line(line(1))

    recorder.tick()

    assert texts(running) == ["line 1"]


def test_a_full_batch_is_written_at_once(running, monkeypatch):
    monkeypatch.setattr(recorder_module, "FLUSH_SECONDS", 3600)
    recorder = Recorder(running)
    for number in range(recorder_module.FLUSH_COUNT):
        recorder.stream_line(line(number))

    recorder.tick()

    assert running.events.count() == recorder_module.FLUSH_COUNT


@pytest.mark.django_db(transaction=True)
def test_a_batch_needs_one_insert(running, django_assert_max_num_queries):
    recorder = Recorder(running)
    recorder.stream_line(line(0))
    recorder.close()  # the first one looks up the last number
    for number in range(100):
        recorder.stream_line(line(number))

    with django_assert_max_num_queries(3):
        recorder.close()


def test_nothing_is_written_twice(running):
    recorder = Recorder(running)
    recorder.stream_line(line(1))

    recorder.close()
    recorder.close()
    recorder.tick()

    assert texts(running) == ["line 1"]


def test_the_listener_gets_every_event_at_once(running):
    heard: list[SessionEvent] = []
    recorder = Recorder(running, heard.append)

    recorder.note(EventKind.STARTED, "Tier 1 starts.")
    recorder.stream_line(line(1))

    assert [event.source for event in heard] == ["supervisor", "stream"]
    assert not running.events.exists()


def test_note_is_logged_without_a_listener(running, caplog):
    with caplog.at_level(logging.INFO, logger="escalation.run.recorder"):
        Recorder(running).note(EventKind.WARNING, "Mind the gap.", "warning")

    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", f"Session {running.pk}: Mind the gap.")
    ]


def test_the_end_of_stderr_is_kept(running):
    recorder = Recorder(running)
    recorder.stderr_line(b"x" * 10_000)

    recorder.stderr_line(b"the reason \xff\x00")

    assert recorder.stderr.endswith("the reason \ufffd\ufffd\n")
    assert len(recorder.stderr) == recorder_module.STDERR_KEPT_LENGTH


HOSTILE = [
    b'{"type": "\\ud800", "text": "odd"}',
    b'{"type": "\\u0000", "text": "odd"}',
    b'{"type": "x", "text": "\\u0000\\udfff"}',
    b'{"type": "x", "number": 1e999, "text": "infinite"}',
    b'{"type": "x", "number": ' + b"9" * 4000 + b', "text": "long"}',
    b"\xff\xfe\x00",
    b"{" * 5000,
]


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda line: f"{line[:24]!r}-{len(line)}")
def test_refused_line_does_not_lose_other_lines(running, hostile):
    recorder = Recorder(running)
    recorder.stream_line(line(1))
    recorder.stream_line(hostile)
    recorder.stream_line(line(3))

    recorder.close()

    events = list(running.events.all())
    assert [event.sequence for event in events] == [1, 2, 3]
    assert [events[0].payload["text"], events[2].payload["text"]] == ["line 1", "line 3"]


def test_nesting_of_any_depth_is_recorded(running):
    recorder = Recorder(running)
    depths = [100, 500, *range(850, 1000), 5000]
    for depth in depths:
        recorder.stream_line(b'{"type": "x", "deep": %b%b}' % (b"[" * depth, b"]" * depth))

    recorder.close()

    assert running.events.count() == len(depths)


def test_a_number_that_is_not_valid_json_is_stored_as_text(running):
    recorder = Recorder(running)
    recorder.stream_line(line(1))
    recorder.stream_line(b'{"type": "x", "number": 1e999}')
    recorder.stream_line(line(3))

    recorder.close()

    assert texts(running)[0::2] == ["line 1", "line 3"]
    assert "1e999" in texts(running)[1]


def test_a_lock_during_single_inserts_loses_nothing(running, monkeypatch):
    monkeypatch.setattr("escalation.run.recorder.time.sleep", lambda seconds: None)
    recorder = Recorder(running)
    recorder.stream_line(line(1))
    recorder.stream_line(b'{"type": "x", "number": 1e999}')
    recorder.stream_line(line(3))
    monkeypatch.setattr(SessionEvent, "save", _failing_once_at(3, SessionEvent.save))

    recorder.close()

    assert texts(running)[0::2] == ["line 1", "line 3"]


def test_a_lock_during_the_run_only_delays(running, monkeypatch, caplog):
    monkeypatch.setattr(recorder_module, "FLUSH_SECONDS", 0.0)
    recorder = Recorder(running)
    recorder.stream_line(line(1))
    with monkeypatch.context() as locked:
        locked.setattr(SessionEvent.objects, "bulk_create", _always_locked)
        recorder.tick()
    recorder.stream_line(line(2))

    recorder.tick()

    assert texts(running)[:2] == ["line 1", "line 2"]
    assert "1 events were spooled" in texts(running)[2]
    assert "database is locked" in caplog.text


def test_the_last_batch_is_not_retried_forever(running, monkeypatch):
    monkeypatch.setattr(recorder_module, "CLOSING_TIMEOUT_SECONDS", 0.01)
    monkeypatch.setattr(SessionEvent.objects, "bulk_create", _always_locked)
    recorder = Recorder(running)
    recorder.stream_line(line(1))

    with pytest.raises(OperationalError):
        recorder.close()


@pytest.mark.django_db(transaction=True)
def test_nothing_is_lost_when_another_process_locks_the_database_for_a_second():
    session = SessionFactory(running=True)
    recorder = Recorder(session)
    for number in range(50):
        recorder.stream_line(line(number))

    with _database_locked_for(1.0):
        began = time.monotonic()
        recorder.close()
        waited = time.monotonic() - began

    assert texts(session) == [f"line {number}" for number in range(50)]
    assert waited > 0.5


@pytest.mark.django_db(transaction=True)
def test_nothing_is_lost_when_the_lock_lasts_longer_than_the_database_timeout():
    session = SessionFactory(running=True)
    recorder = Recorder(session)
    recorder.stream_line(line(1))

    with _database_locked_for(1.0), timeout(0):
        recorder.close()

    assert texts(session) == ["line 1"]


def _always_locked(*args, **options):
    raise OperationalError("database is locked")


def _failing_once_at(sequence, save):
    left = [sequence]

    def save_or_fail(event, **options):
        if left and event.sequence == left[0]:
            left.clear()
            raise OperationalError("database is locked")
        save(event, **options)

    return save_or_fail


class _database_locked_for:
    """Another program takes the write lock and gives it back after a while."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._locked = threading.Event()
        self._thread = threading.Thread(target=self._hold)

    def __enter__(self) -> None:
        self._thread.start()
        self._locked.wait(5)

    def __exit__(self, *exception: object) -> None:
        self._thread.join()

    def _hold(self) -> None:
        with locked_database():
            self._locked.set()
            time.sleep(self._seconds)
