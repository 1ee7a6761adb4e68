"""`manage.py up`: the newcomer's first minute."""

from __future__ import annotations

import re
import signal
import subprocess
import urllib.request

from tests.system.conftest import Installation, processes_mentioning, wait_until


def read_until(process: subprocess.Popen[str], words: str) -> str:
    assert process.stdout is not None
    said = ""
    while words not in said:
        line = process.stdout.readline()
        assert line, f"ended before saying {words!r}: {said}"
        said += line
    return said


def stop(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGINT)
    output, _nothing = process.communicate(timeout=40)
    return output


def test_up_runs_a_drill_without_an_api_key_and_stops_cleanly(installation: Installation):
    process = installation.start("up")
    said = read_until(process, "Claude Ops is running at")
    address = re.findall(r"http://\S+", said)[-1]

    page = urllib.request.urlopen(address + "login/").read().decode()
    wait_until(
        lambda: installation.rows("SELECT 1 FROM sessions_app_cycle WHERE outcome = 'fixed'"),
        "the drill ends",
    )
    goodbye = stop(process)

    assert "shown only this once" in said
    assert "No API key is configured" in said
    assert "csrfmiddlewaretoken" in page
    assert "Stopped." in goodbye
    assert process.returncode == 0
    assert len(installation.chain(1)) == 3
    assert processes_mentioning(str(installation.state)) == []


def test_up_again_continues_where_it_was(installation: Installation):
    installation.environment["CLAUDEOPS_ADMIN_PASSWORD"] = "correct horse battery"
    for _start in range(2):
        process = installation.start("up")
        said = read_until(process, "Claude Ops is running at")
        wait_until(
            lambda: installation.rows("SELECT 1 FROM sessions_app_cycle WHERE outcome = 'fixed'"),
            "the drill ends",
        )
        stop(process)

    assert "Running the drill" not in said
    assert installation.rows("SELECT count(*) FROM sessions_app_cycle") == [(1,)]
    assert installation.rows("SELECT name FROM sessions_app_watch") == [("default",)]


def test_up_stops_a_running_tier_and_records_it_as_interrupted(installation: Installation):
    process = installation.start("up")
    read_until(process, "Claude Ops is running at")
    wait_until(
        lambda: installation.rows("SELECT 1 FROM sessions WHERE status = 'running'"), "a tier runs"
    )

    stop(process)

    open_sessions = "SELECT id FROM sessions WHERE status IN ('running')"
    assert installation.rows(open_sessions) == []
    assert processes_mentioning(str(installation.state)) == []


def test_up_names_a_port_that_is_taken(installation: Installation):
    process = installation.start("up")
    read_until(process, "Claude Ops is running at")

    second = installation.manage("up")

    assert second.returncode == 2
    assert "CLAUDEOPS_PORT" in second.stderr
