"""`claudeops up` on a new installation.

The first tests begin with nothing; the others with the tables made, which takes seconds.
"""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import urllib.request

import psutil

from tests.system.conftest import (
    PROJECT,
    Installation,
    free_port,
    processes_mentioning,
    wait_until,
)


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


def test_up_runs_a_drill_once_without_an_api_key_and_stops_cleanly(installation: Installation):
    process = installation.start("up")
    said = read_until(process, "Stop ")
    address = re.findall(r"http://\S+", said)[0]

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

    installation.environment["CLAUDEOPS_ADMIN_PASSWORD"] = "correct horse battery"
    process = installation.start("up")
    again = read_until(process, "Stop ")
    stop(process)

    assert "The drill three-tiers is running" in said
    assert "The drill three-tiers is running" not in again
    drills = "SELECT count(*) FROM sessions_app_cycle WHERE \"trigger\" = 'manual'"
    assert installation.rows(drills) == [(1,)]
    assert installation.rows("SELECT name FROM sessions_app_watch") == [("default",)]


def test_up_stops_a_running_tier_and_records_it_as_interrupted(migrated: Installation):
    process = migrated.start("up")
    read_until(process, "Claude Ops is running at")
    wait_until(
        lambda: migrated.rows("SELECT 1 FROM sessions WHERE status = 'running'"), "a tier runs"
    )

    stop(process)

    open_sessions = "SELECT id FROM sessions WHERE status IN ('running')"
    assert migrated.rows(open_sessions) == []
    assert processes_mentioning(str(migrated.state)) == []


def test_a_second_up_is_refused_with_the_address_of_the_first(migrated: Installation):
    process = migrated.start("up")
    address = re.findall(r"http://\S+", read_until(process, "Claude Ops is running at"))[0]
    migrated.environment["CLAUDEOPS_PORT"] = str(free_port())

    second = migrated.manage("up")

    assert second.returncode == 2
    assert f"at {address}, process {process.pid}" in second.stderr
    assert "Traceback" not in second.stderr


def test_a_web_server_that_died_is_started_again_beside_the_worker(migrated: Installation):
    process = migrated.start("up")
    address = re.findall(r"http://\S+", read_until(process, "Stop "))[0]
    parent = psutil.Process(process.pid)
    wait_until(lambda: len(parent.children()) == 2, "the worker is started")
    web, worker = sorted(parent.children(), key=lambda child: child.create_time())

    web.kill()
    said = read_until(process, " died (code -9)")

    wait_until(lambda: answers(address + "login/"), "the web server answers again")
    assert "web server died" in said
    assert worker.is_running()
    assert worker.pid in {child.pid for child in parent.children()}


def answers(address: str) -> bool:
    try:
        return urllib.request.urlopen(address).status == 200
    except OSError:
        return False


def test_up_waits_for_a_database_that_is_being_started(installation: Installation):
    installation.environment["DATABASE_URL"] = "postgresql://ops:hunter22@127.0.0.1:1/none"

    process = installation.start("up")
    said = read_until(process, "Waiting for it")
    stop(process)

    assert "Is PostgreSQL running at 127.0.0.1:1" in said
    assert "hunter22" not in said
    assert process.returncode == 2


def test_logs_are_not_printed_on_a_terminal(migrated: Installation):
    """What web server and worker say goes into a file that the screen names."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "manage.py", "up"],
        cwd=PROJECT,
        env={**migrated.environment, "TERM": "xterm", "COLUMNS": "120"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    log = migrated.state / "logs" / "up.log"
    try:
        shown = read_terminal(ours, "Stop ")
        parent = psutil.Process(process.pid)
        wait_until(lambda: len(parent.children()) == 2, "the worker is started")
        written = [[file.path for file in child.open_files()] for child in parent.children()]
    finally:
        process.send_signal(signal.SIGINT)
        read_terminal(ours, "Stopped.")
        process.wait(40)
        os.close(ours)

    assert str(log) in shown
    assert "Account    operator, password" in shown
    assert all(str(log) in files for files in written)
    assert log.stat().st_mode & 0o777 == 0o600


def test_closing_the_terminal_stops_all_processes(migrated: Installation):
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "manage.py", "up"],
        cwd=PROJECT,
        env={**migrated.environment, "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    read_terminal(ours, "Stop ")

    os.close(ours)
    process.send_signal(signal.SIGHUP)
    process.wait(60)

    assert processes_mentioning(str(migrated.state)) == []


def read_terminal(descriptor: int, words: str) -> str:
    shown = ""
    while words not in shown:
        try:
            shown += os.read(descriptor, 4096).decode(errors="replace")
        except OSError as error:
            raise AssertionError(f"ended before showing {words!r}: {shown}") from error
    return shown
