"""The sandbox of a run: environment of the CLI, stored facts, and ends of the run."""

from __future__ import annotations

import os

import pytest

from escalation.agent.process import Traces
from escalation.command_policy.decision import Decision, ExecRequest
from escalation.errors import CannotRun
from escalation.run import runner
from escalation.run.command_checks import BypassCheck
from escalation.sandbox import bubblewrap, setup
from escalation.sandbox.bubblewrap import SandboxState
from escalation.tiers import get_tier
from sessions_app.models import Session
from tests.escalation.rows import HEALTHY, queued_session
from tests.escalation.runs import run
from tests.factories import WatchFactory

pytestmark = pytest.mark.django_db


def test_the_cli_gets_a_token_and_never_the_key(fake_cli, session):
    fake_cli.reports(HEALTHY)

    run(session)

    environment = fake_cli.calls[0].environment
    assert "test-key" not in environment.values()
    assert len(environment["ANTHROPIC_API_KEY"]) > 30
    assert environment["ANTHROPIC_BASE_URL"].startswith("http://127.0.0.1:")


def test_each_run_has_a_token_of_its_own(fake_cli, workdir):
    fake_cli.reports(HEALTHY).reports(HEALTHY)

    for _ in range(2):
        run(queued_session(workdir))

    first, second = fake_cli.calls
    assert first.environment["ANTHROPIC_API_KEY"] != second.environment["ANTHROPIC_API_KEY"]


def test_a_key_that_signs_by_itself_is_inside_and_the_record_says_so(
    fake_cli, session, settings, monkeypatch
):
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    monkeypatch.setenv("CLAUDE_CODE_USE_BEDROCK", "1")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    settings.CLAUDEOPS_PASS_ENV = ("CLAUDE_CODE_USE_BEDROCK", "AWS_REGION")
    fake_cli.reports(HEALTHY)

    session = run(session)

    environment = fake_cli.calls[0].environment
    assert environment["CLAUDE_CODE_USE_BEDROCK"] == "1"
    assert environment["AWS_REGION"] == "eu-central-1"
    assert session.sandbox["key"] == "inside"
    assert "Bedrock" in session.sandbox["why_key_inside"]


def test_every_shell_command_goes_to_the_client(fake_cli, session):
    fake_cli.reports(HEALTHY)

    run(session)

    prefix = fake_cli.calls[0].environment["CLAUDE_CODE_SHELL_PREFIX"]
    assert prefix.endswith(f"runs/session-{session.pk}/tool-client")


def test_what_was_in_force_is_kept_with_the_session(fake_cli, workdir):
    fake_cli.reports(HEALTHY)
    session = queued_session(workdir)
    session.cycle.watch = WatchFactory(workdir=str(workdir), grants="-ssh write:/srv/data")
    session.cycle.save()

    session = run(session)

    assert session.sandbox["sandbox"] == ""
    assert "CLAUDEOPS_SANDBOX=off" in session.sandbox["why_no_sandbox"]
    assert session.sandbox["key"] == "proxy"
    assert "ssh" not in session.sandbox["grants"]
    assert "docker" in session.sandbox["grants"]
    assert session.sandbox["writable"] == []  # at Tier 1 nothing is


def test_where_sandboxes_are_insisted_on_and_impossible_nothing_runs(
    fake_cli, session, settings, monkeypatch
):
    settings.CLAUDEOPS_SANDBOX = "required"
    no_sandboxes = SandboxState(in_force=False, why=bubblewrap.MISSING)
    monkeypatch.setattr(setup, "sandbox_state", lambda mode: no_sandboxes)

    session = run(session)

    assert fake_cli.calls == []
    assert session.status == Session.Status.FAILED
    assert "apt-get install bubblewrap" in session.error


def test_a_command_that_the_gate_has_not_seen_ends_the_run(fake_cli, session, monkeypatch):
    monkeypatch.setattr(runner, "BypassCheck", BypassCheck)
    fake_cli.then("init(); tool('docker restart web', 'web'); time.sleep(60)")

    session = run(session)

    assert session.status == Session.Status.FAILED
    assert session.stop_cause == Session.StopCause.UNGUARDED
    assert "docker restart web" in session.error


def test_a_run_that_was_already_over_has_failed_all_the_same(fake_cli, session, monkeypatch):
    monkeypatch.setattr(runner, "BypassCheck", BypassCheck)
    fake_cli.reports(HEALTHY)  # says that it ran a command, and ends at once

    session = run(session)

    assert session.status == Session.Status.FAILED
    assert session.stop_cause == Session.StopCause.UNGUARDED


def test_a_watch_that_lies_in_the_supervisors_own_place_does_not_run(
    fake_cli, settings, monkeypatch
):
    inside = settings.CLAUDEOPS_STATE_DIR / "here"
    inside.mkdir(parents=True)

    session = run(queued_session(inside))

    assert fake_cli.calls == []
    assert "state directory" in session.error


def test_at_the_highest_tier_the_gate_holds_the_very_process_it_runs_in(workdir):
    judge = setup.decider_for(
        setup.SandboxRequest(
            tier=get_tier(3),
            workdir=workdir,
            config_directory=workdir,
            run_directory=workdir,
            run_environment={},
            login={},
            traces=Traces(),
        )
    )

    def kill(number: int) -> Decision:
        argv = ("sudo", "kill", "-9", str(number))
        return judge(ExecRequest(argv=argv, cwd=str(workdir)))

    assert kill(os.getpid()).rule == "supervisor is protected"
    assert kill(2**22 + 1).verdict == "allow"


def test_a_program_is_not_looked_for_where_an_agent_may_put_one(tmp_path):
    path = f"/usr/bin:.:bin::{tmp_path}/bin:/bin"

    assert setup.safe_path(path, [str(tmp_path)]) == "/usr/bin:/bin"


def test_safe_path_leaves_out_entries_below_a_linked_working_directory(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    (real / "bin").mkdir(parents=True)
    link.symlink_to(real)

    for writable in (real, link):
        path = f"{link}/bin:/usr/bin:{real}/bin"
        assert setup.safe_path(path, [str(writable)]) == "/usr/bin"


def test_safe_path_leaves_out_a_link_that_an_agent_could_change(tmp_path):
    (tmp_path / "bin").symlink_to("/usr/bin")

    assert setup.safe_path(f"{tmp_path}/bin:/usr/bin", [str(tmp_path)]) == "/usr/bin"


def test_insisting_on_sandboxes_is_no_matter_where_there_are_some(settings):
    settings.CLAUDEOPS_SANDBOX = "required"

    assert setup.sandbox_or_refusal() == bubblewrap.sandbox_state("auto")


def test_switched_off_sandboxes_are_no_refusal(settings):
    assert not setup.sandbox_or_refusal().in_force


def test_sandboxes_that_are_insisted_on_are_a_refusal_where_there_are_none(settings, monkeypatch):
    settings.CLAUDEOPS_SANDBOX = "required"
    monkeypatch.setattr(
        setup, "sandbox_state", lambda mode: SandboxState(in_force=False, why="no user namespaces")
    )

    with pytest.raises(CannotRun, match="no user namespaces"):
        setup.sandbox_or_refusal()
