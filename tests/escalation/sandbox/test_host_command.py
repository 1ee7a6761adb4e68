from __future__ import annotations

import os

from escalation.agent.process import recorded_tools
from escalation.command_policy.grants import Grants
from escalation.sandbox import command_sandbox
from escalation.sandbox.command_sandbox import DEFAULT_PATH
from escalation.sandbox.proof.programs import write_program
from tests.escalation.sandbox.running import as_written, living, running, wait_until


def test_the_host_grant_leads_to_the_host_itself(own_host):
    with running(own_host.paths(), as_written("host")) as runner:
        said = runner.call(
            "curl cat readme.txt; curl readlink /proc/self/ns/mnt; "
            "curl grep NoNew /proc/self/status"
        )

    assert said.stdout.splitlines() == [
        *("hello", os.readlink("/proc/self/ns/mnt"), "NoNewPrivs:\t0"),
    ]
    assert [end.location for end in runner.ends] == [*["host"] * 3, "sandbox"]


def test_a_program_that_the_agent_can_write_does_not_run_there(own_host, monkeypatch):
    directory = own_host.root / "tools"
    directory.mkdir()
    monkeypatch.setattr(command_sandbox, "DEFAULT_PATH", f"{directory}:{DEFAULT_PATH}")
    written = own_host.root / "system/df"
    for made in (written, directory / "free"):
        write_program(made, "#!/bin/sh\necho written by the agent\n")
    (directory / "df").symlink_to(written)
    writable = Grants(names=frozenset({"processes"}), writable=(str(directory),))
    with running(own_host.paths(grants=writable), as_written("processes")) as runner:
        said = runner.call("curl df / && curl free")

    assert "written by the agent" not in said.stdout
    assert said.returncode == 0


def test_its_environment_is_clean_and_its_home_the_operators(own_host, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    with running(
        own_host.paths(operator_home=own_host.root / "home"), as_written("host")
    ) as runner:
        said = runner.call("curl env")

    assert "sk-secret" not in said.stdout
    assert f"HOME={own_host.root}/home" in said.stdout.splitlines()
    assert "from the bashrc" not in said.stdout


def test_its_process_is_logged_before_it_ends(own_host):
    log = own_host.root / "state/tools"
    with running(own_host.paths(tool_log=log), as_written("host")) as runner:
        client = runner.start("curl bash -c 'echo $$; sleep 1008; true'")
        pid = int(client.stdout.readline())
        wait_until(lambda: recorded_tools(log))
        recorded = [tool.pid for tool in recorded_tools(log)]
        client.kill()
        client.communicate()

    assert recorded == [pid]


def test_its_background_processes_are_ended(own_host):
    command = "curl bash -c '(setsid nohup sleep 1009 >/dev/null 2>&1 &); sleep 1010 & echo done'"
    with running(own_host.paths(), as_written("host")) as runner:
        said = runner.call(command)

        assert said.stdout == "done\n"
        assert not living("sleep 1009")
        assert not living("sleep 1010")


def test_it_dies_when_its_client_is_killed(own_host):
    with running(own_host.paths(), as_written("host")) as runner:
        client = runner.start("curl bash -c 'echo begun; sleep 1011'")
        client.stdout.readline()
        client.kill()
        client.communicate()
        wait_until(lambda: not living("sleep 1011"))


def test_a_signal_reaches_it(own_host):
    with running(own_host.paths(), as_written("host")) as runner:
        client = runner.start(
            "exec curl bash -c 'trap \"exit 9\" TERM; echo begun; while :; do sleep 0.1; done'"
        )
        client.stdout.readline()
        client.terminate()
        client.communicate(timeout=30)

    assert client.returncode == 9


def test_nothing_runs_on_the_host_outside_the_directories_of_the_run(own_host):
    (own_host.root / "system/way").symlink_to(own_host.root / "other")
    with running(own_host.paths(), as_written("host")) as runner:
        said = runner.call("cd /; curl pwd; cd -; cd way; curl pwd")

    assert [record.rule for record in runner.decisions[1:]] == ["not there", "not there"]
    assert said.stdout == f"{own_host.root}/system\n"


def test_files_are_changed_as_root_where_the_run_may_write_and_through_no_link(own_host):
    for name in ("state", "other"):
        (own_host.root / "system" / name).symlink_to(own_host.root / name)
    (own_host.root / "system/old").touch()
    decide = as_written("files")
    with running(own_host.paths(writable=True), decide) as runner:
        said = runner.call(
            "curl rm -f old state/secret.txt other/notes.txt; curl touch new state/new other/new; "
            "curl cp state/secret.txt copy; curl cat state/secret.txt; curl id -u"
        )

    assert said.stdout == "0\n"
    assert (own_host.root / "system/new").exists()
    assert not (own_host.root / "system/old").exists()
    assert not (own_host.root / "system/copy").exists()
    for name in ("state/secret.txt", "other/notes.txt"):
        assert (own_host.root / name).exists()
    for name in ("state/new", "other/new"):
        assert not (own_host.root / name).exists()
