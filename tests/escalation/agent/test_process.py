"""One process: both outputs are read to the end, limits stop it, and nothing is left behind."""

from __future__ import annotations

import gc
import os
import signal
import time

import pytest

from escalation.agent import process
from escalation.agent.process import Manner, StopAsked, StreamInput
from tests.escalation.processes import (
    Ran,
    group_is_gone_soon,
    is_alive,
    is_gone_soon,
    run_argv,
    run_python,
    run_sh,
)

ASKED = StopAsked("person", "the operator")


@pytest.fixture
def short_grace(monkeypatch) -> None:
    """A process that does not end by itself is waited for only briefly."""
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.2)


def test_it_passes_on_both_outputs_line_by_line(tmp_path):
    ran = run_sh("echo one; echo two; echo oops >&2; printf three", tmp_path)

    assert ran.stdout == [b"one", b"two", b"three"]
    assert ran.stderr == [b"oops"]


@pytest.mark.parametrize("code", [0, 1, 42])
def test_it_gives_the_exit_code(tmp_path, code):
    end = run_sh(f"exit {code}", tmp_path).end

    assert (end.exit_code, end.manner) == (code, Manner.EXITED)


def test_it_gives_the_signal_that_killed_the_process(tmp_path):
    assert run_sh("kill -9 $$", tmp_path).end.exit_code == -signal.SIGKILL


def test_it_runs_in_the_directory_with_only_the_given_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_TEST", "x")

    ran = run_sh("pwd; echo ${SECRET_OF_THE_TEST:-unset}", tmp_path)

    assert ran.stdout == [str(tmp_path).encode(), b"unset"]


def test_the_process_has_an_ordinary_umask(tmp_path):
    before = os.umask(0o077)
    try:
        assert run_sh("umask", tmp_path).stdout == [b"0022"]
    finally:
        os.umask(before)


def test_both_pipes_flooded_at_once_do_not_block(tmp_path):
    program = """
import os, threading
def flood(descriptor):
    for _ in range(64):
        os.write(descriptor, b"x" * 65535 + b"\\n")
threads = [threading.Thread(target=flood, args=(n,)) for n in (1, 2)]
[t.start() for t in threads]; [t.join() for t in threads]
"""
    ran = run_python(program, tmp_path)

    assert ran.end.exit_code == 0
    assert [sum(map(len, lines)) for lines in (ran.stdout, ran.stderr)] == [64 * 65535] * 2


def test_one_pipe_flooded_before_the_other_is_used_does_not_block(tmp_path):
    ran = run_sh("head -c 3000000 /dev/zero | tr '\\0' 'e' >&2; echo done", tmp_path)

    assert ran.stdout == [b"done"]
    assert len(ran.stderr[0]) == 3_000_000


def test_a_line_of_5_megabytes_is_passed_on_whole(tmp_path):
    ran = run_sh("head -c 5000000 /dev/zero | tr '\\0' x; echo; echo after", tmp_path)

    assert [len(line) for line in ran.stdout] == [5_000_000, 5]


def test_a_prompt_of_a_megabyte_reaches_stdin(tmp_path):
    ran = run_sh("wc -c", tmp_path, prompt="é" * 500_000)

    assert ran.stdout[0].strip() == b"1000000"


def test_a_prompt_that_is_not_read_does_not_block(tmp_path):
    assert run_sh("exit 0", tmp_path, prompt="x" * 1_000_000).end.exit_code == 0


def test_a_prompt_with_half_a_surrogate_pair_is_sent(tmp_path):
    assert run_sh("cat", tmp_path, prompt="a\ud800b").stdout == [b"a?b"]


def test_an_empty_prompt_is_an_empty_stdin(tmp_path):
    assert run_sh("cat; echo end", tmp_path).stdout == [b"end"]


def test_a_process_that_hangs_is_timed_out(tmp_path):
    ran = run_sh("echo pid $$; exec sleep 60", tmp_path, timeout=0.3)

    assert ran.end.manner == Manner.TIMED_OUT
    assert ran.seconds < 3
    assert not is_alive(int(ran.stdout[0].split()[1]))


def test_a_process_that_ignores_sigterm_is_killed(tmp_path, short_grace):
    ran = run_sh("trap '' TERM; echo ready; sleep 60; sleep 60", tmp_path, timeout=0.3)

    assert (ran.end.manner, ran.end.exit_code) == (Manner.TIMED_OUT, -signal.SIGKILL)
    assert ran.seconds < 3


def test_output_after_sigterm_is_read(tmp_path):
    # When its child is stopped first, it must still be there to hear its own signal.
    script = "trap 'echo last words; exit 3' TERM; echo ready; while :; do sleep 60 & wait; done"

    ran = run_sh(script, tmp_path, timeout=0.3)

    assert ran.stdout == [b"ready", b"last words"]
    assert ran.end.exit_code == 3


def test_long_output_after_sigterm_is_read_to_the_end(tmp_path):
    program = """
import os, signal, sys, time
def leave(*_):
    for _ in range(16):
        os.write(1, b"x" * 65535 + b"\\n")
    os.write(1, b"result\\n")
    os._exit(0)
signal.signal(signal.SIGTERM, leave)
os.write(1, b"ready\\n")
time.sleep(60)
"""
    ran = run_python(program, tmp_path, stop=lambda ran: ASKED if ran.stdout else None)

    assert ran.stdout[-1] == b"result"
    assert ran.end.exit_code == 0


