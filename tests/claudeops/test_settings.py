"""Importing the settings only reads; missing files are created at their first use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IMPORTS = "import django.conf; django.conf.settings.DEBUG"
OPENS_FOR_WRITING = """
import os, sys
KINDS = {"os.mkdir", "os.rename", "os.remove", "os.link", "os.symlink", "os.chmod", "os.truncate"}
def note(event, arguments):
    writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if event in KINDS or writes:
        print(event, arguments[0], flush=True)
sys.dont_write_bytecode = True
sys.addaudithook(note)
"""


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "new" / "state"


@pytest.fixture
def python(state):
    """Run Python in an installation whose state directory does not exist yet."""

    def run(*arguments: str) -> str:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env={
                "PATH": os.environ["PATH"],
                "CLAUDEOPS_STATE_DIR": str(state),
                "DJANGO_SETTINGS_MODULE": "claudeops.settings",
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        ).stdout

    return run


def test_importing_the_settings_creates_no_state_directory(python, state):
    python("-c", IMPORTS)

    assert not state.parent.exists()


def test_importing_the_settings_writes_nothing_anywhere(python):
    assert python("-c", OPENS_FOR_WRITING + IMPORTS) == ""


def test_the_audit_hook_sees_writes(python, state):
    seen = python("-c", OPENS_FOR_WRITING + IMPORTS + "; django.conf.settings.SECRET_KEY")

    assert f"os.mkdir {state}" in seen


def test_the_secret_key_is_created_at_its_first_use(python, state):
    shown = python("-c", IMPORTS + "; print(django.conf.settings.SECRET_KEY)")

    assert shown.strip() == (state / "secret_key").read_text()


def test_a_signature_of_one_process_is_valid_in_another(python):
    signed = python("-c", "from django.core import signing; print(signing.dumps('text'))").strip()

    read = python("-c", f"from django.core import signing; print(signing.loads({signed!r}))")

    assert read == "text\n"


def test_a_command_works_in_a_state_directory_that_does_not_exist_yet(python, state):
    python("manage.py", "migrate", "--verbosity", "0")

    assert {"secret_key", "claudeops.sqlite3"} <= {path.name for path in state.iterdir()}
    assert state.stat().st_mode & 0o777 == 0o700
