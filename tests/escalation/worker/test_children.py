"""Child processes: started, watched, asked to stop, and killed."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time

import pytest

from escalation.worker import parent
from escalation.worker.parent import (
    PROJECT,
    SHORT_LIVES,
    Child,
    first_to_end,
    stop_children,
    wait_for_web,
)
from tests.escalation.processes import is_gone_soon

SLEEPER = "import time; time.sleep(60)"
DEAF = (
    "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "open(sys.argv[1], 'w').close(); time.sleep(60)"
)


@pytest.fixture
def started():
    """Start small programs that are surely gone after the test."""
    running: list[Child] = []

    def start(program: str, *arguments: str) -> Child:
        running.append(Child.start("small program", "-IS", "-c", program, *arguments))
        return running[-1]

    yield start
    for child in running:
        with contextlib.suppress(ProcessLookupError):
            child.process.kill()
        child.process.wait()


@pytest.fixture
def listening():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_a_child_runs_until_it_is_asked_to_stop(started):
    child = started(SLEEPER)
    ran = not child.has_ended

    child.ask_to_stop()
    child.make_stop(time.monotonic() + 5)

    assert (ran, child.has_ended) == (True, True)
    assert child.process.returncode == -15


def test_a_child_that_ignores_the_request_is_killed(started, tmp_path):
    child = started(DEAF, str(tmp_path / "deaf"))
    _wait_for(tmp_path / "deaf")

    child.ask_to_stop()
    child.make_stop(time.monotonic() + 0.2)

    assert child.process.returncode == -9


def test_the_processes_that_a_child_started_are_ended_with_it(started, tmp_path):
    program = (
        "import subprocess, sys, time; child = subprocess.Popen(['sleep', '60']);"
        "open(sys.argv[1], 'w').write(str(child.pid)); time.sleep(60)"
    )
    child = started(program, str(tmp_path / "pid"))
    _wait_for(tmp_path / "pid")

    child.make_stop(time.monotonic())

    assert is_gone_soon(int((tmp_path / "pid").read_text()))


def test_a_child_that_has_ended_can_be_stopped_again(started):
    child = started("pass")
    child.process.wait()

    child.ask_to_stop()
    child.make_stop(time.monotonic())

    assert child.process.returncode == 0


def test_a_child_has_its_own_process_session(started):
    import os

    child = started(SLEEPER)

    assert os.getsid(child.process.pid) == child.process.pid != os.getsid(0)


def test_all_children_are_stopped_together(started, tmp_path, monkeypatch):
    monkeypatch.setattr(parent, "STOP_TIMEOUT_SECONDS", 0.5)
    deaf, sleeper = started(DEAF, str(tmp_path / "deaf")), started(SLEEPER)
    _wait_for(tmp_path / "deaf")
    began = time.monotonic()

    stop_children([deaf, sleeper])

    assert (deaf.process.returncode, sleeper.process.returncode) == (-9, -15)
    assert time.monotonic() - began < 3


def test_watching_ends_on_a_stop_request(started):
    assert first_to_end([started(SLEEPER)], lambda: True) is None


def test_the_end_of_a_child_is_noticed_at_once(started, monkeypatch):
    monkeypatch.setattr(parent, "LOOK_SECONDS", 600)

    child = started("raise SystemExit(3)")

    first_to_end([child], lambda: False)

    assert child.process.returncode == 3


def test_the_parent_does_not_import_django():
    program = "import sys, escalation.worker.parent; sys.exit('django' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], cwd=PROJECT, check=False).returncode == 0


def test_the_child_that_ended_is_named(started):
    sleeper, dead = started(SLEEPER), started("raise SystemExit(3)")

    assert first_to_end([sleeper, dead], lambda: False) is dead


def test_a_child_that_died_is_started_again(started, tmp_path):
    child = started("import sys; open(sys.argv[1], 'a').write('x')", str(tmp_path / "lives"))
    child.process.wait()
    first = child.process.pid

    assert child.start_again()

    child.process.wait()
    assert child.process.pid != first
    assert (tmp_path / "lives").read_text() == "xx"


def test_a_child_that_dies_at_every_start_is_not_started_again(started):
    child = started("pass")

    starts = []
    for _life in range(SHORT_LIVES):
        child.process.wait()
        starts.append(child.start_again())

    assert starts == [True] * (SHORT_LIVES - 1) + [False]


def test_a_long_run_resets_the_count_of_short_ones(started, monkeypatch):
    child = started("pass")
    child.process.wait()
    child.start_again()
    child.process.wait()
    monkeypatch.setattr(parent, "SHORT_LIFE_SECONDS", 0.0)

    child.start_again()

    assert child.short_lives == 0


def test_the_output_of_a_child_goes_to_its_log(started, tmp_path):
    child = Child.start("small program", "-c", "print('said')", log=tmp_path / "log")
    child.process.wait()

    assert (tmp_path / "log").read_text() == "said\n"


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])  # noqa: S104 (compared, not bound)
def test_the_web_server_is_ready_once_it_accepts_connections(started, listening, host):
    assert wait_for_web([started(SLEEPER)], host, listening)


def test_waiting_for_the_web_server_ends_when_a_child_has_ended(started):
    child = started("pass")
    child.process.wait()

    assert not wait_for_web([child], "127.0.0.1", 1)


def _wait_for(path) -> None:
    give_up = time.monotonic() + 5
    while not path.exists() and time.monotonic() < give_up:
        time.sleep(0.01)
