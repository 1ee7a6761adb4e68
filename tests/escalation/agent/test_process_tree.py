"""Every process of a run is found by its identity, and no other process is signalled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from escalation.agent import process as cli_process
from escalation.agent.process import (
    ProcessId,
    boot_id,
    family,
    process_id,
    recorded_tools,
    started_at,
    stop_family,
)
from tests.escalation.processes import is_alive, is_gone_soon

SLEEPS = "import time; time.sleep(60)"
IGNORES = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(60)
"""
# What daemons do to show a title: write over the memory in which their environment begins.
WRITES_A_TITLE = """
import ctypes, sys, time
first = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), "environ")[0]
ctypes.memset(first, 0, 6)
print("ready", flush=True)
time.sleep(60)
"""
# A daemon as it is written in the books: fork, new session, fork, and the middle one leaves.
DAEMON = """
import os, time
if os.fork():
    os.wait()
    time.sleep(60)
os.setsid()
if os.fork():
    os._exit(0)
open({path!r}, "w").write(str(os.getpid()))
time.sleep(60)
"""


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """What a test starts is ended with it."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


@pytest.fixture
def python(started):
    def start(program: str, **options) -> ProcessId:
        process = subprocess.Popen([sys.executable, "-IS", "-c", program], **options)
        started.append(process)
        return known(process.pid)

    return start


@pytest.fixture
def shell(started, tmp_path):
    """Start a shell that writes a child's pid to a file; gives the shell and the child."""

    def start(script: str, **options) -> tuple[ProcessId, int]:
        path = tmp_path / f"pid-{len(started)}"
        process = subprocess.Popen(["/bin/sh", "-c", script.format(path=path)], **options)
        started.append(process)
        return known(process.pid), number_in(path)

    return start


def known(pid: int) -> ProcessId:
    found = process_id(pid)
    assert found is not None
    return found


def number_in(path: Path) -> int:
    give_up = time.monotonic() + 5
    while time.monotonic() < give_up:
        if path.exists() and path.read_text().strip():
            return int(path.read_text())
        time.sleep(0.01)
    raise AssertionError(f"nobody wrote {path}")


def pids(found: set[ProcessId]) -> set[int]:
    return {process.pid for process in found}


def end(pid: int) -> None:
    process = process_id(pid)
    if process is not None:
        process.send(signal.SIGKILL)


def test_the_root_and_its_descendants_are_found(shell):
    root, grandchild = shell("(sleep 60 & echo $! >{path}; wait) & wait")

    found = pids(family(root, [], ""))

    assert {root.pid, grandchild} <= found
    assert len(found) == 3


def test_a_child_in_its_own_process_session_is_found_by_descent(shell):
    root, child = shell("setsid sleep 60 & echo $! >{path}; wait")

    assert child in pids(family(root, [], ""))
    end(child)


def test_without_root_tools_and_mark_the_family_is_empty():
    assert family(None, [], "") == set()


def test_the_asking_process_is_never_in_the_family(python, monkeypatch):
    child = python(SLEEPS)

    assert pids(family(known(os.getpid()), [], "")) == {child.pid}


def test_a_process_that_outlives_its_tool_shell_is_found_by_its_process_session(shell):
    tool, child = shell("sleep 60 & echo $! >{path}; sleep 0.3", start_new_session=True)
    time.sleep(0.6)
    assert not tool.is_alive

    found = family(None, [tool], "")

    assert pids(found) == {child}
    end(child)


def test_a_process_session_with_a_reused_number_is_not_ours(python):
    stranger = python(SLEEPS, start_new_session=True)

    assert family(None, [ProcessId(stranger.pid, stranger.started - 1)], "") == set()


def test_a_double_forked_daemon_is_found_by_its_environment(python, tmp_path):
    path = tmp_path / "daemon"
    mark = f"mark-{os.getpid()}-daemon"
    root = python(DAEMON.format(path=str(path)), env={"CLAUDEOPS_RUN": mark})
    daemon = number_in(path)

    assert daemon not in pids(family(root, [], ""))
    assert daemon in pids(family(root, [], mark))
    end(daemon)


