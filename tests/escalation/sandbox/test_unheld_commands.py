"""A command whose runner was killed, and commands on the host."""

from __future__ import annotations

import multiprocessing

import pytest

from sessions_app.models.session import Verdict
from tests.escalation.sandbox.running import allowed, living, running, wait_until


def test_a_command_dies_when_the_runners_process_is_killed(own_host):
    paths = own_host.paths()

    def serve() -> None:
        with running(paths, allowed()) as runner:
            runner.call("exec sleep 1009")

    process = multiprocessing.get_context("fork").Process(target=serve, daemon=True)
    process.start()
    wait_until(lambda: living("sleep 1009"))
    process.kill()
    process.join(10)

    wait_until(lambda: not living("sleep 1009"))


@pytest.mark.parametrize("sandboxed", [True, False])
def test_on_the_host_nothing_runs_outside_its_directories(own_host, sandboxed):
    """The decision on `rm -f notes` was about the working directory."""
    link = own_host.root / "system/link"
    link.symlink_to(own_host.root / "state")
    with running(own_host.paths(sandboxed=sandboxed), allowed("host")) as runner:
        for directory in (own_host.root / "state", link, "/"):
            said = runner.call("touch made", cwd=directory)
            assert said.returncode == 126
            assert f"cd {own_host.root / 'system'}" in said.stderr
        (own_host.root / "system/below").mkdir()
        below = runner.call("touch made", cwd=own_host.root / "system/below")

    assert below.returncode == 0
    assert [record.verdict for record in runner.decisions] == [*[Verdict.DENY] * 3, Verdict.ALLOW]
    assert not (own_host.root / "state/made").exists()
