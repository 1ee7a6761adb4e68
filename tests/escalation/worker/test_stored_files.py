from __future__ import annotations

import os
from pathlib import Path

import pytest

from escalation.worker.backup import path_of, put, stored_files


@pytest.fixture
def state(settings, tmp_path) -> Path:
    settings.CLAUDEOPS_STATE_DIR.mkdir()
    settings.CLAUDEOPS_ENV_FILE = tmp_path / ".env"
    return settings.CLAUDEOPS_STATE_DIR


@pytest.mark.parametrize(
    "name",
    ["", "/etc/passwd", "../x", "spool/../../x", "archive/../x", "claudeops.sqlite3", "env/x", "x"],
)
def test_an_unknown_name_in_a_backup_has_no_path(state, settings, tmp_path, name):
    settings.CLAUDEOPS_ARCHIVE_DIR = str(tmp_path / "archive")

    assert path_of(name) is None


def test_every_stored_file_has_its_original_path(state, settings, tmp_path):
    settings.CLAUDEOPS_ARCHIVE_DIR = str(tmp_path / "archive")
    for path in (
        state / "secret_key",
        state / "encryption_key",
        state / "spool" / "7.jsonl",
        tmp_path / "archive" / "deep" / "x.gz",
        tmp_path / ".env",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")

    found = list(stored_files())

    assert len(found) == 5
    assert all(path_of(stored.name) == stored.path for stored in found)


def test_a_symbolic_link_is_not_followed(state, tmp_path):
    (tmp_path / "elsewhere").write_text("somebody's")
    (state / "spool").mkdir()
    (state / "spool" / "link").symlink_to(tmp_path / "elsewhere")

    assert list(stored_files()) == []


def test_a_replaced_file_is_kept_beside_the_new_one(state):
    (state / "secret_key").write_text("old")

    assert put("secret_key", b"new") == ""

    assert (state / "secret_key").read_text() == "new"
    assert (state / "secret_key").stat().st_mode & 0o777 == 0o600
    [kept] = state.glob("secret_key.before-restore-*")
    assert kept.read_text() == "old"


def test_an_identical_file_is_not_replaced(state):
    (state / "secret_key").write_text("same")

    put("secret_key", b"same")

    assert [path.name for path in state.iterdir()] == ["secret_key"]


def test_the_settings_of_the_operator_are_not_replaced(state, tmp_path):
    (tmp_path / ".env").write_text("MINE=1")

    said = put("env", b"THEIRS=1")

    assert (tmp_path / ".env").read_text() == "MINE=1"
    assert (state / ".env.from-backup").read_text() == "THEIRS=1"
    assert str(state / ".env.from-backup") in said


def test_settings_that_this_user_may_not_write_go_into_the_state_directory(
    state, settings, monkeypatch
):
    settings.CLAUDEOPS_ENV_FILE = Path("/proc/self/no-such-directory/env")
    monkeypatch.setattr(os, "access", lambda path, mode: path != Path("/proc/self"))

    said = put("env", b"THEIRS=1")

    assert (state / "env.from-backup").read_text() == "THEIRS=1"
    assert str(state / "env.from-backup") in said


def test_an_archived_file_without_an_archive_directory_is_reported(state, settings):
    settings.CLAUDEOPS_ARCHIVE_DIR = ""

    assert "CLAUDEOPS_ARCHIVE_DIR" in put("archive/x.gz", b"x")
