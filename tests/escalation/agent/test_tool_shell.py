"""The program that every tool starts through: it writes itself down and changes nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from escalation.agent.environment import TOOL_SHELL
from escalation.agent.process_tree import ProcessId, recorded_tools, started_at

CREDENTIALS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")


def run(command: str, log: Path | None = None, stdin: str = "", **environment: str):
    return subprocess.run(
        [str(TOOL_SHELL), command],
        env={"PATH": os.environ["PATH"], "CLAUDEOPS_TOOL_LOG": str(log or ""), **environment},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


@pytest.fixture
def log(tmp_path) -> Path:
    return tmp_path / "tools"


def test_it_can_be_started_as_a_program():
    assert os.access(TOOL_SHELL, os.X_OK)


def test_it_writes_down_its_pid_and_its_start_time(log):
    process = subprocess.Popen(
        [str(TOOL_SHELL), "echo ready; read line"],
        env={"PATH": os.environ["PATH"], "CLAUDEOPS_TOOL_LOG": str(log)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    started = started_at(process.pid)
    process.communicate(b"\n", timeout=20)

    assert started is not None
    assert recorded_tools(log) == [ProcessId(process.pid, started)]


def test_each_command_adds_a_line(log):
    for _ in range(3):
        run("true", log)

    assert len(recorded_tools(log)) == 3


def test_the_command_runs_as_the_process_that_was_written_down(log):
    said = run("echo $$", log).stdout

    assert int(said) == recorded_tools(log)[0].pid


@pytest.mark.parametrize("name", ["a b", "x) S 1 1", "(("])
def test_a_name_with_spaces_and_parentheses_is_read_past(tmp_path, log, name):
    program = tmp_path / name
    program.write_text(TOOL_SHELL.read_text())
    program.chmod(0o755)
    process = subprocess.Popen(
        [str(program), "echo ready; read line"],
        env={"CLAUDEOPS_TOOL_LOG": str(log)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    started = started_at(process.pid)
    process.communicate(b"\n", timeout=20)

    assert started is not None
    assert recorded_tools(log) == [ProcessId(process.pid, started)]


@pytest.mark.parametrize("name", CREDENTIALS)
def test_a_tool_does_not_see_the_credentials(log, name):
    ran = run("env", log, **{name: "secret-of-the-operator"})

    assert "secret-of-the-operator" not in ran.stdout


def test_everything_else_in_the_environment_is_passed_on(log):
    assert run('echo "$MY_OWN"', log, MY_OWN="a  b\nc").stdout == "a  b\nc\n"


@pytest.mark.parametrize("code", [0, 1, 42, 127])
def test_the_exit_code_is_the_commands_own(log, code):
    assert run(f"exit {code}", log).returncode == code


def test_a_signal_that_ends_the_command_is_seen_as_such(log):
    assert run("kill -9 $$", log).returncode == -9


def test_stdin_reaches_the_command_whole(log):
    text = "first line\n" + "x" * 100_000

    assert run("cat", log, stdin=text).stdout == text


def test_both_outputs_are_the_commands_own(log):
    ran = run("echo one; echo two >&2", log)

    assert (ran.stdout, ran.stderr) == ("one\n", "two\n")


@pytest.mark.parametrize(
    "text",
    [
        "it's",
        'say "hello"',
        "two\nlines",
        "back\\slash \\n",
        "$HOME `id` $(id) *",
        "  spaces  ",
        "ünïcödé 🔥",
        "-n",
        "a;b&c|d>e<f",
    ],
)
@pytest.mark.parametrize("with_log", [True, False])
def test_the_command_comes_through_unchanged(log, text, with_log):
    command = f"{sys.executable} -IS -c 'import sys; print(sys.stdin.read(), end=\"\")' <<'END'\n"

    ran = run(f"{command}{text}\nEND", log if with_log else None)

    assert ran.stdout == f"{text}\n"


def test_a_very_long_command_comes_through(log):
    ran = run(f"printf %s '{'x' * 100_000}'", log)

    assert len(ran.stdout) == 100_000


def test_bash_is_what_understands_the_command(log):
    assert run('[[ a == a ]] && a=(1 2) && echo "${#a[@]}"', log).stdout == "2\n"


def test_it_works_without_a_log():
    ran = subprocess.run(
        [str(TOOL_SHELL), "echo done"],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ran.stdout, ran.stderr, ran.returncode) == ("done\n", "", 0)


def test_a_log_that_cannot_be_written_does_not_stop_the_command(tmp_path):
    ran = run("echo done", tmp_path / "no" / "such" / "directory" / "tools")

    assert (ran.stdout, ran.returncode) == ("done\n", 0)


def test_a_log_that_is_a_directory_does_not_stop_the_command(tmp_path):
    ran = run("echo done", tmp_path)

    assert (ran.stdout, ran.returncode) == ("done\n", 0)


def test_a_log_with_spaces_in_its_name_is_written(tmp_path):
    log = tmp_path / "a b" / "to'ols"
    log.parent.mkdir()

    run("true", log)

    assert len(recorded_tools(log)) == 1


def test_many_at_once_each_write_a_whole_line(log):
    processes = [
        subprocess.Popen([str(TOOL_SHELL), "true"], env={"CLAUDEOPS_TOOL_LOG": str(log)})
        for _ in range(30)
    ]
    for process in processes:
        process.wait()

    assert {tool.pid for tool in recorded_tools(log)} == {process.pid for process in processes}
