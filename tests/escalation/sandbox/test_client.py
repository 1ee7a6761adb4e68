from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from escalation.sandbox import setup
from escalation.sandbox.setup import base_python, write_client
from tests.escalation.sandbox.running import running, shell_text


def call(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=30, check=False, env={}
    )


def test_fails_without_a_socket(tmp_path):
    said = call(write_client(tmp_path), shell_text("echo ran"))

    assert (said.stdout, said.returncode) == ("", 126)
    assert "runner has ended" in said.stderr


def test_fails_when_nothing_listens(tmp_path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "tools.sock"))

    assert call(write_client(tmp_path), "x").returncode == 126


def test_fails_when_the_runner_dies(tmp_path):
    program = write_client(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "tools.sock"))
        server.listen()
        with subprocess.Popen([program, "x"], stderr=subprocess.PIPE, env={}) as process:
            connection, _address = server.accept()
            connection.recv(100)
            connection.close()
            _said, complained = process.communicate(timeout=30)

    assert process.returncode == 126
    assert b"runner has ended" in complained


def test_it_takes_exactly_one_argument(tmp_path):
    program = write_client(tmp_path)

    assert [call(program, *words).returncode for words in ([], ["a", "b"])] == [126, 126]


def test_it_is_not_to_be_written_and_runs_no_code_of_the_environment(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('from outside')")
    (tmp_path / "_socket.py").write_text("print('from outside')")
    program = write_client(tmp_path)

    said = subprocess.run(
        [program, "x"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PYTHONSTARTUP": str(tmp_path / "_socket.py")},
        check=False,
    )

    assert said.stdout == ""
    assert program.stat().st_mode & 0o777 == 0o555


def test_it_starts_with_the_python_outside_of_the_virtual_environment(tmp_path):
    assert base_python().is_relative_to(sys.base_prefix)
    assert write_client(tmp_path).read_text().startswith(f"#!{base_python()} -IS\n")


def test_a_python_with_blanks_in_its_path_starts_it_too(tmp_path, monkeypatch):
    link = tmp_path / "it's a python"
    link.symlink_to(base_python())
    monkeypatch.setattr(setup, "base_python", lambda: link)

    said = call(write_client(tmp_path), "x")

    assert "runner has ended" in said.stderr


def test_a_socket_with_a_long_path_is_found(own_host):
    directory = own_host.root / "state" / ("long" * 40)
    (directory / "shared-tmp").mkdir(parents=True)
    with running(own_host.paths(run_directory=directory)) as runner:
        said = runner.call("echo fine")

    assert said.stdout == "fine\n"


def test_fails_when_the_working_directory_is_missing(own_host):
    gone = own_host.root / "system/gone"
    gone.mkdir()
    program = write_client(own_host.paths().run_directory)

    said = subprocess.run(
        ["/bin/sh", "-c", 'cd "$1" && rmdir "$1" && exec "$2" x', "sh", gone, program],
        capture_output=True,
        text=True,
        check=False,
    )

    assert said.returncode == 126
    assert "working directory" in said.stderr


def test_a_command_of_many_lines_and_letters_arrives_as_it_is(own_host):
    text = "".join(f"echo 'line {number} é 日本 \"'\n" for number in range(2000))
    with running(own_host.paths()) as runner:
        said = runner.call(text)

    assert said.stdout.count("\n") == 2000
    assert runner.decisions[0].command == text
    assert os.path.getsize(runner.paths.client) < 10_000
