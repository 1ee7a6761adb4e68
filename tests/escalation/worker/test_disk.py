"""The size of directories while other processes remove files."""

from __future__ import annotations

import shutil

from escalation.worker.housekeeping import file_sizes


def test_a_file_that_disappears_does_not_stop_the_count(tmp_path):
    for number in range(10):
        (tmp_path / str(number)).write_bytes(b"x" * 2**number)
    sizes = file_sizes(tmp_path)
    first = next(sizes)
    gone = next(number for number in range(10) if 2**number != first)

    (tmp_path / str(gone)).unlink()

    assert first + sum(sizes) == 2**10 - 1 - 2**gone


def test_a_directory_that_disappears_does_not_stop_the_count(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"x")
    sizes = file_sizes(tmp_path)
    next(sizes)

    for name in ("a", "b", "c"):
        shutil.rmtree(tmp_path / name)
    (tmp_path / "late").write_bytes(b"")

    assert sum(sizes) == 0
