from __future__ import annotations

import os
import pwd
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from escalation.command_policy.grants import Grants
from escalation.sandbox.limits import SandboxLimits
from tests.escalation.sandbox.run_paths import IS_ROOT, Host
from tests.escalation.sandbox.running import living, wait_until

CONNECT = """/usr/bin/python3 -c "
import socket
socket.socket(socket.AF_UNIX).connect('{path}')
print('connected')"
"""


@contextmanager
def sleeper(host: Host) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the same user, outside any sandbox."""
    person = pwd.getpwnam(host.user)
    as_user: dict[str, Any] = {"user": person.pw_uid} if IS_ROOT else {}
    with subprocess.Popen(["sleep", "1006"], env={"A_SECRET": "x"}, **as_user) as process:
        yield process
        process.kill()


def test_a_command_runs_in_the_working_directory_with_a_clean_environment(host):
    said = host.bash("cat readme.txt; pwd; env | cut -d= -f1 | sort | tr '\\n' ' '")

    assert said.stderr == ""
    assert said.stdout.splitlines()[:2] == ["hello", str(host.root / "system")]
    assert set(said.stdout.splitlines()[2].split()) == {
        *host.paths().tool_environment,
        *("HOME", "TMPDIR", "PWD", "SHLVL", "_"),
    }


def test_the_working_directory_is_only_read_at_tier_1(host):
    said = host.bash("echo x > made; echo x >> readme.txt; rm -f readme.txt; mkdir d; chmod 0 .")

    assert said.returncode != 0
    assert said.stderr.count("Read-only file system") == 5
    assert (host.root / "system/readme.txt").read_text() == "hello\n"
    assert [path.name for path in (host.root / "system").iterdir()] == ["readme.txt"]


def test_the_working_directory_is_written_from_tier_2_on(host):
    said = host.bash("echo x > made && rm readme.txt", writable=True)

    assert said.stderr == ""
    assert [path.name for path in (host.root / "system").iterdir()] == ["made"]


def test_paths_that_the_watch_names_are_written_from_tier_2_on_only(host):
    (host.root / "state/app").mkdir()
    (host.root / "state/app").chmod(0o777)
    grants = Grants(writable=(str(host.root / "state/app"),))
    command = f"echo x > '{host.root}/state/app/made'"

    assert "Read-only" in host.bash(command, grants=grants).stderr
    assert host.bash(command, grants=grants, writable=True).stderr == ""
    assert (host.root / "state/app/made").read_text() == "x\n"


def test_paths_that_the_watch_names_for_reading_are_shown_and_only_read(host):
    grants = Grants(readable=(str(host.root / "other"),))
    said = host.bash(f"cd '{host.root}/other'; cat notes.txt; echo x > notes.txt", grants=grants)

    assert said.stdout == "of another watch\n"
    assert "Read-only" in said.stderr


def test_a_path_that_is_named_and_not_there_does_no_harm(host):
    grants = Grants(readable=("/nowhere/at/all",), writable=("/nowhere/else",))

    assert host.bash("cat readme.txt", grants=grants, writable=True).stdout == "hello\n"


HIDDEN = {
    "the state directory": "state",
    "the code": "code",
    "another watch's directory": "other",
    "the operator's home": "home",
}


@pytest.mark.parametrize("name", HIDDEN.values(), ids=HIDDEN)
def test_a_hidden_directory_is_empty_and_cannot_be_written(host, name):
    said = host.bash(f"find '{host.root}/{name}' -mindepth 1; echo x > '{host.root}/{name}/x'")

    assert said.stdout == ""
    assert any(words in said.stderr for words in ("Read-only", "No such file"))
    assert not (host.root / name / "x").exists()


def test_a_working_directory_inside_the_state_directory_is_shown_alone(host):
    drill = host.root / "state/drills/cycle-1"
    drill.mkdir(parents=True)
    (drill / "service.log").write_text("up\n")
    for path in (drill.parent, drill):
        path.chmod(0o755)

    said = host.bash("cat service.log; cat ../../secret.txt", workdir=drill)

    assert said.stdout.splitlines() == ["up"]


def test_to_list_a_hidden_directory_fails_except_for_root(host):
    said = host.bash(f"ls '{host.root}/state'")

    assert ("Permission denied" in said.stderr) is (host.user != "root")


def test_a_state_directory_inside_the_working_directory_stays_hidden(host):
    said = host.bash(
        "cat system/readme.txt; cat state/secret.txt", workdir=host.root, writable=True
    )

    assert said.stdout == "hello\n"
    assert "No such file" in said.stderr


def test_a_watch_inside_the_working_directory_is_part_of_it(host):
    assert host.bash("cat other/notes.txt", workdir=host.root).stdout == "of another watch\n"


def test_a_link_leads_to_nothing_that_is_hidden(host):
    os.symlink(host.root / "state", host.root / "system/link")
    os.symlink("../state/secret.txt", host.root / "system/file")

    said = host.bash("cat link/secret.txt file; ls link/")

    assert said.stdout == ""


def test_a_working_directory_behind_a_link_in_a_hidden_place_is_found_as_it_was_written(host):
    link = host.root / "home/app"
    os.symlink(host.root / "system", link)

    said = host.bash(f"cat '{link}/readme.txt'; ls '{host.root}/home'", workdir=link)

    assert said.stdout.splitlines() == ["hello", "app"]


@pytest.mark.parametrize("name", ["two\nlines", "a  b", "日本", "-rf", "quo'te\"s", "$HOME", "\\"])
def test_any_name_of_a_working_directory_works(host, name):
    workdir = host.root / name
    workdir.mkdir()
    (workdir / "f").write_text("found\n")

    assert host.bash("cat f", workdir=workdir).stdout == "found\n"


def test_git_reads_a_repository_of_somebody_else(host):
    directory = host.root / "system"
    subprocess.run(["git", "init", "-q", directory], check=True)

    said = host.bash("git status --short && git log 2>&1 | head -1")

    assert said.stdout.startswith("?? readme.txt\n")
    assert "dubious" not in said.stdout + said.stderr


def test_git_finds_the_repository_around_a_working_directory_that_is_written(host):
    subprocess.run(["git", "init", "-q", host.root / "system"], check=True)
    (host.root / "system/app").mkdir()

    around = Grants(readable=(str(host.root / "system"),))
    said = host.bash("git status", workdir=host.root / "system/app", writable=True, grants=around)

    assert said.returncode == 0


def test_the_temporary_directory_is_the_runs_own_and_shows_what_everybody_may_read(host):
    with tempfile.NamedTemporaryFile(dir="/tmp") as file, tempfile.NamedTemporaryFile() as closed:
        os.chmod(file.name, 0o644)
        said = host.bash(
            f"ls {file.name} {closed.name} 2>/dev/null; echo x >> {file.name} || echo read-only; "
            f'echo x > "$TMPDIR/{Path(file.name).name}.x" && cat {file.name}.x'
        )

    assert said.stdout == f"{file.name}\nread-only\nx\n"
    assert not Path(f"{file.name}.x").exists()


def test_without_a_grant_there_is_no_network(host):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        command = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected"
        closed, granted_mounts = host.bash(command), host.bash(command, "network")

    assert closed.stdout == ""
    assert granted_mounts.stdout == "connected\n"


def test_without_a_grant_only_the_sandboxes_own_processes_are_seen(host):
    count = "ls /proc | grep -c '^[0-9]'"

    assert int(host.bash(count).stdout) < 10
    assert int(host.bash(count, "process table").stdout) > 10


def test_through_the_grant_processes_are_seen_and_neither_touched_nor_read(host):
    with sleeper(host) as process:
        said = host.bash(
            f"ps -o args= -p {process.pid}; cat /proc/{process.pid}/environ; "
            f"ls -l /proc/{process.pid}/fd/; kill -9 {process.pid}; cat /proc/{process.pid}/maps",
            "process table",
        )
        assert process.poll() is None

    assert said.stdout.splitlines()[0] == "sleep 1006"
    assert "A_SECRET" not in said.stdout
    assert "Operation not permitted" in said.stderr
    assert said.stderr.count("Permission denied") >= 3


def test_a_listening_socket_in_the_working_directory_cannot_be_reached(host):
    path = host.root / "system/s.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        path.chmod(0o777)
        server.listen()
        said = host.bash(CONNECT.format(path="s.sock"), "network")

    assert "connected" not in said.stdout
    assert "Error" in said.stderr


def test_a_socket_that_the_watch_names_can_be_reached(host):
    path = host.root / "system/s.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        path.chmod(0o777)
        server.listen()
        said = host.bash(CONNECT.format(path="s.sock"), grants=Grants(readable=(str(path),)))

    assert said.stdout == "connected\n"


ATTACKS = {
    "a kernel setting": "echo x > /proc/sys/kernel/core_pattern",
    "a kernel setting by another way": "echo 61 > /proc/sys/vm/swappiness",
    "the password hashes": "cat /etc/shadow",
    "a backup of the password hashes": "cat /etc/shadow-",
    "who may become root": "cat /etc/sudoers",
    "a remount": "mount -o remount,rw /",
    "taking a hiding mount away": "umount /home",
    "a namespace of its own": "unshare -Ur true",
    "a device": "mknod /tmp/disk b 254 0",
    "the disk": "head -c 1 /dev/vda",
    "another root": "chroot / true",
    "the host's name": "hostname other",
    "the clock": "date -s 2001-01-01 >/dev/null",
    "the first process": "cat /proc/1/root/etc/shadow",
    "a module": "insmod /dev/null",
    "the kernel's log": "dmesg -C",
    "becoming somebody": "su nobody -s /bin/true",
    "control groups": "mkdir /sys/fs/cgroup/pids/x",
    "devices of the sandbox": "echo x > /dev/x",
}


@pytest.mark.parametrize("command", ATTACKS.values(), ids=ATTACKS)
def test_an_attack_on_the_host_fails(host, command):
    settings = [Path("/proc/sys/kernel/core_pattern"), Path("/proc/sys/vm/swappiness")]
    before = [path.read_text() for path in settings]

    said = host.bash(f"{command} && echo done")

    assert said.stdout == ""
    assert [path.read_text() for path in settings] == before


def test_a_sandbox_gains_no_capability_and_that_of_root_only_overrides_permissions(host):
    said = host.bash("grep -h 'Cap\\|NoNewPrivs' /proc/self/status")

    lines = dict(line.split(":\t") for line in said.stdout.splitlines())
    assert lines.pop("NoNewPrivs") == "1"
    # CAP_CHOWN, CAP_DAC_OVERRIDE and CAP_FOWNER
    assert {int(value, 16) for value in lines.values()} == {0b1011 if host.user == "root" else 0}


def test_only_root_works_on_the_files_of_another_user(host):
    private = host.root / "system/private"
    private.mkdir(mode=0o700)
    os.chown(private, 1, 1)

    said = host.bash("echo x > private/made && chown 1 private/made", writable=True)

    assert (private / "made").exists() is (said.returncode == 0) is (host.user == "root")
    assert host.bash("echo y > private/made").returncode != 0


def test_no_process_of_the_sandbox_has_a_foreign_environment(host):
    said = host.bash("cat /proc/1/environ /proc/*/environ | tr '\\0' '\\n' | cut -d= -f1 | sort -u")

    own = set(host.paths().tool_environment)
    assert set(said.stdout.split()) - own <= {"HOME", "TMPDIR", "PWD", "SHLVL", "_", "OLDPWD"}
    assert own <= set(said.stdout.split())


def test_a_daemon_dies_with_its_sandbox(host):
    daemon = "import os,time\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0:\n  "
    daemon += "os.environ.clear(); os.execv('/bin/sleep', ['sleep', '1007'])"

    said = host.bash(f'/usr/bin/python3 -c "{daemon}"; sleep 0.1; echo ended')

    assert said.stdout == "ended\n"
    wait_until(lambda: not living("sleep 1007"))


def test_a_full_temporary_directory_ends_at_its_size(host):
    said = host.bash(
        "dd if=/dev/zero of=/var/tmp/x bs=1M; dd if=/dev/zero of=/dev/shm/x bs=1M",
        limits=SandboxLimits(temporary_bytes=5_000_000),
    )

    assert said.stderr.count("No space left") == 2


def test_a_hidden_directory_cannot_be_filled_either(host):
    said = host.bash("for d in /run /home /root /var /; do echo x > $d/x; done; echo $?")

    assert said.stdout == "1\n"
    assert said.stderr.count("Read-only file system") == 5