def test_a_requested_stop_ends_it_and_keeps_the_reason(tmp_path):
    ran = run_sh(
        "echo ready; exec sleep 60",
        tmp_path,
        stop=lambda ran: ASKED if ran.stdout else None,
    )

    assert (ran.end.manner, ran.end.stop) == (Manner.STOPPED, ASKED)
    assert ran.seconds < 3


def test_a_process_that_lingers_after_its_result_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "LINGER_SECONDS", 0.3)

    ran = run_sh("echo result; exec sleep 60", tmp_path, result=lambda ran: bool(ran.stdout))

    assert ran.end.manner == Manner.LINGERED
    assert ran.seconds < 3


def test_a_quiet_process_without_a_result_is_not_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "LINGER_SECONDS", 0.1)

    ran = run_sh("echo working; sleep 0.6; echo done", tmp_path)

    assert (ran.end.manner, ran.stdout[-1]) == (Manner.EXITED, b"done")


def test_a_process_that_closes_its_outputs_is_waited_for(tmp_path):
    ran = run_sh("exec >&- 2>&-; sleep 0.4; exit 5", tmp_path)

    assert (ran.end.manner, ran.end.exit_code) == (Manner.EXITED, 5)


def test_a_process_that_closes_its_outputs_and_stays_is_ended(tmp_path, short_grace):

    ran = run_sh("echo $$; exec >&- 2>&-; sleep 60", tmp_path)

    assert ran.seconds < 3
    assert not is_alive(int(ran.stdout[0]))


def test_a_quiet_grandchild_with_the_pipe_does_not_block(tmp_path):
    ran = run_sh("echo result; sleep 60 & echo $!; exit 0", tmp_path)

    assert (ran.end.manner, ran.end.exit_code) == (Manner.EXITED, 0)
    assert ran.seconds < 4
    assert is_gone_soon(int(ran.stdout[1]))


def test_a_writing_grandchild_with_the_pipe_does_not_block(tmp_path):
    chatter = "(while :; do echo chatter; sleep 0.2; done) &"

    ran = run_sh(f"{chatter} echo result; exit 0", tmp_path, timeout=10)

    assert ran.end.manner == Manner.EXITED
    assert ran.seconds < 8


def test_children_are_ended_together_with_the_process(tmp_path):
    ran = run_sh("sleep 60 & echo $!; wait", tmp_path, timeout=0.3)

    assert is_gone_soon(int(ran.stdout[0]))


def test_a_slow_listener_loses_no_output(tmp_path):
    def listen_slowly(ran: Ran) -> str:
        time.sleep(0.4)
        return ""

    ran = run_sh("seq 1 8000", tmp_path, stop=listen_slowly)

    assert ran.stdout[-1] == b"8000"
    assert len(ran.stdout) == 8000


@pytest.mark.parametrize(
    "make",
    [
        lambda directory: directory / "not-there",
        lambda directory: _written(directory / "plain", "#!/bin/sh\n", 0o644),
        lambda directory: _written(directory / "no-interpreter", "#!/no/such/program\n", 0o755),
        lambda directory: _written(directory / "no-program", "just text\n", 0o755),
    ],
)
def test_a_program_that_cannot_be_started_raises_an_os_error(tmp_path, make):
    path = make(tmp_path)

    with pytest.raises(OSError, match=r"."):
        run_argv([str(path)], tmp_path)


def test_a_missing_directory_raises_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        run_sh("true", tmp_path / "gone")


@pytest.mark.parametrize("interruption", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_exception_leaves_no_process_behind(tmp_path, interruption):
    def interrupt(ran):
        if ran.stdout:
            (tmp_path / "pid").write_bytes(ran.stdout[0])
            raise interruption
        return ""

    with pytest.raises(interruption):
        run_sh("echo $$; sleep 60", tmp_path, stop=interrupt)

    assert group_is_gone_soon(int((tmp_path / "pid").read_text()))


def test_no_file_descriptor_is_left_open(tmp_path):
    gc.collect()  # what earlier tests left to the collector must not vanish in between
    before = len(os.listdir("/proc/self/fd"))

    for _ in range(5):
        run_sh("echo one; echo two >&2", tmp_path)

    assert len(os.listdir("/proc/self/fd")) == before


def _written(path, content, mode):
    path.write_text(content)
    path.chmod(mode)
    return path


ECHO = """
import json, sys
for line in sys.stdin:
    print(len(json.loads(line)["message"]["content"][0]["text"]), flush=True)
"""


def test_messages_reach_the_process_while_it_runs_until_it_has_a_result(tmp_path):
    stdin = StreamInput("x" * 3_000_000)

    def speak(ran: Ran) -> None:
        if ran.stdout == [b"3000000"]:
            stdin.send("hello")

    ran = run_python(
        ECHO, tmp_path, prompt=stdin, stop=speak, result=lambda ran: b"5" in ran.stdout
    )

    assert ran.stdout[:2] == [b"3000000", b"5"]
    assert (ran.end.manner, ran.end.exit_code) == (Manner.EXITED, 0)
    assert stdin.send("too late") is False


def test_a_process_that_ends_without_reading_its_messages_is_no_error(tmp_path):
    ran = run_sh("exit 3", tmp_path, prompt=StreamInput("x" * 3_000_000))

    assert (ran.end.manner, ran.end.exit_code) == (Manner.EXITED, 3)
