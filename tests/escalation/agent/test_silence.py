"""The idle watchdog: a silent run is stopped, later while a tool runs."""

from __future__ import annotations

import os
import time

import pytest

from escalation.agent import process
from sessions_app.models import Cycle, Session
from tests.escalation.fake_cli import FakeCli
from tests.escalation.processes import is_gone_soon
from tests.escalation.rows import notes_of
from tests.escalation.runs import run

PID = "open(HERE + '/pid', 'w').write(str(os.getpid()));"
STARTS_A_TOOL = """
emit(type="assistant", parent_tool_use_id=None, message={"id": "msg_t", "model": model,
    "usage": {}, "content": [{"type": "tool_use", "id": "tool_9", "name": "Bash",
        "input": {"command": "sleep"}}]})
"""
ENDS_THE_TOOL = """
emit(type="user", message={"role": "user", "content": [{"type": "tool_result",
    "tool_use_id": "tool_9", "content": "done", "is_error": False}]})
"""


@pytest.fixture(autouse=True)
def tiny_budgets(settings, monkeypatch) -> None:
    settings.CLAUDEOPS_IDLE_TIMEOUT = 0.6
    settings.CLAUDEOPS_TOOL_IDLE_TIMEOUT = 2.0
    monkeypatch.setattr(process, "GRACE_SECONDS", 1.0)


def cli_pid(fake_cli: FakeCli) -> int:
    return int((fake_cli.directory / "pid").read_text())


def test_a_run_without_output_is_stopped(fake_cli, session):
    fake_cli.then(f"{PID} init(); time.sleep(60)")
    began = time.monotonic()

    ended = run(session)

    assert ended.status == Session.Status.TIMED_OUT
    assert time.monotonic() - began < 8
    assert is_gone_soon(cli_pid(fake_cli))


def test_a_run_that_never_had_output_is_stopped(fake_cli, session):
    fake_cli.then("time.sleep(60)")

    assert run(session).status == Session.Status.TIMED_OUT


def test_the_error_names_the_settings(fake_cli, session):
    fake_cli.then("init(); time.sleep(60)")

    ended = run(session)

    assert "CLAUDEOPS_IDLE_TIMEOUT" in ended.error
    assert "CLAUDEOPS_TOOL_IDLE_TIMEOUT" in ended.error


def test_the_cycle_of_a_silent_run_ends(fake_cli, session):
    fake_cli.then("init(); say(); time.sleep(60)")

    cycle = run(session).cycle

    assert (cycle.state, cycle.outcome) == (Cycle.State.FINISHED, Cycle.Outcome.NEEDS_PERSON)


def test_a_run_that_keeps_talking_is_not_silent(fake_cli, session):
    fake_cli.then("init(); [(say(), time.sleep(0.3)) for _ in range(6)]; result(HEALTHY)")

    assert run(session).status == Session.Status.COMPLETED


def test_output_on_stderr_counts(fake_cli, session):
    chatter = "[(print('.', file=sys.stderr, flush=True), time.sleep(0.3)) for _ in range(6)]"
    fake_cli.then(f"init(); {chatter}; result(HEALTHY)")

    assert run(session).status == Session.Status.COMPLETED


def test_a_running_tool_has_its_own_timeout(fake_cli, session):
    fake_cli.then(f"init(){STARTS_A_TOOL}time.sleep(1.3){ENDS_THE_TOOL}result(HEALTHY)")

    assert run(session).status == Session.Status.COMPLETED


def test_a_tool_that_takes_too_long_is_stopped_too(fake_cli, session):
    fake_cli.then(f"init(){STARTS_A_TOOL}time.sleep(60)")
    began = time.monotonic()

    ended = run(session)

    assert ended.status == Session.Status.TIMED_OUT
    assert 2.0 < time.monotonic() - began < 10


def test_after_the_tool_the_shorter_timeout_counts(fake_cli, session):
    fake_cli.then(f"init(){STARTS_A_TOOL}time.sleep(1){ENDS_THE_TOOL}time.sleep(60)")
    began = time.monotonic()

    assert run(session).status == Session.Status.TIMED_OUT
    assert time.monotonic() - began < 6


def test_a_result_counts_even_if_the_process_lingers(fake_cli, session, monkeypatch):
    monkeypatch.setattr(process, "LINGER_SECONDS", 0.5)
    fake_cli.then(f"{PID} init(); say(); result(HEALTHY); time.sleep(60)")

    ended = run(session)

    assert (ended.status, ended.cycle.outcome) == ("completed", Cycle.Outcome.HEALTHY)
    assert is_gone_soon(cli_pid(fake_cli))


def test_after_a_result_silence_is_no_failure(fake_cli, session):
    fake_cli.then("init(); say(); result(HEALTHY); time.sleep(1.2)")

    assert run(session).status == Session.Status.COMPLETED


@pytest.mark.parametrize("said", ["init()", "init(); say()", "pass", "out('garbage')"])
def test_a_stream_without_a_result_is_a_failure_at_exit_0(fake_cli, session, said):
    fake_cli.then(said)

    ended = run(session)

    assert (ended.exit_code, ended.status) == (0, Session.Status.FAILED)
    assert "without a result" in ended.error


def test_an_incomplete_result_line_is_no_result(fake_cli, session):
    fake_cli.then('init(); say(); sys.stdout.write(\'{"type": "result", "subty\')')

    assert run(session).status == Session.Status.FAILED


def test_a_silent_run_that_ignores_sigterm_is_killed(fake_cli, session):
    fake_cli.then(f"signal.signal(15, signal.SIG_IGN); {PID} init(); time.sleep(60)")

    assert run(session).status == Session.Status.TIMED_OUT
    assert is_gone_soon(cli_pid(fake_cli))


def test_tools_in_their_own_process_sessions_are_stopped_with_a_silent_run(fake_cli, session):
    fake_cli.then(
        "import subprocess; init();"
        "tool = subprocess.Popen(['sleep', '60'], start_new_session=True);"
        "open(HERE + '/pid', 'w').write(str(tool.pid)); time.sleep(60)"
    )

    run(session)

    assert is_gone_soon(cli_pid(fake_cli))


def test_processes_left_by_a_run_are_reported(fake_cli, session):
    fake_cli.then(
        "import subprocess; init(); say();"
        "daemon = subprocess.Popen(['sleep', '60'], start_new_session=True, stdin=-3, stdout=-3,"
        " stderr=-3);"
        "open(HERE + '/pid', 'w').write(str(daemon.pid)); result(HEALTHY)"
    )

    ended = run(session)

    os.kill(cli_pid(fake_cli), 9)
    assert "Tools left 1 processes running." in notes_of(ended, "warning")
