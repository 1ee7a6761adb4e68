"""PostgreSQL refuses text that is longer than its column, and NUL: the same tests on it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.devtools.postgres import new_database, postgres_server

PROJECT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    "tests",
    ["tests/sessions_app/models/test_text_columns.py", "tests/escalation/run/test_long_text.py"],
)
def test_text_from_outside_is_stored_on_postgresql(tests):
    with postgres_server() as port:
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--reuse-db", tests],
            cwd=PROJECT,
            env={**os.environ, "DATABASE_URL": new_database(port)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    assert ended.returncode == 0, ended.stdout[-4_000:]
