"""Copies of files before edits, and the files that commands wrote."""

from __future__ import annotations

import json
import os

import pytest

from escalation.sandbox.api_proxy import Meter
from escalation.sandbox.edited_files import (
    ABSENT,
    BeforeEdits,
    OutsideOfRun,
    content_at,
    digest_at,
    digest_of,
    files_in,
    note_files,
    parent_of,
    read_copies,
    written_files,
)
from sessions_app.models import Change

Before = Change.Before


@pytest.fixture
def workdir(tmp_path):
    directory = tmp_path / "work"
    (directory / "deep").mkdir(parents=True)
    (directory / "deep" / "a.conf").write_bytes(b"a\r\nb\xff")
    return directory


@pytest.fixture
def run_directory(tmp_path):
    directory = tmp_path / "run"
    directory.mkdir()
    return directory


@pytest.fixture
def before_edits(run_directory, workdir):
    return BeforeEdits(run_directory, workdir, [str(workdir)])


def kept(run_directory):
    return [(copy.call, copy.before, copy.content) for copy in read_copies(run_directory)]


def test_the_bytes_before_an_edit_are_kept(before_edits, run_directory, workdir):
    before_edits("toolu_1", "Edit", {"file_path": str(workdir / "deep/a.conf")})

    assert kept(run_directory) == [("toolu_1", Before.KEPT, b"a\r\nb\xff")]


def test_a_copy_is_encrypted_on_disk(before_edits, run_directory, workdir):
    (workdir / "secret").write_bytes(b"hunter2-hunter2")

    before_edits("toolu_1", "Edit", {"file_path": str(workdir / "secret")})

    [file] = (run_directory / "edits").iterdir()
    assert b"hunter2" not in file.read_bytes()
    assert oct(file.stat().st_mode & 0o777) == "0o600"


def test_a_new_file_is_noted_as_absent(before_edits, run_directory):
    before_edits("toolu_1", "Write", {"file_path": "new.txt"})

    assert kept(run_directory) == [("toolu_1", Before.ABSENT, b"")]


def test_other_tools_keep_nothing(before_edits, run_directory, workdir):
    before_edits("toolu_1", "Read", {"file_path": str(workdir / "deep/a.conf")})

    assert kept(run_directory) == []


def test_a_link_out_of_the_directory_is_not_copied(before_edits, run_directory, workdir, tmp_path):
    (tmp_path / "key").write_text("of the supervisor")
    (workdir / "link").symlink_to(tmp_path / "key")
    (workdir / "linked").symlink_to(tmp_path)

    before_edits("toolu_1", "Edit", {"file_path": "link"})
    before_edits("toolu_2", "Edit", {"file_path": "linked/key"})
    before_edits("toolu_3", "Edit", {"file_path": "../key"})

    assert {(before, content) for _call, before, content in kept(run_directory)} == {
        (Before.NOT_KEPT, b"")
    }


def test_a_directory_that_becomes_a_link_is_not_followed(workdir, tmp_path, monkeypatch):
    """The agent swaps a directory for a link between the resolution and the opening."""
    (tmp_path / "a.conf").write_text("of the supervisor")
    real = os.path.realpath

    def swapping(path, **options):
        found = real(path, **options)
        if str(path).endswith("a.conf"):
            (workdir / "deep" / "a.conf").unlink()
            (workdir / "deep").rmdir()
            (workdir / "deep").symlink_to(tmp_path)
        return found

    monkeypatch.setattr(os.path, "realpath", swapping)

    with pytest.raises(OSError), parent_of(workdir / "deep/a.conf", [str(workdir)]):  # noqa: PT011
        pass


def test_a_pipe_is_not_read(workdir):
    os.mkfifo(workdir / "pipe")

    with (
        parent_of(workdir / "pipe", [str(workdir)]) as (directory, name),
        pytest.raises(OutsideOfRun),
    ):
        content_at(directory, name)


def test_a_large_file_is_not_kept(before_edits, run_directory, workdir):
    (workdir / "large").write_bytes(b"x" * (4 * 1024 * 1024 + 1))

    before_edits("toolu_1", "Edit", {"file_path": "large"})

    assert kept(run_directory) == [("toolu_1", Before.TOO_LARGE, b"")]


def test_a_grant_for_one_file_covers_that_file(tmp_path):
    (tmp_path / "nginx.conf").write_text("x")

    assert digest_at(tmp_path / "nginx.conf", [str(tmp_path / "nginx.conf")]) == digest_of(b"x")
    assert digest_at(tmp_path / "other", [str(tmp_path / "nginx.conf")]) == ""
    assert digest_at(tmp_path / "gone" / "x", [str(tmp_path)]) == ABSENT


@pytest.mark.parametrize("piece", [1, 7, 10_000])
def test_a_call_is_seen_before_its_end_is_passed_on(piece):
    given = json.dumps({"file_path": "/srv/a", "content": "x"})
    block = {"type": "tool_use", "id": "toolu_1", "name": "Write", "input": {}}
    events = [
        {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 1, "content_block": block},
        *(
            {
                "type": "content_block_delta",
                "index": 1,
                "delta": {"type": "input_json_delta", "partial_json": part},
            }
            for part in (given[:9], given[9:])
        ),
        {"type": "content_block_stop", "index": 1},
    ]
    stream = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)
    seen: list[object] = []
    meter = Meter(
        model="m",
        content_type="text/event-stream",
        on_call=lambda *call: seen.append(call),
    )

    for start in range(0, len(stream), piece):
        meter.feed(stream[start : start + piece])

    assert seen == [("toolu_1", "Write", {"file_path": "/srv/a", "content": "x"})]


def test_calls_of_an_answer_without_a_stream_are_seen():
    seen: list[object] = []
    meter = Meter(model="m", content_type="application/json", on_call=lambda *c: seen.append(c))
    block = {"type": "tool_use", "id": "toolu_1", "name": "Edit", "input": {"file_path": "a"}}

    meter.feed(json.dumps({"content": [block], "usage": {}}).encode())
    meter.end()

    assert seen == [("toolu_1", "Edit", {"file_path": "a"})]


def test_files_that_commands_wrote_are_found(run_directory, workdir):
    (workdir / "gone").write_text("x")
    (workdir / "same").write_text("x")
    (workdir / ".git").mkdir()
    note_files(run_directory, [str(workdir)])

    (workdir / "gone").unlink()
    (workdir / "deep/a.conf").write_bytes(b"longer than before")
    (workdir / "deep/new").write_text("x")
    (workdir / ".git/index").write_text("x")

    assert [
        (file.verb, os.path.relpath(file.path, workdir)) for file in written_files(run_directory)
    ] == [
        ("write", "deep/a.conf"),
        ("create", "deep/new"),
        ("delete", "gone"),
    ]


def test_a_run_without_a_list_of_files_has_written_none(run_directory):
    assert written_files(run_directory) == []


def test_too_many_files_are_not_compared(workdir, monkeypatch):
    monkeypatch.setattr("escalation.sandbox.edited_files.MOST_FILES", 3)
    for number in range(4):
        (workdir / str(number)).write_text("x")

    assert files_in([str(workdir)]) is None
