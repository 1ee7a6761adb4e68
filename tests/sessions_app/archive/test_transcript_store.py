"""The archive of transcripts: database and disk, and their errors."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import time_machine
from claude_agent_sdk.types import SessionKey
from django.db import connection, transaction

from sessions_app.archive import transcripts
from sessions_app.archive.transcripts import (
    TranscriptDamaged,
    append_entries,
    append_missing,
    delete_transcript,
    latest_project,
    load_entries,
)
from sessions_app.models import Transcript, TranscriptChunk

KEY: SessionKey = {"project_key": "-srv-shop", "session_id": "11111111-1111-4111-8111-111111111111"}
SUBAGENT: SessionKey = {**KEY, "subpath": "subagents/agent-a1"}


def said(uuid: str, text: str = "hello") -> dict[str, Any]:
    return {"type": "user", "uuid": uuid, "message": {"role": "user", "content": text}}


@pytest.fixture
def archive_dir(settings, tmp_path: Path) -> Path:
    settings.CLAUDEOPS_ARCHIVE_DIR = str(tmp_path / "archive")
    return tmp_path / "archive"


@pytest.fixture(params=["database", "directory"])
def either_place(request, settings, tmp_path: Path) -> None:
    in_directory = request.param == "directory"
    settings.CLAUDEOPS_ARCHIVE_DIR = str(tmp_path / "archive") if in_directory else ""


def files_in(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def test_it_returns_text_that_no_database_column_could_hold(db, either_place):
    odd = [said("a", "NUL \x00, half a pair \ud83e, ünï, \u2028"), {"type": "x", "n": 0.1 + 0.2}]

    append_entries(KEY, odd)

    assert load_entries(KEY) == odd


def test_it_stores_a_repeated_entry_once(db):
    append_entries(KEY, [said("a"), said("b")])

    added = append_entries(KEY, [said("b"), said("c"), said("c")])

    assert added == 1
    assert load_entries(KEY) == [said("a"), said("b"), said("c")]


def test_it_adds_entries_without_uuid_each_time_they_are_appended(db):
    append_entries(KEY, [{"type": "mode"}])
    append_entries(KEY, [{"type": "mode"}])

    assert load_entries(KEY) == [{"type": "mode"}, {"type": "mode"}]


def test_it_adds_only_new_entries_of_a_grown_transcript(db):
    file = [{"type": "mode"}, said("a"), {"type": "mode"}]
    append_missing(KEY, file)

    added = append_missing(KEY, [*file, said("b"), {"type": "mode"}])

    assert added == 2
    assert load_entries(KEY) == [*file, said("b"), {"type": "mode"}]


def test_it_adds_nothing_when_nothing_is_new(db):
    append_missing(KEY, [said("a"), {"type": "mode"}])

    assert append_missing(KEY, [said("a"), {"type": "mode"}]) == 0
    assert TranscriptChunk.objects.count() == 1


def test_it_cuts_a_long_transcript_into_chunks(db, monkeypatch):
    monkeypatch.setattr(transcripts, "CHUNK_BYTES", 200)
    entries = [said(str(number)) for number in range(10)]

    append_entries(KEY, entries)

    assert TranscriptChunk.objects.count() == 5
    assert load_entries(KEY) == entries


def test_it_compresses_stored_entries(db):
    append_entries(KEY, [said("a", "the same words " * 1000)])

    assert len(TranscriptChunk.objects.get().content) < 1000


def test_files_are_readable_only_by_their_owner(db, archive_dir):
    append_entries(KEY, [said("a")])

    chunk = TranscriptChunk.objects.get()
    assert not chunk.content
    assert (archive_dir / chunk.stored_as).stat().st_mode & 0o777 == 0o600


def test_it_removes_the_files_of_a_deleted_transcript_after_the_commit(db, archive_dir):
    append_entries(KEY, [said("a")])
    append_entries(SUBAGENT, [said("b")])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction, "on_commit", lambda act: act())
        delete_transcript(KEY)

    assert files_in(archive_dir) == []
    assert not Transcript.objects.exists()


def test_it_leaves_no_file_behind_when_the_database_fails(db, archive_dir, monkeypatch):
    def fail(*args: object) -> None:
        raise RuntimeError("the database went away")

    monkeypatch.setattr(transcripts, "_note_change", fail)

    with pytest.raises(RuntimeError):
        append_entries(KEY, [said("a")])

    assert files_in(archive_dir) == []
    assert load_entries(KEY) is None


def test_a_damaged_copy_is_an_error_and_not_returned_in_part(db, archive_dir):
    append_entries(KEY, [said("a")])
    append_entries(KEY, [said("b")])
    (archive_dir / TranscriptChunk.objects.get(number=0).stored_as).unlink()

    with pytest.raises(TranscriptDamaged, match="cannot be read"):
        load_entries(KEY)


def test_a_missing_archive_directory_is_an_error(db, archive_dir, settings):
    append_entries(KEY, [said("a")])
    settings.CLAUDEOPS_ARCHIVE_DIR = ""

    with pytest.raises(TranscriptDamaged, match="CLAUDEOPS_ARCHIVE_DIR is not set"):
        load_entries(KEY)


def test_entries_in_the_database_are_read_after_a_directory_was_configured(db, settings, tmp_path):
    append_entries(KEY, [said("a")])
    settings.CLAUDEOPS_ARCHIVE_DIR = str(tmp_path / "archive")
    append_entries(KEY, [said("b")])

    assert load_entries(KEY) == [said("a"), said("b")]


def test_it_stores_the_transcript_when_the_summary_fails(db, monkeypatch, caplog):
    def fail(*args: object) -> None:
        raise OverflowError("year 0")

    monkeypatch.setattr("claude_agent_sdk.fold_session_summary", fail)

    append_entries(KEY, [said("a")])

    assert load_entries(KEY) == [said("a")]
    assert "Could not update the summary" in caplog.text


def test_it_stores_the_description_of_a_subagent(db):
    append_entries(SUBAGENT, [said("a"), {"type": "agent_metadata", "description": "count logs"}])

    assert (Transcript.objects.get().summary or {})["description"] == "count logs"


def test_it_finds_the_project_of_the_latest_copy_by_the_id_alone(db):
    append_entries(KEY, [said("a")])
    with time_machine.travel(Transcript.objects.get().updated_at.timestamp() + 60):
        append_entries({**KEY, "project_key": "-other-host"}, [said("a")])

    assert latest_project(KEY["session_id"]) == "-other-host"
    assert latest_project("unknown") is None


def test_a_clock_that_is_set_back_does_not_make_a_copy_older(db):
    append_entries(KEY, [said("a")])
    before = Transcript.objects.get().updated_at

    with time_machine.travel(before.timestamp() - 3600):
        append_entries(KEY, [said("b")])

    assert Transcript.objects.get().updated_at >= before


@pytest.mark.django_db(transaction=True)
def test_concurrent_appends_lose_nothing(either_place):
    failures: list[BaseException] = []
    start = threading.Barrier(8)

    def append_some(writer: int) -> None:
        try:
            start.wait(timeout=20)
            for number in range(5):
                append_entries(KEY, [said("shared"), said(f"{writer}-{number}")])
        except BaseException as error:
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=append_some, args=(writer,)) for writer in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    uuids = [entry["uuid"] for entry in load_entries(KEY) or []]
    assert sorted(uuids) == sorted(
        ["shared", *(f"{writer}-{number}" for writer in range(8) for number in range(5))]
    )


@pytest.mark.django_db(transaction=True)
def test_concurrent_archiving_stores_a_transcript_once():
    file = [said("a"), {"type": "mode"}, {"type": "mode"}, said("b")]
    start = threading.Barrier(4)

    def archive() -> None:
        start.wait(timeout=20)
        append_missing(KEY, file)
        connection.close()

    threads = [threading.Thread(target=archive) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert load_entries(KEY) == file
