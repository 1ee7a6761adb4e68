from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from escalation.command_policy.decision import Decision
from escalation.command_policy.grants import Grants
from escalation.sandbox import command_sandbox
from escalation.sandbox.bubblewrap import Namespace
from escalation.sandbox.command_runner import OWN_WORDS, hidden_from
from escalation.sandbox.command_sandbox import CommandSandboxes
from escalation.sandbox.http_proxy import HttpProxy, HttpRules
from escalation.sandbox.limits import SandboxLimits
from escalation.sandbox.setup import write_client
from sessions_app.models.session import Verdict
from tests.escalation.sandbox.running import (
    DENIED,
    allowed,
    living,
    running,
    shell_text,
    wait_until,
)
from tests.tables import each_row

SHIM = "curl"
"""A program that is a shim wherever it is installed."""


def test_a_text_runs_and_its_outputs_and_exit_code_come_back(own_host):
    with running(own_host.paths()) as runner:
        said = runner.call("cat readme.txt; echo sorry >&2; exit 7")

    assert (said.stdout, said.stderr, said.returncode) == ("hello\n", "sorry\n", 7)
    assert [record.verdict for record in runner.decisions] == [Verdict.ISOLATE]


def test_a_denied_program_does_not_run_and_the_model_is_told_why(own_host):
    with running(own_host.paths(), DENIED) as runner:
        said = runner.call(f"{SHIM} --version; echo $?")

    assert (said.stdout, said.stderr) == ("126\n", "Ask for escalation.\n")
    assert [record.verdict for record in runner.decisions] == [Verdict.ISOLATE, Verdict.DENY]
    assert [end.has_run for end in runner.ends] == [False, True]


def test_a_program_that_is_denied_without_a_reason_does_not_run(own_host):
    denied = Decision(verdict=Verdict.DENY, rule="test", argv=("echo", "ran"))

    with running(own_host.paths(), denied) as runner:
        said = runner.call(f"{SHIM} --version; echo $?")

    assert said.stdout == "126\n"


WAYS = {
    "by name": "curl --version",
    "by absolute path": "/usr/bin/curl --version",
    "in a pipe": "true | curl --version | cat",
    "in a loop": "for word in --version; do curl $word; done",
    "by xargs": "echo --version | xargs curl",
    "by a script": "printf '#!/bin/sh\\ncurl --version\\n' > /tmp/s; chmod +x /tmp/s; /tmp/s",
    "by awk": "awk 'BEGIN { system(\"curl --version\") }'",
    "by Python": 'python3 -c \'import subprocess as s; s.run(["curl", "--version"])\'',
    "by a glob": "cd /usr/bin; ./cur? --version",
    "by a variable": "c=cu; v=--version; ${c}rl $v",
    "by env": "env -i /usr/bin/curl --version",
    "by a link": "ln -sf /usr/bin/curl /tmp/curl && /tmp/curl --version",
    "by timeout": "timeout 20 curl --version",
    "by eval": 'eval "$(echo curl --version)"',
}


@pytest.mark.parametrize("text", WAYS.values(), ids=WAYS)
def test_the_vector_that_is_executed_is_judged(own_host, text):
    with running(own_host.paths(), DENIED) as runner:
        said = runner.call(text)

    [_text, judged] = runner.decisions
    assert (judged.command, judged.verdict) == ("curl --version", Verdict.DENY)
    assert judged.parent == runner.decisions[0].call
    assert "libcurl" not in said.stdout


def test_a_program_has_descriptors_directory_and_temporary_files_of_the_text(own_host):
    def decide(request):
        return allowed("network", *request.argv[1:])

    with running(own_host.paths(writable=True), decide) as runner:
        said = runner.call(
            "echo in | curl cat > /tmp/out; cat /tmp/out; mkdir d; cd d; curl pwd; "
            "echo shared > /tmp/f; curl cat /tmp/f; curl sh -c 'echo sorry >&2; exit 5'; echo $?"
        )

    assert said.stdout.splitlines() == [
        *("in", f"{own_host.root}/system/d", "shared", "5"),
    ]
    assert said.stderr == "sorry\n"


def test_a_program_that_is_not_installed_is_not_found(own_host):
    with running(own_host.paths(), allowed("network", "no-such-program")) as runner:
        said = runner.call("curl --version")

    assert said.returncode == 127
    assert [end.has_run for end in runner.ends] == [False, True]


