from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from escalation.sandbox.setup import alive, own_container, own_user

OURS = Path("/opt/claudeops")
ID = "4f" * 32
UNIT = "0::/system.slice/claudeops-worker.service"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "self").mkdir()
    return tmp_path


def process(proc: Path, pid: int, parent: int, name: str, *words: str, group: str = "0::/") -> None:
    directory = proc / str(pid)
    directory.mkdir()
    (directory / "stat").write_text(f"{pid} ({name}) S {parent} 1 1 0\n")
    (directory / "cmdline").write_text("".join(f"{word}\0" for word in words))
    (directory / "cgroup").write_text(f"{group}\n")


def test_workers_web_server_and_what_they_started_are_ours_and_others_are_not(proc):
    process(proc, 1, 0, "systemd", "/sbin/init")
    process(proc, 10, 1, "claudeops", "/opt/claudeops/bin/python", "/x", "worker", group=UNIT)
    process(proc, 11, 10, "python3", "python3", "-c", "task", group=UNIT)
    process(proc, 12, 11, "bwrap) S 1", "bwrap", "claude", group=f"{UNIT}/room")
    process(
        *(proc, 20, 1, "python3", "python3", "/opt/claudeops/bin/claudeops", "web"),
        group="0::/system.slice/pages.service",
    )
    process(proc, 30, 1, "nginx", "nginx", group="0::/system.slice/nginx.service")
    process(proc, 31, 30, "vi", "vi", "-R", "a", "b", "c", "/opt/claudeops/README")

    found = alive([OURS], proc, own=11)

    assert {one.pid for one in found.processes} == {10, 11, 12, 20}
    assert found.units == {"system.slice", "claudeops-worker.service", "pages.service"}


def test_a_program_that_was_named_from_its_directory_is_ours_too(proc, tmp_path):
    code = tmp_path / "code"
    code.mkdir()
    (code / "manage.py").touch()
    process(proc, 7, 1, "python3", "python3", "-u", "manage.py", "web")
    process(proc, 8, 1, "bash", "bash")
    for pid in (7, 8):
        (proc / str(pid) / "cwd").symlink_to(code)

    assert {one.pid for one in alive([code], proc, own=2).processes} == {7}


def test_what_we_were_started_from_is_held_but_not_its_unit(proc):
    process(proc, 5, 1, "tmux", "tmux", group="0::/user.slice/tmux.scope")
    process(proc, 6, 5, "bash", "-bash", group="0::/user.slice/session-7.scope")
    process(proc, 7, 6, "python3", "python3", "manage.py", group="0::/user.slice/session-7.scope")

    found = alive([OURS], proc, own=7)

    assert {one.pid for one in found.processes} == {5, 6, 7}
    assert found.units == {"user.slice", "session-7.scope"}


def test_units_are_found_in_the_groups_of_old_as_well(proc):
    groups = "9:name=systemd:/user.slice/user-1000.slice/user@1000.service/ops.service\n1:cpu:/"
    process(proc, 7, 1, "python3", "python3", group=groups)

    assert alive([], proc, own=7).units == {
        *("user.slice", "user-1000.slice", "user@1000.service", "ops.service"),
    }


def test_a_process_that_ends_while_it_is_read_is_passed_over(proc):
    (proc / "99").mkdir()

    assert alive([OURS], proc, own=1).processes == ()


def test_on_this_host_the_process_itself_and_its_child_are_found():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        found = {one.pid for one in alive([]).processes}
    finally:
        child.communicate(b"\n", timeout=10)

    assert {os.getpid(), child.pid} <= found


def test_a_process_is_known_by_its_threads_and_its_group_as_well():
    """A signal to a thread ends the whole process."""
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        [me] = [one for one in alive([]).processes if one.pid == os.getpid()]
    finally:
        ended.set()
        thread.join()

    assert {thread.native_id, os.getpgrp()} <= me.numbers


def test_our_user_has_a_name_and_a_number():
    assert str(os.getuid()) in own_user()


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("mountinfo", f"9 8 0:1 /lib/docker/containers/{ID}/hostname /etc/hostname rw - ext4 a rw"),
        ("mountinfo", f"9 8 0:1 /overlay-containers/{ID}/userdata/hosts /etc/hosts rw - ext4 a rw"),
        ("cgroup", f"0::/system.slice/docker-{ID}.scope"),
        ("cgroup", f"12:pids:/docker/{ID}"),
    ],
)
def test_the_own_container_is_found_by_what_its_engine_left_in_it(proc, file, line):
    (proc / "self" / file).write_text(f"{line}\n")

    assert own_container(proc, marks=()) == ID


def test_a_container_without_such_traces_is_called_by_its_host_name(proc, tmp_path, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "4f4f4f4f4f4f")
    (tmp_path / "mark").touch()

    assert own_container(proc, marks=[str(tmp_path / "mark")]) == "4f4f4f4f4f4f"


def test_another_container_that_is_mounted_here_makes_a_host_no_container(proc):
    line = f"9 8 0:1 / /var/lib/docker/containers/{ID}/mounts/shm rw - tmpfs shm rw\n"
    (proc / "self" / "mountinfo").write_text(line)

    assert own_container(proc, marks=()) == ""
