"""Events that the database would not take are kept in a file, and read in once."""

from __future__ import annotations

import errno
import json
import stat
from pathlib import Path

import pytest
from django.db import OperationalError
from django.utils import timezone

from escalation.run import spool
from sessions_app.models import Session, SessionEvent
from sessions_app.models.event_log import EventLog
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
    path = spool.path_for(session)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(text)


def test_what_was_written_is_read_in_whole_and_in_order(running):
    kept = [event(running, number) for number in (1, 2, 3)]

    assert spool.write(running, kept)
    assert spool.read_in(running) == 3

    rows = list(running.events.order_by("sequence"))
    told = ("sequence", "source", "kind", "payload", "created_at")
    assert [[getattr(row, name) for name in told] for row in rows] == [
        [getattr(row, name) for name in told] for row in kept
    ]


def test_it_lies_in_the_state_directory_and_is_nobody_elses(running, settings):
    spool.write(running, [event(running, 1)])

    path = spool.path_for(running)
    assert path.is_relative_to(settings.CLAUDEOPS_STATE_DIR)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_two_sessions_have_two_files(running):
    assert spool.path_for(running) != spool.path_for(SessionFactory())


def test_the_file_is_gone_when_it_has_been_read_in(running):
    spool.write(running, [event(running, 1)])

    spool.read_in(running)

    assert not spool.path_for(running).exists()


def test_without_a_file_there_is_nothing_to_read(running):
    assert spool.read_in(running) == 0


def test_what_the_database_already_has_is_not_stored_twice(running):
    first = event(running, 1)
    spool.write(running, [first, event(running, 2)])
    EventLog(running).append([first])

    spool.read_in(running)

    assert stored(running) == [(1, "line 1"), (2, "line 2")]


def test_an_event_that_stands_twice_in_the_file_is_stored_once(running):
    first = event(running, 1)
    spool.write(running, [first])
    spool.write(running, [first, event(running, 2)])

    spool.read_in(running)

    assert stored(running) == [(1, "line 1"), (2, "line 2")]


def test_two_events_that_say_the_same_are_both_kept(running):
    spool.write(running, [event(running, 1), event(running, 1)])

    spool.read_in(running)

    assert stored(running) == [(1, "line 1"), (2, "line 1")]


@pytest.mark.parametrize(
    "garbage",
    ["not json\n", "5\n", "[]\n", "null\n", "{}\n", '{"source": "x"}\n', "\n", "\x00\n"],
)
def test_a_line_of_garbage_costs_only_itself(running, garbage):
    spool.write(running, [event(running, 1)])
    add_to_file(running, garbage)
    spool.write(running, [event(running, 2)])

    spool.read_in(running)

    assert stored(running) == [(1, "line 1"), (2, "line 2")]


@pytest.mark.parametrize("wrong", [{"created_at": "yesterday"}, {"created_at": None}])
def test_a_line_with_an_impossible_field_is_left_out(running, wrong):
    spool.write(running, [event(running, 1)])
    line = json.loads(spool.path_for(running).read_text())
    add_to_file(running, json.dumps({**line, **wrong}) + "\n")

    spool.read_in(running)

    assert stored(running) == [(1, "line 1")]


def test_half_a_line_at_the_end_is_left_out(running):
    spool.write(running, [event(running, 1)])
    add_to_file(running, '{"sequence": 2, "sour')

    spool.read_in(running)

    assert stored(running) == [(1, "line 1")]


def test_half_a_line_does_not_spoil_what_is_written_after_it(running):
    spool.write(running, [event(running, 1)])
    add_to_file(running, '{"sequence": 2, "sour')

    spool.write(running, [event(running, 2), event(running, 3)])
    spool.read_in(running)

    assert stored(running) == [(1, "line 1"), (2, "line 2"), (3, "line 3")]


def test_an_event_that_the_database_refuses_does_not_cost_its_neighbours(running):
    refused = event(running, 2, amount=float("inf"))
    spool.write(running, [event(running, 1), refused, event(running, 3)])

    spool.read_in(running)

    assert {1, 3} <= {sequence for sequence, _text in stored(running)}


def test_a_full_disk_is_told_and_raises_nothing(running, monkeypatch, caplog):
    def full(path: Path, *mode: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "open", full)

    assert spool.write(running, [event(running, 1)]) is False
    assert "No space left" in caplog.text


def test_a_directory_that_cannot_be_made_raises_nothing(running, settings, tmp_path):
    settings.CLAUDEOPS_STATE_DIR = tmp_path / "file"
    (tmp_path / "file").write_text("in the way")

    assert spool.write(running, [event(running, 1)]) is False


def test_the_file_stays_while_the_database_is_still_away(running, monkeypatch):
    spool.write(running, [event(running, 1)])
    with monkeypatch.context() as locked:
        locked.setattr(SessionEvent.objects, "bulk_create", _locked)
        with pytest.raises(OperationalError):
            spool.read_in(running)

    assert spool.read_in(running) == 1
    assert stored(running) == [(1, "line 1")]


@pytest.mark.parametrize("text", ["two\nlines", "\u2028 \u2029 \x85", "🔥", '"quoted"', "\\n"])
def test_any_text_comes_back_as_it_was(running, text):
    spool.write(running, [event(running, 1, text=text)])

    spool.read_in(running)

    assert stored(running) == [(1, text)]


def _locked(*args: object, **options: object):
    raise OperationalError("database is locked")
