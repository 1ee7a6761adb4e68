"""Tests of the permissions of files."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from claudeops.state import close_to_others, complaints, private_paths

ROOT = Path(__file__).resolve().parents[2]
OTHER_USER = 65534


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory whose files other users can read."""
    directory = tmp_path / "state"
    for name in ("spool", "runs"):
        (directory / name).mkdir(parents=True)
        (directory / name).chmod(0o755)
    for name in ("secret_key", "claudeops.sqlite3", "claudeops.sqlite3-wal"):
        (directory / name).write_text("x")
        (directory / name).chmod(0o644)
    directory.chmod(0o755)
    return directory


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_files_of_claude_ops_are_made_private(state):
    close_to_others(state)

    assert mode(state) == 0o700
    assert {mode(path) for path in state.iterdir() if path.is_dir()} == {0o700}
    assert {mode(path) for path in state.iterdir() if path.is_file()} == {0o600}
    assert list(complaints(private_paths(state))) == []


def test_a_directory_with_other_files_is_reported_and_unchanged(state):
    (state / "photos").mkdir()
    (state / "photos").chmod(0o755)

    close_to_others(state)

    assert (mode(state), mode(state / "photos")) == (0o755, 0o755)
    assert mode(state / "secret_key") == 0o600
    ((complaint, remedy),) = complaints(private_paths(state))
    assert f"{state} is open to other users (mode 755)" in complaint
    assert remedy == f"chmod 700 {state}"


def test_a_symbolic_link_is_not_followed(state, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    elsewhere.chmod(0o755)
    (state / "drills").symlink_to(elsewhere)

    close_to_others(state)

    assert mode(elsewhere) == 0o755
    assert state / "drills" not in private_paths(state)


def test_a_database_elsewhere_is_made_private_with_its_side_files(state, tmp_path):
    database = tmp_path / "ops.db"
    files = [database, tmp_path / "ops.db-wal", tmp_path / "ops.db-shm"]
    for path in files:
        path.touch(mode=0o644)

    close_to_others(state, database)

    assert {mode(path) for path in files} == {0o600}


def test_a_file_of_another_owner_is_reported_with_both_users(state, monkeypatch):
    owner = pwd.getpwuid(os.geteuid()).pw_name
    monkeypatch.setattr(os, "geteuid", lambda: OTHER_USER)

    close_to_others(state)

    said = dict(complaints([state / "secret_key"]))
    assert mode(state / "secret_key") == 0o644
    assert any(f"belongs to {owner}, but Claude Ops runs as nobody" in text for text in said)
    assert any("open to other users" in text for text in said)
    assert any(remedy.startswith("sudo chown -R nobody ") for remedy in said.values())


def test_a_missing_directory_is_not_reported(tmp_path):
    close_to_others(tmp_path / "none")

    assert list(complaints(private_paths(tmp_path / "none"))) == []


def installation(state: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "CLAUDEOPS_STATE_DIR": str(state),
        "DJANGO_SETTINGS_MODULE": "claudeops.settings",
    }


def output_of(state: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=installation(state),
        umask=0o022,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


def test_a_command_creates_private_files(tmp_path):
    output_of(tmp_path / "state", "manage.py", "migrate", "--verbosity", "0")

    made = [tmp_path / "state", *(tmp_path / "state").rglob("*")]
    assert tmp_path / "state/claudeops.sqlite3" in made
    assert [path for path in made if mode(path) & 0o077] == []


def test_a_command_makes_existing_files_private(state):
    (state / "claudeops.sqlite3").unlink()
    (state / "claudeops.sqlite3-wal").unlink()

    checked = output_of(state, "manage.py", "check")

    assert (mode(state), mode(state / "secret_key")) == (0o700, 0o600)
    assert "W001" not in checked.stderr


def test_a_command_reports_files_that_it_cannot_change(state):
    (state / "photos").touch()

    checked = output_of(state, "manage.py", "check")

    assert f"chmod 700 {state}" in checked.stderr


def test_the_web_server_creates_private_files(tmp_path):
    program = "import claudeops.asgi, os; print(oct(os.umask(0)))"

    assert output_of(tmp_path / "state", "-c", program).stdout.strip() == "0o77"
