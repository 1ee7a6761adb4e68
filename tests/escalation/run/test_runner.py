"""A session from claim to conclusion, without faults."""

from __future__ import annotations

import uuid
from decimal import Decimal
from pathlib import Path

import pytest

from escalation.drills.drill import start_drill
from escalation.run import runner
from sessions_app.models import Cycle, Session, SessionEvent
from tests.escalation.fake_cli import FakeCli
from tests.escalation.rows import ESCALATE, HEALTHY, a_report, notes_of, queued_session

pytestmark = pytest.mark.django_db


def run(session: Session) -> Session:
    assert runner.run(session)
    session.refresh_from_db()
    return session


def child_of(session: Session) -> Session:
    return session.children.get()


def test_healthy_cycle_ends_completed_and_healthy(fake_cli, session):
    fake_cli.reports(HEALTHY)

    run(session)

    assert (session.status, session.error) == (Session.Status.COMPLETED, "")
    assert session.cycle.outcome == Cycle.Outcome.HEALTHY
    assert session.report == HEALTHY


def test_all_facts_of_the_run_are_stored(fake_cli, session):
    fake_cli.reports(HEALTHY)

    run(session)

    assert session.cost_usd == session.reported_cost_usd == Decimal("0.018")
    assert (session.input_tokens, session.output_tokens, session.turns) == (100, 20, 2)
    assert (session.context_tokens, session.exit_code, session.result) == (101, 0, "done")
    assert session.model_used == "haiku"
    assert session.duration_ms is not None
    assert session.finished_at is not None


def test_req1_the_id_is_ours_and_stored_before_the_process_starts(fake_cli, session):
    stored: list[str] = []
    fake_cli.reports(HEALTHY)

    def look(event: SessionEvent) -> None:
        stored.append(Session.objects.get(pk=session.pk).session_id)

    runner.run(session, listener=look)

    assert stored[0] == fake_cli.calls[0].flag("--session-id")
    assert str(uuid.UUID(stored[0])) == stored[0]


def test_plan_is_stored_with_the_session(fake_cli, session, settings):
    fake_cli.reports(HEALTHY)

    run(session)

    call = fake_cli.calls[0]
    assert session.argv == [str(fake_cli.path), *call.argv]
    assert session.prompt == call.stdin
    assert (session.cli_path, session.cli_version) == (str(fake_cli.path), "9.9.9 (Fake Claude)")
    assert session.config_dir == call.environment["CLAUDE_CONFIG_DIR"]


def test_the_cli_runs_in_the_working_directory_with_its_own_state(
    fake_cli, session, settings, workdir
):
    fake_cli.reports(HEALTHY)

    run(session)

    call = fake_cli.calls[0]
    assert call.directory == str(workdir)
    own = settings.CLAUDEOPS_STATE_DIR / f"runs/session-{session.pk}"
    assert call.environment["HOME"] == str(own / "home")
    assert call.environment["TMPDIR"] == str(own / "tmp")
    assert not own.exists()  # and is gone with the run
    assert Path(call.environment["CLAUDE_CONFIG_DIR"]).stat().st_mode & 0o777 == 0o700


def test_events_are_stored_as_start_stream_decision(fake_cli, session):
    fake_cli.reports(HEALTHY)

    run(session)

    kinds = list(session.events.values_list("kind", flat=True))
    assert kinds == [
        *("status", "started", "settings"),
        *("system/init", "assistant", "assistant", "user", "result/success"),
        *("decision", "status"),
    ]


def test_req2_an_escalation_is_a_child_that_resumes_its_parent(fake_cli, session):
    fake_cli.reports(ESCALATE).reports(HEALTHY)
    run(session)

    child = run(child_of(session))

    assert session.status == Session.Status.ESCALATED
    assert (child.tier, child.continued_by) == (2, Session.ContinuedBy.RESUME)
    assert fake_cli.calls[1].flag("--resume") == session.session_id
    assert child.session_id == fake_cli.calls[1].flag("--session-id") != session.session_id


def test_req2_all_three_tiers_share_one_configuration_and_one_directory(fake_cli, session):
    fake_cli.reports(ESCALATE).reports(ESCALATE).reports(HEALTHY)
    run(session)
    second = run(child_of(session))
    third = run(child_of(second))

    assert [call.flag("--model") for call in fake_cli.calls] == ["haiku", "sonnet", "opus"]
    assert fake_cli.calls[2].flag("--resume") == second.session_id
    assert len({call.environment["CLAUDE_CONFIG_DIR"] for call in fake_cli.calls}) == 1
    assert len({call.directory for call in fake_cli.calls}) == 1
    assert third.cycle.outcome == Cycle.Outcome.HEALTHY


