"""Events that the database refused are kept in a file and imported once."""

from __future__ import annotations

import errno
import json
import stat
from pathlib import Path

import pytest
from django.db import OperationalError, connection
from django.utils import timezone

from escalation.run import recorder
from sessions_app.models import Session, SessionEvent
from sessions_app.models.session import EventLog
from tests.factories import SessionFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def running() -> Session:
    return SessionFactory(running=True)


def event(session: Session, number: int, **payload: object) -> SessionEvent:
    return SessionEvent(
        session=session,
        sequence=number,
        source="stream",
        kind="assistant",
        payload={"text": f"line {number}", **payload},
        created_at=timezone.now(),
    )


def stored(session: Session) -> list[tuple[int, str]]:
    return [(row.sequence, row.payload["text"]) for row in session.events.order_by("sequence")]


def add_to_file(session: Session, text: str) -> None:
    path = recorder.spool_path(session)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(text)


def test_a_file_that_another_process_imports_meanwhile_is_no_error(running):
    recorder.write_spool(running, [event(running, 1)])

    def also_read_in(execute, sql, params, many, context):
        recorder.spool_path(running).unlink(missing_ok=True)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(also_read_in):
        assert recorder.read_spool(running) == 1

    assert recorder.read_spool(running) == 0


def test_spooled_events_are_read_in_order(running):
    kept = [event(running, number) for number in (1, 2, 3)]

    assert recorder.write_spool(running, kept)
    assert recorder.read_spool(running) == 3

    rows = list(running.events.order_by("sequence"))
    told = ("sequence", "source", "kind", "payload", "created_at")
    assert [[getattr(row, name) for name in told] for row in rows] == [
        [getattr(row, name) for name in told] for row in kept
    ]


def test_spool_file_is_private_in_the_state_directory(running, settings):
    recorder.write_spool(running, [event(running, 1)])

    path = recorder.spool_path(running)
    assert path.is_relative_to(settings.CLAUDEOPS_STATE_DIR)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_two_sessions_have_two_files(running):
    assert recorder.spool_path(running) != recorder.spool_path(SessionFactory())


def test_the_file_is_removed_after_the_import(running):
    recorder.write_spool(running, [event(running, 1)])

    recorder.read_spool(running)

    assert not recorder.spool_path(running).exists()


def test_without_a_file_nothing_is_imported(running):
    assert recorder.read_spool(running) == 0


def test_stored_events_are_not_stored_twice(running):
    first = event(running, 1)
    recorder.write_spool(running, [first, event(running, 2)])
    EventLog(running).append([first])

    recorder.read_spool(running)

    assert stored(running) == [(1, "line 1"), (2, "line 2")]


def test_a_repeated_event_in_the_file_is_stored_once(running):
    first = event(running, 1)
    recorder.write_spool(running, [first])
    recorder.write_spool(running, [first, event(running, 2)])

    recorder.read_spool(running)

    assert stored(running) == [(1, "line 1"), (2, "line 2")]


def test_two_events_with_equal_content_are_both_stored(running):
    recorder.write_spool(running, [event(running, 1), event(running, 1)])

    recorder.read_spool(running)

    assert stored(running) == [(1, "line 1"), (2, "line 1")]


@pytest.mark.parametrize(
    "garbage",
    ["not json\n", "5\n", "[]\n", "null\n", "{}\n", '{"source": "x"}\n', "\n", "\x00\n"],
)
def test_an_invalid_line_loses_only_itself(running, garbage):
    recorder.write_spool(running, [event(running, 1)])
    add_to_file(running, garbage)
    recorder.write_spool(running, [event(running, 2)])

    recorder.read_spool(running)

    assert stored(running) == [(1, "line 1"), (2, "line 2")]


@pytest.mark.parametrize("wrong", [{"created_at": "yesterday"}, {"created_at": None}])
def test_a_line_with_an_invalid_field_is_left_out(running, wrong):
    recorder.write_spool(running, [event(running, 1)])
    line = json.loads(recorder.spool_path(running).read_text())
    add_to_file(running, json.dumps({**line, **wrong}) + "\n")

    recorder.read_spool(running)

    assert stored(running) == [(1, "line 1")]


def test_an_incomplete_last_line_is_left_out(running):
    recorder.write_spool(running, [event(running, 1)])
    add_to_file(running, '{"sequence": 2, "sour')

    recorder.read_spool(running)

    assert stored(running) == [(1, "line 1")]


def test_an_incomplete_line_does_not_damage_the_next(running):
    recorder.write_spool(running, [event(running, 1)])
    add_to_file(running, '{"sequence": 2, "sour')

    recorder.write_spool(running, [event(running, 2), event(running, 3)])
    recorder.read_spool(running)

    assert stored(running) == [(1, "line 1"), (2, "line 2"), (3, "line 3")]


def test_an_event_that_the_database_refuses_loses_no_other(running):
    refused = event(running, 2, amount=float("inf"))
    recorder.write_spool(running, [event(running, 1), refused, event(running, 3)])

    recorder.read_spool(running)

    assert {1, 3} <= {sequence for sequence, _text in stored(running)}


def test_full_disk_returns_false(running, monkeypatch, caplog):
    def full(path: Path, *mode: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "open", full)

    assert recorder.write_spool(running, [event(running, 1)]) is False
    assert "No space left" in caplog.text


def test_a_directory_that_cannot_be_created_raises_nothing(running, settings, tmp_path):
    settings.CLAUDEOPS_STATE_DIR = tmp_path / "file"
    (tmp_path / "file").write_text("in the way")

    assert recorder.write_spool(running, [event(running, 1)]) is False


def test_the_file_is_kept_while_the_database_is_unavailable(running, monkeypatch):
    recorder.write_spool(running, [event(running, 1)])
    with monkeypatch.context() as locked:
        locked.setattr(SessionEvent.objects, "bulk_create", _locked)
        with pytest.raises(OperationalError):
            recorder.read_spool(running)

    assert recorder.read_spool(running) == 1
    assert stored(running) == [(1, "line 1")]


@pytest.mark.parametrize("text", ["two\nlines", "\u2028 \u2029 \x85", "🔥", '"quoted"', "\\n"])
def test_any_text_is_unchanged_after_the_spool(running, text):
    recorder.write_spool(running, [event(running, 1, text=text)])

    recorder.read_spool(running)

    assert stored(running) == [(1, text)]


def _locked(*args: object, **options: object):
    raise OperationalError("database is locked")
