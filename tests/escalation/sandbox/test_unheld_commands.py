"""A command whose runner was killed, and commands on the host."""

from __future__ import annotations

import multiprocessing

from sessions_app.models.session import Verdict
from tests.escalation.sandbox.running import allowed, as_written, living, running, wait_until


def test_a_command_dies_when_the_runners_process_is_killed(own_host):
    paths = own_host.paths()

    def serve() -> None:
        with running(paths) as runner:
            runner.call("exec sleep 1009")

    process = multiprocessing.get_context("fork").Process(target=serve, daemon=True)
    process.start()
    wait_until(lambda: living("sleep 1009"))
    process.kill()
    process.join(10)

    wait_until(lambda: not living("sleep 1009"))


def test_on_the_host_nothing_runs_outside_its_directories(own_host):
    """The decision on `rm -f notes` was about the working directory."""
    with running(own_host.paths(), as_written("host")) as runner:
        said = [runner.call(f"cd {directory}; curl touch made") for directory in ("/", "/tmp")]
        (own_host.root / "system/below").mkdir()
        below = runner.call("cd below; curl touch made")

    assert [outcome.returncode for outcome in (*said, below)] == [126, 126, 0]
    judged = [record.verdict for record in runner.decisions if record.parent]
    assert judged == [Verdict.DENY, Verdict.DENY, Verdict.ALLOW]
    assert (own_host.root / "system/below/made").exists()


def test_without_sandboxes_a_link_out_of_the_working_directory_is_refused(own_host):
    link = own_host.root / "system/link"
    link.symlink_to(own_host.root / "state")
    with running(own_host.paths(sandboxed=False), allowed()) as runner:
        said = [
            runner.call("touch made", cwd=place) for place in (own_host.root / "state", link, "/")
        ]

    assert [outcome.returncode for outcome in said] == [126, 126, 126]
    assert not (own_host.root / "state/made").exists()