def test_a_cli_that_cannot_fork_is_resumed_with_the_same_id(settings, tmp_path, session):
    old = FakeCli(tmp_path / "old", can_fork=False).install(settings)
    old.reports(ESCALATE).reports(HEALTHY)
    run(session)

    child = run(child_of(session))

    assert child.session_id == session.session_id
    assert notes_of(child, "warning") == []


def test_a_missing_report_is_requested_once_in_the_same_conversation(fake_cli, session):
    fake_cli.reports(None).reports(HEALTHY)
    run(session)

    asked_again = run(child_of(session))

    assert asked_again.purpose == Session.Purpose.REPORT
    assert (asked_again.tier, asked_again.model) == (1, "haiku")
    assert fake_cli.calls[1].flag("--resume") == session.session_id
    assert "ended without the structured report" in fake_cli.calls[1].stdin
    assert asked_again.cycle.outcome == Cycle.Outcome.HEALTHY


def test_a_report_that_stays_missing_needs_a_person(fake_cli, session):
    fake_cli.reports(None).reports(None)
    run(session)

    asked_again = run(child_of(session))

    assert asked_again.cycle.outcome == Cycle.Outcome.NEEDS_PERSON
    assert "even when asked again" in asked_again.cycle.outcome_reason


def test_an_invalid_report_is_not_stored_and_requested_again(fake_cli, session):
    fake_cli.then("init(); say(); result({'summary': 'all fine'})")

    run(session)

    assert session.report is None
    assert child_of(session).purpose == Session.Purpose.REPORT


def test_dry_run_is_stated_at_every_tier(fake_cli, workdir):
    asks = a_report(needed=True, reason="web is down", services=(("web", "down"),))
    fake_cli.reports(asks).reports(asks)
    session = queued_session(workdir, dry_run=True, max_tier=2)

    second = run(child_of(run(session)))

    assert ["**Dry run:**" in call.stdin for call in fake_cli.calls] == [True, True]
    assert not second.children.exists()


def test_a_session_that_is_delivered_twice_runs_once(fake_cli, session):
    fake_cli.reports(HEALTHY)
    run(session)

    again = runner.run(Session.objects.get(pk=session.pk))

    assert again is False
    assert len(fake_cli.calls) == 1


def test_a_session_claimed_by_another_worker_is_left_alone(fake_cli, session):
    stale = Session.objects.get(pk=session.pk)
    session.claim()

    assert runner.run(stale) is False
    assert (session.events.get().kind, fake_cli.calls) == ("status", [])


def test_the_cycle_is_running_while_its_session_is(fake_cli, session):
    states: list[str] = []
    fake_cli.reports(HEALTHY)

    def look(event: SessionEvent) -> None:
        states.append(Cycle.objects.get(pk=session.cycle_id).state)

    runner.run(session, listener=look)

    assert states[0] == Cycle.State.RUNNING


def test_a_drill_needs_no_key_and_uses_its_own_api(fake_cli, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    fake_cli.reports(HEALTHY)
    cycle = start_drill("all-healthy")

    run(cycle.sessions.get())

    environment = fake_cli.calls[0].environment
    assert environment["ANTHROPIC_BASE_URL"].startswith("http://127.0.0.1:")
    assert environment["ANTHROPIC_API_KEY"] not in {"", "drill-no-key-needed"}
    assert environment["PATH"].startswith(f"{cycle.workdir}/bin:")


@pytest.mark.parametrize(
    "name",
    [
        "ANTHROPIC_AUTH_TOKEN",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "CLAUDE_CODE_USE_BEDROCK",
        "CLAUDE_CODE_USE_VERTEX",
    ],
)
def test_a_drill_never_has_the_credentials_of_the_operator(fake_cli, settings, monkeypatch, name):
    monkeypatch.setenv(name, "1")
    settings.CLAUDEOPS_PASS_ENV = (name,)
    fake_cli.reports(HEALTHY)
    cycle = start_drill("all-healthy")

    run(cycle.sessions.get())

    assert name not in fake_cli.calls[0].environment
