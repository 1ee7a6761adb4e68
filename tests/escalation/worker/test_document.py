from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from escalation.worker.backup import (
    FORMAT,
    MARK,
    BackupUnusable,
    Writer,
    compressed,
    read_heading,
    read_through,
)

HEADING = {MARK: FORMAT, "version": "0.1.0"}
LINES = [{"table": "a.b", "columns": ["id"]}, [1], [2], {"file": "secret_key", "content": "eA=="}]


@pytest.fixture
def backup(tmp_path) -> Path:
    path = tmp_path / "whole.backup"
    with path.open("wb") as file, compressed(file) as out:
        writer = Writer(out)
        for line in (HEADING, *LINES):
            writer.write(line)
        writer.end()
    return path


def test_a_written_document_is_read(backup):
    assert read_heading(backup) == HEADING
    assert list(read_through(backup)) == LINES


@pytest.mark.parametrize("kept", [0.2, 0.5, 0.8, 0.9])
def test_a_truncated_file_is_refused(backup, kept):
    whole = backup.read_bytes()
    backup.write_bytes(whole[: int(len(whole) * kept)])

    with pytest.raises(BackupUnusable, match="cut off or damaged|no backup"):
        list(read_through(backup))


def rewritten(backup: Path, lines: list[bytes]) -> None:
    backup.write_bytes(gzip.compress(b"".join(lines)))


def lines_of(backup: Path) -> list[bytes]:
    return gzip.decompress(backup.read_bytes()).splitlines(keepends=True)


def test_a_missing_line_is_detected(backup):
    lines = lines_of(backup)
    rewritten(backup, lines[:2] + lines[3:])

    with pytest.raises(BackupUnusable, match="damaged"):
        list(read_through(backup))


def test_a_changed_line_is_detected(backup):
    rewritten(backup, [line.replace(b"[2]", b"[3]") for line in lines_of(backup)])

    with pytest.raises(BackupUnusable, match="damaged"):
        list(read_through(backup))


def test_a_missing_end_is_detected(backup):
    rewritten(backup, lines_of(backup)[:-1])

    with pytest.raises(BackupUnusable, match="does not end as a backup ends"):
        list(read_through(backup))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"root:x:0:0",
        gzip.compress(b"root:x:0:0\n"),
        gzip.compress(b'{"some": "json"}\n'),
        gzip.compress(b"[1]\n"),
        gzip.compress(b""),
        b"\x1f\x8b\x08nonsense",
    ],
    ids=["nothing", "words", "packed words", "another JSON", "a list", "empty", "torn"],
)
def test_a_file_of_another_format_is_refused(tmp_path, content):
    path = tmp_path / "foreign"
    path.write_bytes(content)

    with pytest.raises(BackupUnusable, match="is not a backup"):
        read_heading(path)


def test_a_newer_format_is_refused_with_the_needed_version(tmp_path):
    path = tmp_path / "newer"
    heading = {MARK: FORMAT + 1, "version": "9.0"}
    path.write_bytes(gzip.compress(json.dumps(heading).encode() + b"\n"))

    with pytest.raises(BackupUnusable, match=r"newer Claude Ops \(9.0\)"):
        read_heading(path)
