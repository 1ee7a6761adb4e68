"""Hosts whose clocks differ: a heartbeat is stored and judged by the clock of the database."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.devtools.postgres import new_database, postgres_server

PROJECT = Path(__file__).resolve().parents[3]
SCRIPT = """
import datetime, sys
import django, time_machine
django.setup()
ahead = datetime.timedelta(minutes=float(sys.argv[1]))
with time_machine.travel(datetime.datetime.now(datetime.UTC) + ahead, tick=True):
    from django.core.management import call_command
    from django.db import connection
    from escalation.run.recovery import runner_lives
    from sessions_app.models import Session
    from sessions_app.models.installation import awake_since, shared_now
    # The server itself must have been awake for longer than the silence that is judged.
    import escalation.run.recovery as runners
    runners.awake_since = lambda: None
    def run_of(seconds_ago):
        seen = shared_now() - datetime.timedelta(seconds=seconds_ago)
        return Session(host="elsewhere", heartbeat_at=seen)
    print(runner_lives(run_of(5)), runner_lives(run_of(50)))
    runners.awake_since = awake_since
    print(runner_lives(run_of(50)))
"""


@pytest.fixture(scope="module")
def address():
    with postgres_server() as port:
        yield new_database(port)


@pytest.mark.parametrize("minutes_ahead", ["1", "-1", "0"])
def test_a_clock_that_differs_by_a_minute_does_not_change_who_is_live(
    address, tmp_path, minutes_ahead
):
    said = subprocess.run(
        [sys.executable, "-c", SCRIPT, minutes_ahead],
        cwd=PROJECT,
        env={
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            "CLAUDEOPS_STATE_DIR": str(tmp_path),
            "DJANGO_SETTINGS_MODULE": "claudeops.settings",
            "DATABASE_URL": address,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    silent_while_the_server_was_away_is_not_dead = "True"
    assert said.stdout.split() == ["True", "False", silent_while_the_server_was_away_is_not_dead], (
        said.stderr
    )
