"""The worker process is killed: nothing in a sandbox survives."""

from __future__ import annotations

import os
import subprocess
import sys

from escalation.sandbox.command_sandbox import cli_sandbox_argv
from tests.escalation.sandbox.run_paths import PATH
from tests.escalation.sandbox.running import living, running, wait_until

RUNNER = """
import os, sys
from pathlib import Path
import django
django.setup()
from escalation.command_policy.decision import Decision
from sessions_app.models.session import Verdict
from escalation.sandbox.layout import RunPaths
from escalation.sandbox.command_runner import CommandRunner

root = Path(sys.argv[1])
paths = RunPaths(
    workdir=root / "system", config_directory=root / "state/config",
    temp_directory=root / "state/tmp", run_directory=root / "state/run",
    operator_home=root / "home", tool_environment={"PATH": os.environ["PATH"]},
)
allowed = Decision(verdict=Verdict.ALLOW, rule="test")
with CommandRunner(paths, lambda command: allowed, lambda record: None).serving():
    print("serving", flush=True)
    sys.stdin.read()
"""


def test_no_command_survives_the_death_of_its_runner(own_host):
    with running(own_host.paths()) as ours:
        pass  # writes the client
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNNER, own_host.root],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={
            "PATH": PATH,
            "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path]),
            "DJANGO_SETTINGS_MODULE": "claudeops.settings",
        },
    )
    with runner:
        assert runner.stdout is not None
        assert runner.stdout.readline() == b"serving\n"
        clients = [ours.start("echo begun; setsid sleep 1013") for _ in range(3)]
        for client in clients:
            assert client.stdout.readline() == "begun\n"
        wait_until(lambda: len(living("sleep 1013")) == 3)
        runner.kill()

        said = [client.communicate(timeout=20)[1] for client in clients]

    wait_until(lambda: not living("sleep 1013"))
    assert [client.returncode for client in clients] == [126, 126, 126]
    assert all("runner has ended" in words for words in said)


def test_the_cli_sandbox_dies_with_the_worker(own_host):
    argv = cli_sandbox_argv(["/bin/bash", "-c", "echo begun; setsid sleep 1014"], own_host.paths())
    starter = subprocess.Popen(
        [sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])", *argv],
        stdout=subprocess.PIPE,
        env={"PATH": PATH},
    )
    with starter:
        assert starter.stdout is not None
        starter.stdout.readline()
        wait_until(lambda: living("sleep 1014"))
        starter.kill()

    wait_until(lambda: not living("sleep 1014"))
