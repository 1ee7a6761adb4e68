"""A database that is locked for long: the run continues, and no event is lost or stored twice."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.db import OperationalError, connection

from escalation.agent.process import ProcessId, Watcher, run_process
from escalation.run import recorder as recorder_module
from escalation.run import recorder as spool
from escalation.run import runner
from escalation.run.recorder import Recorder, timeout
from escalation.run.recovery import recover
from escalation.run.runner import Heartbeat, this_runner
from sessions_app.models import Session, SessionEvent
from tests.escalation.locked_database import locked_database
from tests.escalation.processes import is_gone_soon
from tests.escalation.rows import notes_of, queued_session
from tests.factories import SessionFactory

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def impatient(transactional_db, monkeypatch) -> Iterator[None]:
    """Shorten the lock timeout of SQLite, which is set in whole seconds."""
    monkeypatch.setattr(recorder_module, "FLUSH_SECONDS", 0.0)
    monkeypatch.setattr(runner, "READING_TIMEOUT_SECONDS", 0)
    with timeout(0):
        yield


@pytest.fixture
def running() -> Session:
    return SessionFactory(running=True, **this_runner())


def line(number: int) -> bytes:
    return b'{"type": "assistant", "text": "line %d"}' % number


def lines_of(session: Session) -> list[str]:
    events = session.events.filter(source=SessionEvent.Source.STREAM).order_by("sequence")
    return [event.payload["text"] for event in events]


def test_events_go_to_the_spool_while_the_database_is_locked(running):
    recorder = Recorder(running)
    with locked_database():
        for number in (1, 2):
            recorder.stream_line(line(number))
            recorder.tick()

        kept = spool.spool_path(running).read_text()

    assert [f"line {number}" in kept for number in (1, 2)] == [True, True]
    assert lines_of(running) == []


def test_spooled_events_are_imported_in_order_and_once(running):
    recorder = Recorder(running)
    recorder.stream_line(line(1))
    recorder.tick()
    with locked_database():
        for number in (2, 3, 4):
            recorder.stream_line(line(number))
            recorder.tick()
    recorder.stream_line(line(5))
    recorder.tick()
    recorder.close()

    assert lines_of(running) == [f"line {number}" for number in range(1, 6)]
    assert not spool.spool_path(running).exists()


def test_number_of_spooled_events_is_recorded(running):
    recorder = Recorder(running)
    with locked_database():
        for number in (1, 2, 3):
            recorder.stream_line(line(number))
        recorder.tick()
    recorder.close()

    [note] = notes_of(running, "spool")
    assert "3 events" in note


def test_second_lock_is_recorded_again(running):
    recorder = Recorder(running)
    for number in (1, 2):
        with locked_database():
            recorder.stream_line(line(number))
            recorder.tick()
        recorder.stream_line(line(10 + number))
        recorder.tick()
    recorder.close()

    assert lines_of(running) == ["line 1", "line 11", "line 2", "line 12"]
    assert len(notes_of(running, "spool")) == 2


def test_numbers_of_events_have_no_gap(running):
    recorder = Recorder(running)
    with locked_database():
        recorder.stream_line(line(1))
        recorder.tick()
    recorder.stream_line(line(2))
    recorder.close()

    numbers = list(running.events.order_by("sequence").values_list("sequence", flat=True))
    assert numbers == [1, 2, 3]


def test_the_end_of_the_run_waits_for_the_database(running):
    recorder = Recorder(running)
    released = threading.Event()

    def hold() -> None:
        with locked_database():
            released.wait(5)
            time.sleep(0.5)
        connection.close()

    holder = threading.Thread(target=hold)
    holder.start()
    time.sleep(0.2)
    recorder.stream_line(line(1))
    recorder.tick()
    released.set()
    recorder.close()
    holder.join()

    assert lines_of(running) == ["line 1"]


def test_events_stay_in_memory_when_the_disk_is_full_too(running, monkeypatch):
    recorder = Recorder(running)
    with locked_database(), monkeypatch.context() as full:
        full.setattr(Path, "open", _no_space)
        for number in (1, 2):
            recorder.stream_line(line(number))
            recorder.tick()
    recorder.stream_line(line(3))
    recorder.close()

    assert lines_of(running) == ["line 1", "line 2", "line 3"]


def test_a_disk_that_was_full_for_half_a_batch_loses_nothing(running, monkeypatch):
    recorder = Recorder(running)
    with locked_database():
        for number in (1, 2, 3):
            recorder.stream_line(line(number))
        with monkeypatch.context() as filling:
            filling.setattr(spool, "write_spool", _partly_written)
            recorder.tick()
        recorder.stream_line(line(4))
        recorder.tick()
    recorder.close()

    assert lines_of(running) == [f"line {number}" for number in (1, 2, 3, 4)]


def test_an_event_that_the_database_refuses_does_not_end_the_run(running):
    recorder = Recorder(running)
    with locked_database():
        recorder.stream_line(line(1))
        recorder.stream_line(b'{"type": "odd", "text": "line 2", "number": 1e999}')
        recorder.tick()
    recorder.stream_line(line(3))

    recorder.tick()
    recorder.close()

    assert {"line 1", "line 3"} <= set(lines_of(running) or [""])


def test_events_spooled_at_the_end_are_imported_by_the_next_recovery(running, monkeypatch):
    monkeypatch.setattr(recorder_module, "CLOSING_TIMEOUT_SECONDS", 0.01)
    recorder = Recorder(running)
    with locked_database():
        recorder.stream_line(line(1))
        recorder.stream_line(line(2))
        with timeout(0), pytest.raises(OperationalError):
            recorder.close()
    running.finish(Session.Status.COMPLETED, "done")

    recover()

    assert lines_of(running) == ["line 1", "line 2"]


def test_a_heartbeat_does_not_delay_the_run(running):
    heartbeat = Heartbeat(running)
    heartbeat._next_beat = 0.0
    finished = threading.Event()

    def beat() -> None:
        with timeout(0):
            heartbeat.beat()
        finished.set()
        connection.close()

    thread = threading.Thread(target=beat)
    with locked_database():
        thread.start()
        in_time = finished.wait(4)
    thread.join()

    assert in_time


def test_a_start_that_cannot_be_stored_leaves_no_process_behind(tmp_path):
    seen: list[int] = []

    def refuse(process) -> None:
        seen.append(process.pid)
        raise OperationalError("database is locked")

    with pytest.raises(OperationalError):
        run_process(
            ["/bin/sleep", "60"],
            environment={"PATH": os.environ["PATH"]},
            cwd=tmp_path,
            prompt="",
            timeout_seconds=20,
            watcher=Watcher(
                on_stdout=lambda line: None,
                on_stderr=lambda line: None,
                has_result=lambda: False,
                on_tick=lambda: None,
                on_start=refuse,
            ),
        )

    gone = is_gone_soon(seen[0])
    if not gone:
        os.kill(seen[0], 9)
    assert gone


def test_a_whole_run_continues_while_the_database_is_locked(fake_cli, workdir, tmp_path):
    session = queued_session(workdir)
    locked, unlocked = tmp_path / "locked", tmp_path / "unlocked"
    fake_cli.then(
        f"""
