from __future__ import annotations

import os

import pytest

from escalation.sandbox.command_runner import write_directory


def test_the_directory_is_written_as_a_line(tmp_path):
    write_directory(str(tmp_path / "claude-1-cwd"), "/srv/app", tmp_path)

    assert (tmp_path / "claude-1-cwd").read_text() == "/srv/app\n"


@pytest.mark.parametrize("name", ["../outside", "deeper/file", "/etc/outside", "", ".."])
def test_nothing_is_written_outside_the_temporary_directory(tmp_path, name):
    paths = tmp_path / "tmp"
    (paths / "deeper").mkdir(parents=True)

    write_directory(os.path.join(paths, name), "/srv", paths)

    assert [path.name for path in tmp_path.rglob("*")] == ["tmp", "deeper"]


def test_a_link_is_not_followed(tmp_path):
    target = tmp_path / "target"
    target.write_text("kept")
    paths = tmp_path / "tmp"
    paths.mkdir()
    (paths / "claude-1-cwd").symlink_to(target)

    write_directory(str(paths / "claude-1-cwd"), "/srv", paths)

    assert target.read_text() == "kept"


def test_a_pipe_without_a_reader_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "claude-1-cwd")

    write_directory(str(tmp_path / "claude-1-cwd"), "/srv", tmp_path)


def test_a_name_that_is_a_directory_does_no_harm(tmp_path):
    (tmp_path / "claude-1-cwd").mkdir()

    write_directory(str(tmp_path / "claude-1-cwd"), "/srv", tmp_path)

    assert list((tmp_path / "claude-1-cwd").iterdir()) == []
