"""Transcripts restored on disk, for the CLI to resume from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from claude_agent_sdk import project_key_for_directory

from escalation.resume import transcripts
from escalation.resume.transcripts import archive, is_archived, restore
from sessions_app.archive.transcripts import append_missing
from sessions_app.models import Session, TranscriptChunk
from tests.escalation.transcript_cases import (
    ID,
    entries_in,
    lines,
    place_of,
    said,
    session_in,
)


@pytest.fixture
def session(db, tmp_path: Path) -> Session:
    return session_in(tmp_path)


@pytest.fixture
def transcript(session: Session) -> Path:
    return place_of(session)


@pytest.fixture
def other_host(tmp_path: Path) -> Path:
    return tmp_path / "host-b"


def test_it_restores_the_transcript_on_another_host(session, transcript, other_host):
    transcript.write_text(lines(said("a"), {"type": "mode"}))
    archive(session)

    assert restore(session, other_host)

    path = place_of(session, other_host)
    assert entries_in(path) == [said("a"), {"type": "mode"}]
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_it_restores_below_the_working_directory_of_this_host(session, other_host):
    project = "-where-the-other-host-had-it"
    append_missing({"project_key": project, "session_id": ID}, [said("a")])

    assert restore(session, other_host)

    assert place_of(session, other_host).exists()


def test_it_restores_subagents_and_long_outputs(session, transcript, other_host):
    transcript.write_text(lines(said("a")))
    beside = transcript.with_suffix("")
    (beside / "subagents").mkdir(parents=True)
    (beside / "subagents/agent-1.jsonl").write_text(lines(said("s")))
    (beside / "subagents/agent-1.meta.json").write_text('{"toolUseId": "toolu_1"}')
    (beside / "tool-results").mkdir()
    (beside / "tool-results/long.txt").write_bytes(b"all of it \xff\x00\r\n")

    archived = archive(session)
    restore(session, other_host)

    there = place_of(session, other_host).with_suffix("")
    assert archived == 4
    assert json.loads((there / "subagents/agent-1.jsonl").read_text()) == said("s")
    assert json.loads((there / "subagents/agent-1.meta.json").read_text()) == {
        "toolUseId": "toolu_1"
    }
    assert (there / "tool-results/long.txt").read_bytes() == b"all of it \xff\x00\r\n"


def test_it_archives_subagents_once(session, transcript):
    transcript.write_text(lines(said("a")))
    subagents = transcript.with_suffix("") / "subagents"
    subagents.mkdir(parents=True)
    (subagents / "agent-1.jsonl").write_text(lines(said("s")))
    (subagents / "agent-1.meta.json").write_text("broken")

    assert [archive(session), archive(session)] == [2, 0]


def test_it_skips_a_subagent_whose_name_cannot_be_kept(session, transcript, caplog):
    transcript.write_text(lines(said("a")))
    subagents = transcript.with_suffix("") / "subagents"
    subagents.mkdir(parents=True)
    (subagents / "agent-\n.jsonl").write_text(lines(said("s")))

    assert archive(session) == 1
    assert "cannot archive" in caplog.text


def test_it_restores_nothing_outside_the_session_directory(session, other_host, caplog):
    project = project_key_for_directory(session.workdir)
    append_missing({"project_key": project, "session_id": ID}, [said("a")])
    evil = "subagents/../../../../evil"
    append_missing({"project_key": project, "session_id": ID, "subpath": evil}, [said("b")])

    assert restore(session, other_host)

    assert not list(other_host.rglob("evil*"))
    assert "not restored" in caplog.text


def test_it_keeps_a_transcript_that_is_longer_than_the_copy(session, transcript):
    transcript.write_text(lines(said("a")))
    archive(session)
    transcript.write_text(lines(said("a"), said("b")))

    assert restore(session, Path(session.config_dir))

    assert transcript.read_text() == lines(said("a"), said("b"))


def test_it_keeps_a_transcript_with_other_content(session, transcript):
    transcript.write_text(lines(said("a"), said("b"), said("c")))
    archive(session)
    transcript.write_text(lines(said("a"), said("x")))

    assert restore(session, Path(session.config_dir))

    assert transcript.read_text() == lines(said("a"), said("x"))


@pytest.mark.parametrize("left", ["", "not json", lines(said("a")), lines(said("a")) + '{"type": '])
def test_partial_transcript_is_completed(session, transcript, left):
    transcript.write_text(lines(said("a"), said("b")))
    archive(session)
    transcript.write_text(left)

    assert restore(session, Path(session.config_dir))

    assert entries_in(transcript) == [said("a"), said("b")]


def test_it_does_not_write_when_the_copy_has_nothing_more(session, transcript):
    transcript.write_text(lines(said("a")))
    archive(session)
    before = transcript.stat().st_ino

    assert restore(session, Path(session.config_dir))

    assert transcript.stat().st_ino == before


def test_restore_fails_without_an_archived_copy(session, other_host):
    assert not restore(session, other_host)
    assert not is_archived(ID)


def test_restore_fails_when_the_copy_has_no_message(session, transcript, other_host):
    transcript.write_text(lines({"type": "mode"}))
    archive(session)

    assert not restore(session, other_host)


def test_restore_fails_when_the_copy_is_damaged(session, transcript, other_host, caplog):
    transcript.write_text(lines(said("a")))
    archive(session)
    TranscriptChunk.objects.update(content=b"scratched")

    assert not restore(session, other_host)
    assert "could not restore" in caplog.text


def test_restore_fails_when_the_directory_is_not_writable(session, transcript, tmp_path):
    transcript.write_text(lines(said("a")))
    archive(session)
    (tmp_path / "file").write_text("in the way")

    assert not restore(session, tmp_path / "file")


def test_it_leaves_no_partial_file_when_writing_fails(tmp_path):
    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        transcripts.write_atomically(tmp_path / "transcript", pieces())

    assert list(tmp_path.iterdir()) == []