def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.02)
init(); say("before")
wait_for({str(locked)!r})
for number in range(20):
    say(f"meanwhile {{number}}")
wait_for({str(unlocked)!r})
say("after"); result(HEALTHY)
"""
    )
    lock = threading.Thread(target=_lock_in_the_middle, args=(session, locked, unlocked))

    lock.start()
    runner.run(session)
    lock.join()

    session.refresh_from_db()
    said = [
        event.payload["message"]["content"][0]["text"]
        for event in session.events.filter(kind="assistant").order_by("sequence")
    ]
    assert session.status == Session.Status.COMPLETED
    assert said == ["before", *(f"meanwhile {number}" for number in range(20)), "after"]
    assert len(notes_of(session, "spool")) == 1


def _lock_in_the_middle(session: Session, locked: Path, unlocked: Path) -> None:
    _wait_for(lambda: session.events.filter(kind="assistant").exists())
    with locked_database():
        locked.touch()
        _wait_for(lambda: spool.spool_path(session).exists())
        time.sleep(0.5)
    unlocked.touch()
    connection.close()


def _wait_for(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 20
    while not condition() and time.monotonic() < give_up:
        time.sleep(0.02)


def _no_space(path: Path, *mode: str) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


WRITE = spool.write_spool


def _partly_written(session: Session, events: list[SessionEvent]) -> bool:
    """Two events went to the disk, and half of the third."""
    WRITE(session, events[:2])
    with spool.spool_path(session).open("a") as file:
        file.write('{"sequence": 3, "sou')
    return False


def test_a_process_id_that_could_not_be_stored_is_stored_with_the_next_heartbeat(running):
    """The process is recorded with the next beat; its mark finds it until then."""
    heartbeat = Heartbeat(running)
    with locked_database():
        heartbeat.started(ProcessId(4711, 42))
    heartbeat._next_beat = 0.0

    heartbeat.beat()

    running.refresh_from_db()
    assert (running.cli_pid, running.cli_started) == (4711, 42)