def test_no_process_of_a_text_has_a_network(own_host):
    with running(own_host.paths()) as runner:
        said = runner.call("cut -d: -f1 /proc/net/dev | tail -n +3; exec 3<>/dev/tcp/127.0.0.1/22")

    assert said.stdout.split() == ["lo"]
    assert said.returncode != 0


def test_processes_that_a_text_leaves_are_ended_and_named(own_host):
    with running(own_host.paths()) as runner:
        said = runner.call("sleep 1021 & sleep 1022 & echo started")

    assert (said.stdout, said.returncode) == ("started\n", 0)
    assert "2 processes" in said.stderr
    assert not living("sleep 1021")


@pytest.mark.parametrize(
    "text",
    [
        "join <(printf 'a\\nb\\n') <(printf 'a\\nb\\n') | head -1",
        "cat <(seq 100000) | head -1 > /dev/null; echo a",
        "true & true & echo a",
        "coproc cat; echo a >&${COPROC[1]}; read -r x <&${COPROC[0]}; exec {COPROC[1]}>&-; echo a",
    ],
)
def test_processes_that_end_with_the_text_are_not_named(own_host, text):
    with running(own_host.paths()) as runner:
        said = runner.call(text)

    assert (said.stdout, said.stderr) == ("a\n", "")


def test_kill_ends_a_process_of_the_text_itself(own_host):
    with running(own_host.paths()) as runner:
        said = runner.call("sleep 1023 & kill $!; wait $!; echo $?")

    assert said.stdout == "143\n"
    assert len(runner.decisions) == 1


def test_kill_asks_for_a_process_that_is_not_of_the_text(own_host):
    with running(own_host.paths(), DENIED) as runner:
        said = runner.call("set -eu; kill -HUP 999999 || echo $?")

    assert [record.command for record in runner.decisions[1:]] == ["kill -HUP 999999"]
    assert (said.stdout, said.stderr) == ("126\n", "Ask for escalation.\n")


@pytest.mark.parametrize("words", ["$!", "-0 $!", "-s 9 $!", "-- -$!", "$! 999999", "%7"])
def test_kill_does_not_ask_for_the_number_of_an_own_process_that_has_ended(own_host, words):
    with running(own_host.paths(), DENIED) as runner:
        said = runner.call(f"sleep 0 & wait; kill {words} 2>/dev/null; echo $?")

    assert said.stdout == "1\n"
    assert len(runner.decisions) == 1


