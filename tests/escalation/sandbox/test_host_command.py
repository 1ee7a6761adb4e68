from __future__ import annotations

import os

from escalation.agent.process_tree import recorded_tools
from escalation.sandbox.layout import Operator
from tests.escalation.sandbox.running import allowed, living, running, wait_until


def test_the_host_grant_leads_to_the_host_itself(own_host):
    with running(own_host.paths(), allowed("host")) as runner:
        said = runner.call(
            "cat readme.txt; readlink /proc/self/ns/mnt; grep NoNew /proc/self/status"
        )

    assert said.stdout.splitlines() == [
        *("hello", os.readlink("/proc/self/ns/mnt"), "NoNewPrivs:\t0"),
    ]
    assert [end.location for end in runner.ends] == ["host"]


def test_its_environment_is_clean_and_its_home_the_operators(own_host, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    operator = Operator(home=own_host.root / "home")
    with running(own_host.paths(operator=operator), allowed("host")) as runner:
        said = runner.call("env; set")

    assert "sk-secret" not in said.stdout
    assert f"HOME={own_host.root}/home" in said.stdout.splitlines()
    assert "from the bashrc" not in said.stdout


def test_its_process_is_logged_before_it_ends(own_host):
    log = own_host.root / "state/tools"
    with running(own_host.paths(tool_log=log), allowed("host")) as runner:
        client = runner.start("echo $$; read -r _ < <(sleep 1008)")
        pid = int(client.stdout.readline())
        wait_until(lambda: recorded_tools(log))
        recorded = [tool.pid for tool in recorded_tools(log)]
        client.kill()
        client.communicate()

    assert recorded == [pid]


def test_its_background_processes_are_ended(own_host):
    command = "(setsid nohup sleep 1009 >/dev/null 2>&1 &); sleep 1010 & echo done"
    with running(own_host.paths(), allowed("host")) as runner:
        said = runner.call(command)

        assert said.stdout == "done\n"
        assert not living("sleep 1009")
        assert not living("sleep 1010")


def test_it_dies_when_its_client_is_killed(own_host):
    with running(own_host.paths(), allowed("host")) as runner:
        client = runner.start("echo begun; sleep 1011")
        client.stdout.readline()
        client.kill()
        client.communicate()
        wait_until(lambda: not living("sleep 1011"))


def test_a_signal_reaches_it(own_host):
    with running(own_host.paths(), allowed("host")) as runner:
        client = runner.start("trap 'exit 9' TERM; echo begun; sleep 1012 & wait")
        client.stdout.readline()
        client.terminate()
        client.communicate(timeout=30)

    assert client.returncode == 9
