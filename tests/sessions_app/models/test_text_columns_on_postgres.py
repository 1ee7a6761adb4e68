"""PostgreSQL refuses text that is longer than its column, and NUL: the same tests on it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.devtools.postgres import new_database

PROJECT = Path(__file__).resolve().parents[3]
TESTS = ["tests/sessions_app/models/test_text_columns.py", "tests/escalation/run/test_long_text.py"]


def test_text_from_outside_is_stored_on_postgresql(postgres, new_postgres_database):
    address = new_postgres_database()
    new_database(postgres.port, address, f"test_{address.rpartition('/')[2]}")

    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--reuse-db", *TESTS],
        cwd=PROJECT,
        env={
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            "DATABASE_URL": address,
        },
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout[-4_000:]