def test_a_daemon_that_overwrote_its_environment_is_found(python, started):
    mark = f"mark-{os.getpid()}-title"
    environment = {"FIRST": "x" * 20, "CLAUDEOPS_RUN": mark}
    daemon = python(WRITES_A_TITLE, env=environment, stdout=subprocess.PIPE)
    started[0].stdout.readline()

    assert psutil.Process(daemon.pid).environ() == {}
    assert pids(family(None, [], mark)) == {daemon.pid}


def test_an_empty_mark_matches_no_process(python):
    python(SLEEPS, env={"CLAUDEOPS_RUN": ""})

    assert family(None, [], "") == set()


def test_the_mark_of_another_run_does_not_match(python):
    python(SLEEPS, env={"CLAUDEOPS_RUN": "session-1-aaaa"})

    assert family(None, [], "session-1-bbbb") == set()


def test_a_root_with_a_reused_pid_is_not_the_root(python):
    stranger = python(SLEEPS)

    assert family(ProcessId(stranger.pid, stranger.started - 1), [], "") == set()


def test_a_process_with_a_reused_pid_is_never_signalled(python, started):
    stranger = python(SLEEPS)

    ProcessId(stranger.pid, stranger.started - 1).send(signal.SIGKILL)

    time.sleep(0.1)
    assert started[0].poll() is None


def test_a_signal_to_a_dead_process_is_no_error(python, started):
    gone = python("pass")
    started[0].wait()

    gone.send(signal.SIGTERM)

    assert not gone.is_alive


def test_a_zombie_counts_as_dead(python, started):
    zombie = python("import time; time.sleep(1)")

    assert is_gone_soon(zombie.pid)
    assert Path(f"/proc/{zombie.pid}").exists()
    assert (started_at(zombie.pid), zombie.is_alive) == (None, False)
    assert family(zombie, [], "") == set()


@pytest.mark.parametrize("name", ["a b", "x) S 1 1", "((", "))) Z 1 1 1", "new\nline"])
def test_a_hostile_process_name_is_parsed(started, tmp_path, name):
    program = tmp_path / name[:15]
    program.symlink_to("/bin/sleep")
    started.append(subprocess.Popen([str(program), "60"]))
    process = known(started[0].pid)

    assert process.started > started_at(1)  # type: ignore[operator]
    assert pids(family(process, [], "")) == {process.pid}


@pytest.mark.parametrize(
    ("text", "tools"),
    [
        ("12 34\n56 78\n", [ProcessId(12, 34), ProcessId(56, 78)]),
        ("", []),
        ("12\n", []),
        ("12 34 56\n", []),
        ("-1 5\nx y\n\n \n12 x\n1.5 2\n", []),
        ("garbage\x00\n12 34\n", [ProcessId(12, 34)]),
    ],
)
def test_only_whole_lines_of_the_tool_log_count(tmp_path, text, tools):
    log = tmp_path / "tools"
    log.write_text(text)

    assert recorded_tools(log) == tools


@pytest.mark.parametrize("bytes_", [b"\xff\xfe 12\n", "² ³\n".encode(), b"\x00" * 100])
def test_invalid_lines_of_the_tool_log_are_ignored(tmp_path, bytes_):
    log = tmp_path / "tools"
    log.write_bytes(bytes_ + b"\n7 8\n")

    assert ProcessId(7, 8) in recorded_tools(log)


def test_a_number_too_long_for_a_pid_is_ignored(tmp_path):
    log = tmp_path / "tools"
    log.write_text(f"{'9' * 5000} 1\n7 8\n")

    assert ProcessId(7, 8) in recorded_tools(log)


def test_a_missing_tool_log_has_no_processes(tmp_path):
    assert recorded_tools(tmp_path / "nowhere") == []


