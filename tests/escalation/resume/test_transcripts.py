"""Transcripts on disk in any state: found, archived, and read for costs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pytest
from claude_agent_sdk import project_key_for_directory
from claude_agent_sdk.types import SessionKey

from escalation.resume import transcripts
from escalation.resume.transcripts import (
    TranscriptState,
    archive,
    cost_state_total,
    find_on_disk,
    is_archived,
    restore,
    transcript_path,
)
from sessions_app.archive.transcripts import load_entries
from sessions_app.models import Session, Transcript, TranscriptChunk
from tests.escalation.transcript_cases import (
    ID,
    cost,
    lines,
    place_of,
    said,
    session_in,
)

NOBODY = 65534


@pytest.fixture
def session(db, tmp_path: Path) -> Session:
    return session_in(tmp_path)


@pytest.fixture
def transcript(session: Session) -> Path:
    return place_of(session)


@pytest.fixture
def other_host(tmp_path: Path) -> Path:
    return tmp_path / "host-b"


@contextmanager
def as_somebody_else(path: Path) -> Iterator[None]:
    """The file belongs to another user: for root by being nobody, for others by its mode."""
    if os.geteuid() != 0:
        path.chmod(0)
        yield
        path.chmod(0o600)
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_transcript_is_found_for_a_linked_working_directory(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    path = transcript_path(tmp_path, tmp_path / "link", ID)

    project = project_key_for_directory(tmp_path / "real")
    assert path == tmp_path / "projects" / project / f"{ID}.jsonl"


def test_it_finds_a_transcript(session, transcript):
    transcript.write_text(lines({"type": "mode"}, said("a")))

    assert find_on_disk(session) == TranscriptState.PRESENT


def test_it_finds_none(session):
    assert find_on_disk(session) == TranscriptState.MISSING


@pytest.mark.parametrize("content", ["", "\n\n", "not json\n", lines({"type": "mode"}), "[1]\n"])
def test_it_calls_a_file_without_a_message_empty(session, transcript, content):
    transcript.write_text(content)

    assert find_on_disk(session) == TranscriptState.EMPTY


def test_transcript_of_another_user_is_unreadable(session, transcript):
    transcript.write_text(lines(said("a")))
    transcript.chmod(0o600)

    with as_somebody_else(transcript):
        state = find_on_disk(session)

    assert state == TranscriptState.UNREADABLE


def test_it_refuses_a_link_and_a_pipe(session, transcript, tmp_path):
    (tmp_path / "elsewhere").write_text(lines(said("a")))
    transcript.symlink_to(tmp_path / "elsewhere")
    linked = find_on_disk(session)
    transcript.unlink()
    os.mkfifo(transcript)

    assert [linked, find_on_disk(session)] == [TranscriptState.UNREADABLE] * 2


@pytest.mark.parametrize(
    "facts",
    [
        {"session_id": ""},
        {"session_id": "../../../etc/passwd"},
        {"session_id": "a title"},
        {"config_dir": ""},
        {"workdir": ""},
    ],
)
def test_a_session_without_a_transcript_path_has_none(session, facts, tmp_path):
    for name, value in facts.items():
        setattr(session, name, value)

    assert find_on_disk(session) == TranscriptState.MISSING
    assert archive(session) == 0
    assert cost_state_total(session) is None
    assert not restore(session, tmp_path / "elsewhere")


def test_it_archives_every_line(session, transcript):
    transcript.write_text(lines(said("a"), {"type": "mode"}, said("b")))

    assert archive(session) == 3
    assert is_archived(ID)


def test_it_archives_only_what_is_new(session, transcript):
    transcript.write_text(lines(said("a"), {"type": "mode"}))
    archive(session)
    transcript.write_text(lines(said("a"), {"type": "mode"}, said("b"), {"type": "mode"}))

    assert archive(session) == 2
    assert archive(session) == 0


def test_it_archives_the_complete_lines_of_a_truncated_transcript(session, transcript, caplog):
    transcript.write_text(lines(said("a"), said("b"))[:-20])

    assert archive(session) == 1
    assert "1 of 2 lines" in caplog.text


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe\x00",
        b'{"type": "x", "n": 1e999}',
        b'{"type": "x", "n": NaN}',
        b"[" * 100_000,
        b'{"a":' * 500 + b"1" + b"}" * 500,
        b'"text"',
        b'{"type": "user", "uuid": "b", "message"',
    ],
    ids=["bytes", "infinite", "nan", "deep list", "deep object", "a string", "half"],
)
def test_it_archives_everything_but_a_broken_line(session, transcript, line):
    whole = lines(said("a")).encode()
    transcript.write_bytes(whole + line + b"\n" + lines(said("c")).encode())

    assert archive(session) == 2


def test_it_archives_unknown_fields_unchanged(session, transcript, other_host):
    odd = {"type": "user", "uuid": "a", "timestamp": "0001-01-01T00:00:00", "message": [None, 1]}
    transcript.write_text(lines(odd, {"type": ["x"], "uuid": 7, "text": "\ud83e\x00"}))

    archive(session)
    restore(session, other_host)

    assert place_of(session, other_host).read_text() == transcript.read_text().replace(
        ": ", ":"
    ).replace(", ", ",")


def test_it_archives_nothing_of_a_missing_or_unreadable_transcript(session, transcript, caplog):
    missing = archive(session)
    transcript.mkdir()

    assert (missing, archive(session)) == (0, 0)
    assert "could not archive" in caplog.text


def test_it_refuses_a_file_that_is_too_large(session, transcript, monkeypatch):
    monkeypatch.setattr(transcripts, "MAX_FILE_BYTES", 10)
    transcript.write_text(lines(said("a")))

    assert archive(session) == 0


def test_it_archives_again_when_the_copy_is_damaged(session, transcript, caplog):
    transcript.write_text(lines(said("a"), said("b")))
    archive(session)
    TranscriptChunk.objects.update(content=b"scratched")

    assert archive(session) == 2
    assert "damaged" in caplog.text


def test_the_total_is_the_last_one_on_disk(session, transcript):
    transcript.write_text(lines(cost(0.1), said("a"), cost(0.018000000000000002)))

    assert cost_state_total(session) == Decimal("0.018")


def test_the_total_is_read_from_the_archive_when_the_file_is_missing(session, transcript):
    transcript.write_text(lines(said("a"), cost(0.5)))
    archive(session)
    transcript.unlink()

    assert cost_state_total(session) == Decimal("0.5")


def test_there_is_no_total_if_the_cli_does_not_write_it(session, transcript):
    transcript.write_text(lines(said("a", "cost-state")))

    assert cost_state_total(session) is None


def test_a_total_of_zero_is_known(session, transcript):
    transcript.write_text(lines(cost(0)))

    assert cost_state_total(session) == Decimal(0)


def test_an_entry_without_a_figure_is_ignored(session, transcript):
    transcript.write_text(lines(cost(0.25), cost("much"), cost(None), cost(True), cost(-1)))

    assert cost_state_total(session) == Decimal("0.25")


def test_there_is_no_total_when_the_copy_is_damaged(session, transcript):
    transcript.write_text(lines(cost(0.25)))
    archive(session)
    transcript.unlink()
    TranscriptChunk.objects.update(content=b"scratched")

    assert cost_state_total(session) is None


def test_the_archive_is_kept_when_the_session_is_deleted(session, transcript):
    transcript.write_text(lines(said("a")))
    archive(session)
    session.delete()

    key: SessionKey = {"project_key": transcript.parent.name, "session_id": ID}
    assert Transcript.objects.count() == 1
    assert load_entries(key) == [said("a")]
