from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from escalation.sandbox.limits import (
    CommandGroup,
    ControlGroups,
    SandboxLimits,
    _remove_forgotten,
    find_control_groups,
    shell_limits,
)
from tests.escalation.sandbox.running import running

MEBIBYTE = 1024 * 1024


def test_the_ulimit_call_has_every_limit(host):
    said = host.bash(f"{shell_limits(SandboxLimits())} && ulimit -c -u -d -f -n -t")

    numbers = [line.split()[-1] for line in said.stdout.splitlines()]
    files = min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    assert numbers == ["0", "512", "4194304", "4194304", str(files), "3600"]


def test_a_limit_cannot_be_raised_again(host):
    said = host.bash(f"{shell_limits(SandboxLimits())}; ulimit -u 5000 || echo refused")

    assert said.stdout == "refused\n"


def test_no_limit_is_over_our_own(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda number: (50, 50))

    assert "-u 50 " in shell_limits(SandboxLimits())


def test_a_process_that_takes_too_much_memory_fails_alone(own_host):
    limits = SandboxLimits(memory_bytes=200 * MEBIBYTE)
    with running(own_host.paths(), limits=limits) as runner:
        said = runner.call("/usr/bin/python3 -c 'x = b\"x\" * 500_000_000'")
        after = runner.call("echo fine")

    assert said.returncode != 0
    assert after.stdout == "fine\n"


def test_node_and_its_like_start_within_the_limits(own_host):
    with running(own_host.paths()) as runner:
        said = runner.call("node -e 'console.log(1 + 1)'")

    assert said.stdout == "2\n"


FORK_BOMB = "bomb() { bomb | bomb & }; bomb; sleep 0.5; echo survived"


def test_a_fork_bomb_ends_with_its_command(own_host):
    before = len(os.listdir("/proc"))
    with running(own_host.paths(), limits=SandboxLimits(processes=60)) as runner:
        runner.call(FORK_BOMB)
        most = len(os.listdir("/proc"))
        after = runner.call("echo fine")

    assert most < before + 200
    assert after.stdout == "fine\n"


COUNT_FORKS = """/usr/bin/python3 -c "
import os, time
made = 0
try:
    while made < 100:
        if os.fork() == 0:
            time.sleep(100)
        made += 1
except BlockingIOError:
    pass
print(made)"
"""


def test_a_fork_bomb_of_an_ordinary_user_is_stopped_by_the_sandboxes_own_count(host):
    """Root's processes are not counted: for root the control group does it."""
    said = host.bash(f"{shell_limits(SandboxLimits(processes=40))}; {COUNT_FORKS}")

    assert (int(said.stdout) < 40) is (host.user != "root")


def test_a_file_that_grows_too_large_is_cut(own_host):
    limits = SandboxLimits(file_bytes=2 * MEBIBYTE)
    with running(own_host.paths(writable=True), limits=limits) as runner:
        said = runner.call("dd if=/dev/zero of=big bs=1M count=50")

    assert said.returncode != 0
    assert (own_host.root / "system/big").stat().st_size <= 2 * MEBIBYTE


def test_no_group_is_left_when_a_command_has_ended(own_host, monkeypatch):
    made = []
    make = CommandGroup.make

    def noted(self: CommandGroup) -> None:
        make(self)
        made.extend(self.paths)

    monkeypatch.setattr(CommandGroup, "make", noted)
    with running(own_host.paths()) as runner:
        runner.call("sleep 0.01 & true")

    assert [path for path in made if path.exists()] == []
    assert bool(made) is bool(find_control_groups().parents)


def test_a_group_that_was_just_made_by_another_runner_is_left_alone(version_2):
    young, old = (version_2 / "claudeops" / name for name in ("young", "old"))
    young.mkdir(parents=True)
    old.mkdir()
    os.utime(old, (0, 0))

    _remove_forgotten(ControlGroups(parents=((version_2 / "claudeops", ""),)))

    assert (young.exists(), old.exists()) == (True, False)


@pytest.fixture
def version_2(tmp_path):
    """Plain files in paths of the kernel's: what is written can be read."""
    (tmp_path / "cgroup.controllers").write_text("memory pids")
    (tmp_path / "cgroup.procs").touch()
    return tmp_path


ORDINARY_USER = 65534


@pytest.fixture
def group_of_root() -> Iterator[Path]:
    """A directory like the kernel's, with a group that only root can open."""
    with tempfile.TemporaryDirectory() as name:
        root, is_root = Path(name), os.geteuid() == 0
        (root / "cgroup.controllers").write_text("memory pids")
        (root / "cgroup.procs").touch()
        group = root / "claudeops-tools"
        group.mkdir(mode=0o700 if is_root else 0)
        root.chmod(0o777)
        if is_root:
            os.seteuid(ORDINARY_USER)
        yield root
        if is_root:
            os.seteuid(0)
        root.chmod(0o700)
        group.chmod(0o700)


def test_group_that_another_user_left_behind_is_replaced_by_an_own_one(group_of_root):
    groups = find_control_groups(group_of_root, group_of_root / "none")

    assert groups.parents == ((group_of_root / f"claudeops-tools-{os.geteuid()}", ""),)


def test_group_that_another_user_left_behind_is_skipped_where_no_other_can_be_made(group_of_root):
    if os.geteuid() != ORDINARY_USER:
        group_of_root.chmod(0o500)
    else:
        os.seteuid(0)
        group_of_root.chmod(0o755)
        os.seteuid(ORDINARY_USER)

    assert find_control_groups(group_of_root, group_of_root / "none") == ControlGroups()


def test_a_group_of_version_2_has_both_limits(version_2):
    (version_2 / "claudeops").mkdir()
    groups = ControlGroups(parents=((version_2 / "claudeops", ""),))
    group = CommandGroup(groups, limits=SandboxLimits(processes=7, memory_bytes=9))

    group.make()

    [path] = group.paths
    assert (path / "pids.max").read_text() == "7"
    assert (path / "memory.max").read_text() == "9"
    assert (path.parent / "cgroup.subtree_control").read_text() == "+pids +memory"
    assert "version 2" in groups.in_force


def test_reports_when_no_control_group_can_be_created(tmp_path):
    groups = find_control_groups(tmp_path, tmp_path / "none")

    assert groups == ControlGroups()
    assert "no control group" in groups.in_force
    assert CommandGroup(groups, SandboxLimits()).entering(["true"]) == ["true"]


def test_a_group_that_cannot_be_entered_lets_nothing_run(tmp_path, own_host):
    groups = ControlGroups(parents=((tmp_path / "nowhere", "pids.max"),))

    said = own_host.call(CommandGroup(groups, SandboxLimits()).entering(["/bin/echo", "ran"]), {})

    assert (said.stdout, said.returncode) == ("", 126)