def test_a_family_that_obeys_sigterm_is_not_killed(started):
    obeys = "import signal, sys; signal.signal(15, lambda *_: sys.exit(3)); print(1, flush=True);"
    process = subprocess.Popen(
        [sys.executable, "-IS", "-c", obeys + "signal.pause()"], stdout=subprocess.PIPE
    )
    started.append(process)
    assert process.stdout is not None
    process.stdout.readline()
    root = known(process.pid)

    survivors = stop_family(lambda: family(root, [], ""), 5.0)

    assert (survivors, process.wait()) == (set(), 3)


def test_a_process_in_a_sandbox_gets_sigterm_before_the_sandbox_ends(started):
    obeys = "import signal, sys; signal.signal(15, lambda *_: sys.exit(3)); print(1, flush=True);"
    bwrap = ["bwrap", "--unshare-user", "--unshare-pid", "--die-with-parent", "--ro-bind", "/", "/"]
    process = subprocess.Popen(
        [*bwrap, "--proc", "/proc", sys.executable, "-IS", "-c", obeys + "signal.pause()"],
        stdout=subprocess.PIPE,
    )
    started.append(process)
    assert process.stdout is not None
    process.stdout.readline()
    root = known(process.pid)

    survivors = stop_family(lambda: family(root, [], ""), 5.0)

    assert (survivors, process.wait()) == (set(), 3)


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace_period(started):
    process = subprocess.Popen([sys.executable, "-IS", "-c", IGNORES], stdout=subprocess.PIPE)
    started.append(process)
    assert process.stdout is not None
    process.stdout.readline()
    root = known(process.pid)
    began = time.monotonic()

    survivors = stop_family(lambda: family(root, [], ""), 0.4)

    assert (survivors, process.wait()) == (set(), -signal.SIGKILL)
    assert 0.4 <= time.monotonic() - began < 3


def test_each_process_gets_sigterm_once():
    asked: list[signal.Signals] = []

    class Deaf(ProcessId):
        def send(self, number: signal.Signals) -> None:
            asked.append(number)

    deaf: ProcessId = Deaf(1, 1)
    looks = iter([{deaf}] * 4)

    stop_family(lambda: next(looks, set()), 60.0, wait=lambda seconds: None)

    assert asked == [signal.SIGTERM]


def test_a_process_that_appears_during_the_stop_is_stopped_too(shell, python):
    root, child = shell("trap 'sleep 60 & exit' TERM; echo $$ >{path}; while :; do sleep 0.1; done")
    mark = ""
    assert root.pid == child

    survivors = stop_family(lambda: family(root, [], mark), 2.0)

    assert survivors == set()


def test_survivors_are_reported(monkeypatch):
    monkeypatch.setattr(cli_process, "KILL_TIMEOUT_SECONDS", 0.0)
    immortal = ProcessId(2**22 + 7, 1)

    assert stop_family(lambda: {immortal}, 0.0) == {immortal}


def test_the_caller_supplies_the_wait():
    waits: list[float] = []
    looks = iter([{ProcessId(2**22 + 7, 1)}, set(), set(), set()])

    stop_family(lambda: next(looks), 5.0, wait=waits.append)

    assert len(waits) == 1


def test_the_start_time_of_this_process_is_known():
    assert is_alive(os.getpid())
    assert known(os.getpid()).is_alive


def test_the_start_time_is_that_of_psutil(python):
    process = python(SLEEPS)
    seconds_since_boot = psutil.Process(process.pid).create_time() - psutil.boot_time()

    assert process.started == round(seconds_since_boot * os.sysconf("SC_CLK_TCK"))


def test_a_pid_that_does_not_exist_has_no_start_time():
    assert started_at(2**22 + 7) is None


def test_the_boot_has_an_id(monkeypatch, tmp_path):
    named = boot_id()
    monkeypatch.setattr(cli_process, "PROC", tmp_path)

    assert len(named) == 36
    assert boot_id() == ""