@contextmanager
def saying(name: str, listener: socket.socket, _report: object) -> Iterator[None]:
    """A broker that says its name to each client."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _address = listener.accept()
                client.sendall(name.encode())
                client.close()

    threading.Thread(target=serve, daemon=True).start()
    yield
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)


def test_each_broker_listens_at_its_port_in_the_sandbox_of_a_text(own_host):
    kubeconfig = own_host.root / "state/run/kubeconfig"
    kubeconfig.touch()
    granted = Grants(names=frozenset({"network", "kube"}))
    brokers = {name: partial(saying, name) for name in ("http", "kube")}
    paths = own_host.paths(grants=granted, kubeconfig=kubeconfig)
    with running(paths, brokers=brokers) as runner:
        said = runner.call(
            "cat < /dev/tcp/127.0.0.1/3128; echo; cat < /dev/tcp/127.0.0.1/6443; "
            "echo; echo $http_proxy $no_proxy"
        )

        again = runner.call("cat < /dev/tcp/127.0.0.1/3128; cat < /dev/tcp/127.0.0.1/6443")

    assert said.stdout == "http\nkube\nhttp://127.0.0.1:3128 127.0.0.1:6443\n"
    assert again.stdout == "httpkube"


def replaced(path: Path, text: str) -> None:
    """Replace a file as editors and package managers do, by another one with its name."""
    new = path.with_name("new")
    new.write_text(text)
    new.rename(path)


def test_a_file_that_is_replaced_between_two_calls_is_seen_as_it_is_now(own_host):
    path = own_host.root / "other/notes.txt"
    with running(own_host.paths(grants=Grants(readable=(str(path),)))) as runner:
        before = runner.call(f"cat '{path}'")
        replaced(path, "new\n")
        after = runner.call(f"cat '{path}'")

    assert (before.stdout, after.stdout) == ("of another watch\n", "new\n")


def test_a_hidden_file_that_is_replaced_between_two_calls_stays_hidden(own_host):
    path = own_host.root / "system/secret.txt"
    path.write_text("first\n")
    with running(own_host.paths(hidden=(path,))) as runner:
        before = runner.call("cat secret.txt")
        replaced(path, "second\n")
        after = runner.call("cat secret.txt")

    assert (before.stdout, after.stdout) == ("", "")


def test_a_working_directory_that_is_replaced_between_two_calls_is_seen_as_it_is_now(own_host):
    workdir = own_host.root / "system"
    with running(own_host.paths(writable=True)) as runner:
        runner.call("true")
        workdir.rename(own_host.root / "old")
        workdir.mkdir()
        runner.call("touch made")

    assert (workdir / "made").exists()


def test_mounts_are_made_again_after_a_mount_on_the_host(own_host, tmp_path, monkeypatch):
    """A new mount of the host appears in a sandbox as it is, perhaps writable."""
    mounted = tmp_path / "mountinfo"
    mounted.write_text("one\n")
    monkeypatch.setattr(command_sandbox, "MOUNTED", mounted)
    write_client(own_host.paths().run_directory)
    own_host.paths().calls.mkdir()
    sandboxes = CommandSandboxes(own_host.paths(), SandboxLimits())

    def mounts() -> Namespace:
        return sandboxes.for_text(Path("any.sock"), "/").entered[0]

    first, second = mounts(), mounts()
    mounted.write_text("one\ntwo\n")

    assert first is second
    assert mounts() is not first


def test_a_text_sees_no_socket_of_another_call(own_host):
    with running(own_host.paths()) as runner, runner.start("sleep 1027") as other:
        wait_until(lambda: living("sleep 1027"))
        said = runner.call("ls -A /run/claudeops/calls; touch /run/claudeops/calls/x; ls /dev/shm")
        other.terminate()

    assert said.stdout == ""
    assert "Read-only" in said.stderr


def test_temporary_directories_besides_tmp_are_those_of_one_call(own_host):
    with running(own_host.paths()) as runner:
        runner.call("touch /var/tmp/x /dev/shm/x /tmp/x")
        said = runner.call("ls -d /var/tmp/x /dev/shm/x /tmp/x 2>/dev/null")

    assert said.stdout == "/tmp/x\n"


def test_a_text_finds_the_open_ports_of_the_host_and_can_send_them_nothing(own_host):
    paths = own_host.paths(grants=Grants(names=frozenset({"network"})))
    brokers = {"port": HttpProxy(HttpRules()).serving_port}
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_server(("127.0.0.1", 0)) as other:
            closed = other.getsockname()[1]
        port = server.getsockname()[1]
        with running(paths, brokers=brokers) as runner:
            said = runner.call(
                f"for p in {port} {closed}; do (echo FLUSHALL > /dev/tcp/127.0.0.1/$p) 2>/dev/null"
                " && echo open || echo closed; done"
            )
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()

    assert said.stdout == "open\nclosed\n"


def test_a_text_that_fills_the_temporary_directory_is_ended(own_host):
    limits = SandboxLimits(temporary_bytes=5_000_000)
    with running(own_host.paths(), limits=limits) as runner:
        said = runner.call("dd if=/dev/zero of=/tmp/x bs=1M count=40 2>/dev/null; sleep 30")

    assert said.returncode == 137
    assert "/tmp" in said.stderr


def test_each_decision_is_recorded_before_the_command_and_its_end_after_it(own_host):
    order = []

    def note(record):
        order.append((record.command, (own_host.root / "system/made").exists()))

    with running(own_host.paths(writable=True), on_decision=note) as runner:
        runner.call("touch made && exit 3")

    assert order == [("touch made && exit 3", False)]
    assert (own_host.root / "system/made").exists()
    assert [(end.exit_code, end.location) for end in runner.ends] == [(3, "sandbox")]
    assert runner.ends[0].run_ms > 0


def test_a_record_holds_what_was_decided(own_host):
    began = datetime.now(UTC)
    with running(own_host.paths(), allowed("network", "true")) as runner:
        runner.call("curl http://example.org")

    record = runner.decisions[1]
    assert (record.command, record.verdict) == ("curl http://example.org", Verdict.ALLOW)
    assert (record.grant, record.cwd) == ("network", str(own_host.root / "system"))
    assert began <= record.at <= datetime.now(UTC)
    assert record.decision_ms >= 0


def broken(*_arguments):
    raise RuntimeError("broken")


def test_nothing_runs_when_the_command_policy_fails(own_host, caplog):
    with running(own_host.paths(writable=True), broken) as runner:
        said = runner.call("curl --version > made; cat made")

    assert (said.stdout, runner.decisions[1].rule) == ("", "policy failed")
    assert "broken" in caplog.text


def test_nothing_runs_when_the_decision_cannot_be_recorded(own_host):
    with running(own_host.paths(writable=True), on_decision=broken) as runner:
        said = runner.call("touch made")

    assert said.returncode == 126
    assert "could not be recorded" in said.stderr
    assert not (own_host.root / "system/made").exists()


UNREADABLE = {
    "invalid UTF-8": b"eval 'echo \xff' < /dev/null",
    "without a command": b"/usr/bin/some-hook --now",
    "computed": b"eval $(echo ls)",
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_unreadable_text_is_denied_and_recorded(own_host, text):
    with running(own_host.paths()) as runner:
        said = runner.call(text)

    assert said.returncode == 126
    assert "did not run" in said.stderr
    assert [record.verdict for record in runner.decisions] == [Verdict.DENY]


def send(runner, text: bytes, *descriptors: int) -> bytes:
    """A request past the client: no argument of a process holds 10 MB or a NUL."""
    with socket.socket(socket.AF_UNIX) as connection:
        directory = os.open(runner.paths.run_directory, os.O_RDONLY)
        connection.connect(f"/proc/self/fd/{directory}/tools.sock")
        os.close(directory)
        head = b"shell %d 1 0\n" % len(text)
        socket.send_fds(connection, [head], list(descriptors))
        connection.sendall(text + b"/")
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return answer


def test_a_command_of_10_megabytes_is_denied_clearly(own_host):
    with running(own_host.paths()) as runner:
        said = send(runner, shell_text("echo " + "x" * 10_000_000).encode(), 1, 2)

    assert said.startswith(b"126 ")
    assert b"longer than" in said
    assert len(runner.decisions[0].command) <= 1000


def test_a_command_with_a_nul_is_denied_clearly(own_host):
    with running(own_host.paths()) as runner:
        said = send(runner, shell_text("echo a\0b").encode(), 1, 2)

    assert b"NUL" in said
    assert [record.verdict for record in runner.decisions] == [Verdict.DENY]


def test_a_directory_in_place_of_an_output_is_refused(own_host):
    directory = os.open("/", os.O_RDONLY)
    with running(own_host.paths()) as runner:
        said = send(runner, shell_text("ls /proc/self/fd/1/").encode(), directory, 2)
    os.close(directory)

    assert b"descriptors" in said
    assert runner.decisions == []


@pytest.mark.parametrize("descriptors", [(), (1,), (1, 1, 1)])
def test_a_request_without_its_two_outputs_is_refused(own_host, descriptors):
    with running(own_host.paths()) as runner:
        said = send(runner, shell_text("true").encode(), *descriptors)

    assert said.startswith(b"126 ")
    assert runner.decisions == []


def test_noise_on_the_socket_is_refused_and_the_next_command_runs(own_host):
    with running(own_host.paths()) as runner:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(os.path.relpath(runner.paths.socket))
            socket.send_fds(connection, [os.urandom(20) + b"x" * 100], [1, 2])
            said = connection.recv(1000)
        after = runner.call("echo fine")

    assert said.startswith(b"126 ")
    assert after.stdout == "fine\n"


def test_two_hundred_commands_at_once_all_run(own_host):
    with running(own_host.paths()) as runner:
        clients = [runner.start(f"echo {number}") for number in range(200)]
        said = [client.communicate(timeout=120)[0] for client in clients]

    assert said == [f"{number}\n" for number in range(200)]
    assert len(runner.decisions) == len(runner.ends) == 200


def test_a_command_dies_when_its_client_is_killed(own_host):
    with running(own_host.paths()) as runner:
        client = runner.start("echo begun; exec sleep 1001")
        assert client.stdout.readline() == "begun\n"
        wait_until(lambda: living("sleep 1001"))
        client.kill()

        wait_until(lambda: not living("sleep 1001"))
        wait_until(lambda: runner.ends)
        client.communicate()

    assert runner.ends[0].exit_code == 137


@pytest.fixture(params=[signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def number(request) -> Iterator[signal.Signals]:
    """One that a shell can trap: behind `nohup` a suite ignores some, and so do its children."""
    before = signal.signal(request.param, signal.SIG_DFL)
    yield request.param
    signal.signal(request.param, before)


def test_a_signal_reaches_the_command_which_may_clean_up(own_host, number):
    ends = f"trap 'echo cleaned; exit 9' {number.name[3:]}"
    command = f"{ends}; echo begun; while :; do sleep 0.1002; done"
    with running(own_host.paths()) as runner:
        client = runner.start(command)
        client.stdout.readline()
        client.send_signal(number)
        said, _ = client.communicate(timeout=30)

    assert (said, client.returncode) == ("cleaned\n", 9)
    assert not living("sleep 0.1002")


def test_a_command_that_ignores_the_signal_is_killed_soon(own_host):
    with running(own_host.paths()) as runner:
        client = runner.start("trap '' TERM; echo begun; while :; do sleep 0.1; done")
        client.stdout.readline()
        client.terminate()
        client.communicate(timeout=30)

    assert client.returncode == 137


def test_the_end_of_the_run_ends_all_its_commands(own_host):
    with running(own_host.paths()) as runner:
        clients = [runner.start("echo begun; exec sleep 1003") for _ in range(3)]
        for client in clients:
            client.stdout.readline()

    for client in clients:
        client.communicate(timeout=10)
    assert not living("sleep 1003")
    assert [client.returncode for client in clients] == [137, 137, 137]


def test_after_the_end_of_the_run_nothing_runs(own_host):
    with running(own_host.paths(writable=True)) as runner:
        pass

    said = runner.call("touch made")

    assert said.returncode == 126
    assert "runner has ended" in said.stderr
    assert not (own_host.root / "system/made").exists()


def test_background_processes_die_with_their_command(own_host):
    command = "(setsid nohup sleep 1004 >/dev/null 2>&1 &) ; echo done"
    with running(own_host.paths()) as runner:
        said = runner.call(command)
        wait_until(lambda: not living("sleep 1004"))

    assert said.stdout == "done\n"


def test_output_without_end_into_a_file_is_ended(own_host):
    output = own_host.root / "state/tmp/x.output"
    limits = SandboxLimits(output_bytes=5_000_000)
    with output.open("wb") as file, running(own_host.paths(), limits=limits) as runner:
        said = runner.call("yes", stdout=file)

    assert "printed too much" in said.stderr
    assert said.returncode != 0


def test_output_without_end_into_a_pipe_waits_for_its_reader(own_host):
    with running(own_host.paths()) as runner:
        client = runner.start("yes")
        assert client.stdout.read(10) == "y\n" * 5
        client.stdout.close()
        client.wait(30)
        client.stderr.close()

    assert client.returncode != 0


def test_the_last_directory_of_a_command_is_written(own_host):
    (own_host.root / "system/deep er").mkdir()
    file = own_host.root / "state/tmp/claude-12ab-cwd"
    with running(own_host.paths()) as runner:
        runner.call(shell_text("cd 'deep er'", str(file)).encode())

    assert file.read_text() == f"{own_host.root}/system/deep er\n"


def test_a_command_has_no_descriptor_but_its_outputs_and_its_own_text(own_host):
    with running(own_host.paths()) as runner:
        said = runner.call("ls -l /proc/self/fd | grep -c 'pipe:\\|socket:'; echo $# $@")

    assert said.stdout == "2\n0\n"


def test_a_command_that_fails_leaves_the_directory_as_it_was(own_host):
    file = own_host.root / "state/tmp/claude-12ab-cwd"
    with running(own_host.paths()) as runner:
        runner.call(shell_text("cd /usr; false", str(file)).encode())

    assert not file.exists()


def test_a_sandbox_that_cannot_start_is_not_a_failed_command(own_host):
    with running(own_host.paths()) as runner:
        said = runner.call("echo ran", cwd=own_host.root / "state/tmp")

    assert said.stdout == ""
    assert "did not run" in said.stderr
    assert said.returncode != 0


def test_bubblewrap_gone_in_the_middle_of_a_run_lets_nothing_run(own_host, monkeypatch):
    with running(own_host.paths(writable=True)) as runner:
        monkeypatch.setattr("escalation.sandbox.bubblewrap.BWRAP", "/nowhere/bwrap")
        said = runner.call("touch made")

    assert said.returncode in {126, 127}
    assert "did not run" in said.stderr
    assert not (own_host.root / "system/made").exists()


def test_without_sandboxes_one_judged_vector_runs_on_the_host(own_host):
    with running(own_host.paths(sandboxed=False), allowed()) as runner:
        said = runner.call("cat readme.txt")

    assert said.stdout == "hello\n"
    assert [record.verdict for record in runner.decisions] == [Verdict.ALLOW]
    assert [end.location for end in runner.ends] == ["host"]


@pytest.mark.parametrize(
    "text", ["cat readme.txt; id", "cat r*", "cat $HOME", "cat x | cat", "a > b"]
)
def test_without_sandboxes_no_shell_text_runs(own_host, text):
    with running(own_host.paths(sandboxed=False), allowed()) as runner:
        said = runner.call(text)

    assert (said.stdout, said.returncode) == ("", 126)
    assert [record.rule for record in runner.decisions] == ["no sandbox"]


def test_threads_end_with_the_run(own_host):
    before = threading.active_count()
    with running(own_host.paths()) as runner:
        runner.call("true")

    assert threading.active_count() == before


def test_another_user_is_refused(own_host, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with running(own_host.paths()) as runner:
        said = runner.call("echo ran")

    assert said.stdout == ""
    assert "another user" in said.stderr


def test_a_client_that_waits_for_its_turn_may_leave(own_host, monkeypatch):
    with running(own_host.paths()) as runner:
        slots = runner.runner._texts
        taken = [slots.acquire() for _ in range(16)]
        client = runner.start("echo ran")
        wait_until(lambda: runner.decisions)
        client.kill()
        wait_until(lambda: runner.ends)
        for _ in taken:
            slots.release()
        said, _ = client.communicate()

    assert said == ""
    assert [end.location for end in runner.ends] == [""]


def test_a_killed_bubblewrap_ends_its_command(own_host):
    with running(own_host.paths()) as runner:
        client = runner.start("echo begun; exec sleep 1005")
        client.stdout.readline()
        children = subprocess.run(
            ["pgrep", "-P", str(os.getpid()), "-x", "bwrap"], capture_output=True, text=True
        )
        os.kill(int(children.stdout.split()[0]), signal.SIGKILL)
        client.communicate(timeout=20)
        wait_until(lambda: not living("sleep 1005"))

    assert client.returncode == 137


def test_a_path_that_disappears_before_the_start_stops_no_command(own_host):
    with running(own_host.paths()) as runner:
        (own_host.root / "other/notes.txt").unlink()
        (own_host.root / "other").rmdir()
        said = runner.call("cat readme.txt")

    assert (said.stdout, said.returncode) == ("hello\n", 0)


@each_row(
    ("text", "says"),
    [
        ("cat /proc/4711/status", True),
        ("cat /proc/mounts | grep srv", True),
        ("(echo > /dev/tcp/127.0.0.1/80) && echo up", True),
        ("cat /run/other/file", True),
        ("cat ~/notes; echo $HOME/x", True),
        ("cat /home/me/notes", True),
        ("grep -r x /tmp", True),
        ("ls -l /tmp", True),
        ("find / -xdev -size +1G", True),
        ("pgrep -af nginx", True),
        ("pgrep -x nginx", False),
        ("date > /tmp/x; cat /tmp/x", False),
        ("git -C . fetch origin", True),
        ("ctr version", True),
        ("cat /proc/meminfo /proc/sys/vm/swappiness", False),
        ("cat /srv/app/run/x /srv/home/me; ls /etc", False),
        ("ls -la /home/me /run", False),
        ("cat {workdir}/x", False),
        ("git log", False),
    ],
)
def test_a_text_that_names_what_its_sandbox_hides_is_told_so(own_host, text, says):
    paths = own_host.paths()

    told = hidden_from(text.format(workdir=paths.workdir), paths)

    assert told.startswith(OWN_WORDS) if says else not told


def test_a_program_that_looks_at_the_host_runs_there(own_host):
    paths = own_host.paths(grants=Grants(names=frozenset({"processes"})))
    state = f"{own_host.root}/state"
    with subprocess.Popen(["sleep", "60"]) as sleeping:
        with running(paths, allowed("processes")) as runner:
            said = runner.call(f"cd /; ps -o comm= -p {sleeping.pid}; ls -d '{state}/secret.txt'")
        sleeping.kill()

    assert said.stdout == f"sleep\n{state}/secret.txt\n"
