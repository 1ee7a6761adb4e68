from __future__ import annotations

import os

import pytest

from escalation.rooms.directory_file import write_directory


def test_the_directory_is_written_as_a_line(tmp_path):
    write_directory(str(tmp_path / "claude-1-cwd"), "/srv/app", tmp_path)

    assert (tmp_path / "claude-1-cwd").read_text() == "/srv/app\n"


@pytest.mark.parametrize("name", ["../outside", "deeper/file", "/etc/outside", "", ".."])
def test_nothing_is_written_outside_of_the_place(tmp_path, name):
    place = tmp_path / "tmp"
    (place / "deeper").mkdir(parents=True)

    write_directory(os.path.join(place, name), "/srv", place)

    assert [path.name for path in tmp_path.rglob("*")] == ["tmp", "deeper"]


def test_a_link_is_not_followed(tmp_path):
    target = tmp_path / "target"
    target.write_text("kept")
    place = tmp_path / "tmp"
    place.mkdir()
    (place / "claude-1-cwd").symlink_to(target)

    write_directory(str(place / "claude-1-cwd"), "/srv", place)

    assert target.read_text() == "kept"


def test_a_pipe_that_nobody_reads_does_not_hold_us(tmp_path):
    os.mkfifo(tmp_path / "claude-1-cwd")

    write_directory(str(tmp_path / "claude-1-cwd"), "/srv", tmp_path)


def test_a_name_that_is_a_directory_does_no_harm(tmp_path):
    (tmp_path / "claude-1-cwd").mkdir()

    write_directory(str(tmp_path / "claude-1-cwd"), "/srv", tmp_path)

    assert list((tmp_path / "claude-1-cwd").iterdir()) == []
