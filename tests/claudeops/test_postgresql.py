"""A process that outlives its connection: the server ends it, and the process goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.devtools.postgres import new_database

PROJECT = Path(__file__).resolve().parents[2]
SCRIPT = """
import os
import django, psycopg
django.setup()
from django.db import OperationalError, connection, transaction

def answer():
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]

def end_it():
    with psycopg.connect(os.environ["DATABASE_URL"]) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [before])

def fails():
    try:
        answer()
    except OperationalError:
        return True
    return False

before = answer()
end_it()
print(fails(), answer() != before)
before = answer()
try:
    with transaction.atomic():
        answer()
        end_it()
        answer()
except OperationalError:
    print("the transaction failed", answer() != before)
"""


def test_after_a_closed_connection_the_next_query_connects_again(postgres, tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=PROJECT,
        env={
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            "CLAUDEOPS_STATE_DIR": str(tmp_path),
            "DJANGO_SETTINGS_MODULE": "claudeops.settings",
            "DATABASE_URL": postgres.new_database(),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.stdout.splitlines() == ["True True", "the transaction failed True"], ended.stderr


@pytest.mark.parametrize("options", [(), ("--check",)])
def test_a_database_that_is_not_in_utf8_is_not_upgraded(postgres, tmp_path, options):
    ended = subprocess.run(
        [sys.executable, "manage.py", "upgrade", *options],
        cwd=PROJECT,
        env={
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            "CLAUDEOPS_STATE_DIR": str(tmp_path),
            "DATABASE_URL": new_database(postgres.port, encoding="SQL_ASCII"),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 2
    assert "SQL_ASCII" in ended.stderr
    assert "createdb --encoding UTF8 --template template0" in ended.stderr
    assert "Traceback" not in ended.stderr
