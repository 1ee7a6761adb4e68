"""A session that cannot start, or that fails by an error of Claude Ops, still ends."""

from __future__ import annotations

import contextlib
import time
import uuid
from pathlib import Path

import pytest

from escalation.agent.process import StopAsked
from escalation.drills.drill import start_drill
from escalation.errors import CannotRun, WhyNot
from escalation.queue import enqueue_with
from escalation.run import finish, prepare, runner
from escalation.run.recorder import Recorder
from escalation.supervisor import conclude as conclude_module
from sessions_app.models import Conversation, Cycle, Incident, Session, SessionEvent
from tests.escalation.processes import group_is_gone_soon
from tests.escalation.rows import CONVERSATION, notes_of
from tests.factories import CycleFactory, SessionFactory

pytestmark = pytest.mark.django_db
Status, Outcome = Session.Status, Cycle.Outcome
CTRL_C = StopAsked(Session.StopCause.FOREGROUND, "Ctrl-C")


def run(session: Session) -> Session:
    assert runner.run(session)
    session.refresh_from_db()
    return session


def assert_could_not_run(session: Session, cause: WhyNot, *words: str) -> None:
    assert Incident.objects.get().cause == cause
    assert (session.status, session.cycle.outcome) == (Status.FAILED, Outcome.COULD_NOT_RUN)
    assert session.cycle.state == Cycle.State.FINISHED
    assert [word for word in words if word not in session.error] == []
    assert session.error in notes_of(session, "decision")[-1]


def test_missing_cli_is_reported_with_its_path(settings, session, tmp_path):
    settings.CLAUDEOPS_CLAUDE_BIN = str(tmp_path / "nowhere")

    run(session)

    assert_could_not_run(session, WhyNot.CLI, str(tmp_path / "nowhere"), "CLAUDEOPS_CLAUDE_BIN")


def test_cli_that_is_not_executable_is_reported(fake_cli, session):
    fake_cli.path.chmod(0o644)

    run(session)

    assert_could_not_run(session, WhyNot.CLI, f"chmod +x {fake_cli.path}")


def test_cli_without_a_version_is_reported(settings, session, tmp_path):
    broken = tmp_path / "claude"
    broken.write_text("#!/bin/sh\necho missing library >&2\nexit 3\n")
    broken.chmod(0o755)
    settings.CLAUDEOPS_CLAUDE_BIN = str(broken)

    run(session)

    assert_could_not_run(session, WhyNot.CLI, "--version", "code 3", "missing library")


def test_cli_that_vanishes_before_the_start_is_reported(fake_cli, session, monkeypatch):
    from escalation.agent.binary import find_binary

    binary = find_binary()
    monkeypatch.setattr(prepare, "find_binary", lambda: binary)
    fake_cli.path.unlink()

    run(session)

    assert_could_not_run(session, WhyNot.CLI, "cannot be started", "CLAUDEOPS_CLAUDE_BIN")


def test_missing_working_directory_is_reported(fake_cli, session, workdir):
    workdir.rmdir()

    run(session)

    assert_could_not_run(session, WhyNot.WORKDIR, str(workdir), "correct the watch")


def test_missing_prompt_file_is_reported(fake_cli, session, settings, tmp_path):
    settings.CLAUDEOPS_PROMPTS_DIR = tmp_path / "no-prompts"

    run(session)

    assert_could_not_run(session, WhyNot.PROMPTS, "no-prompts", "CLAUDEOPS_PROMPTS_DIR")


def test_missing_credentials_are_reported(fake_cli, session, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY")

    run(session)

    assert_could_not_run(session, WhyNot.NO_CREDENTIALS, "ANTHROPIC_API_KEY", ".env")
    assert fake_cli.calls == []


def test_missing_scenario_is_reported_with_the_known_ones(fake_cli):
    cycle = start_drill("all-healthy")
    Cycle.objects.filter(pk=cycle.pk).update(drill="forgotten")

    session = run(Session.objects.get(cycle=cycle))

    assert_could_not_run(session, WhyNot.DRILL, "'forgotten'", "all-healthy")


def test_a_conversation_in_use_is_reported(fake_cli, session, monkeypatch):
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(CONVERSATION))
    assert Conversation.take(CONVERSATION, SessionFactory(running=True))

    run(session)

    assert_could_not_run(session, WhyNot.CONVERSATION, CONVERSATION)


def test_an_error_of_claude_ops_before_the_start_has_its_own_cause(fake_cli, session, monkeypatch):
    monkeypatch.setattr(prepare, "prompt_for", _raising(Broken("a bug of ours")))

    with pytest.raises(Broken):
        runner.run(session)

    session.refresh_from_db()
    assert_could_not_run(session, WhyNot.CRASH, "a bug of ours")


def test_cannot_run_requires_a_cause():
    with pytest.raises(TypeError):
        CannotRun("there is no directory")  # type: ignore[call-arg]


def test_a_higher_tier_that_cannot_run_needs_a_person(settings, tmp_path):
    parent = SessionFactory(
        escalated=True, cycle=CycleFactory(running=True), session_id=CONVERSATION
    )
    child = SessionFactory(parent_session=parent, tier=2, status=Status.QUEUED, workdir="/gone")

    run(child)

    assert child.status == Status.FAILED
    assert child.cycle.outcome == Outcome.NEEDS_PERSON


class Broken(Exception):
    pass


def test_an_error_of_claude_ops_ends_the_session_and_is_raised(fake_cli, session, monkeypatch):
    fake_cli.then("init(); say(); result(HEALTHY)")
    monkeypatch.setattr(finish, "checked_report", _raising(Broken("a bug of ours")))

    with pytest.raises(Broken):
        runner.run(session)

    session.refresh_from_db()
    assert session.status == Status.FAILED
    assert "Claude Ops itself failed" in session.error
    assert "a bug of ours" in session.error
    assert session.cycle.state == Cycle.State.FINISHED


def test_events_before_an_error_of_claude_ops_are_kept(fake_cli, session, monkeypatch):
    fake_cli.then("init(); say(); result(HEALTHY)")
    monkeypatch.setattr(finish, "checked_report", _raising(Broken()))

    with pytest.raises(Broken):
        runner.run(session)

    assert session.events.filter(source=SessionEvent.Source.STREAM).count() == 3


def test_when_enqueueing_the_successor_fails_the_session_has_failed(fake_cli, session):
    fake_cli.then("init(); say(); result(ESCALATE)")

    with enqueue_with(_raising(Broken("no queue"))), pytest.raises(Broken):
        runner.run(session)

    session.refresh_from_db()
    assert (session.status, session.children.count()) == (Status.FAILED, 0)
    assert session.cycle.state == Cycle.State.FINISHED


def test_a_session_ends_although_its_events_cannot_be_stored(fake_cli, session, monkeypatch):
    fake_cli.then("init(); say(); result(HEALTHY)")
    monkeypatch.setattr(Recorder, "close", _raising(ValueError("an event of no known shape")))

    with contextlib.suppress(ValueError):
        runner.run(session)

    session.refresh_from_db()
    assert not session.is_open
    assert session.cycle.state == Cycle.State.FINISHED


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])
def test_ctrl_c_ends_the_session_as_interrupted(fake_cli, session, interruption, tmp_path):
    fake_cli.then("init(); say(); out(str(os.getpid())); time.sleep(60)")
    began = time.monotonic()

    def interrupt() -> None:
        if noise := session.events.filter(source=SessionEvent.Source.NOISE).first():
            (tmp_path / "pid").write_text(noise.payload["text"])
            raise interruption

    with pytest.raises(interruption):
        runner.run(session, asked_to_stop=interrupt)

    session.refresh_from_db()
    assert session.status == Status.INTERRUPTED
    assert interruption.__name__ in session.error
    assert session.cycle.state == Cycle.State.FINISHED
    assert group_is_gone_soon(int(Path(tmp_path / "pid").read_text()))
    assert time.monotonic() - began < 10


def test_ctrl_c_after_the_end_does_not_change_it(fake_cli, session, monkeypatch):
    fake_cli.then("init(); say(); result(HEALTHY)")
    conclude = conclude_module.conclude

    def conclude_and_interrupt(*args, **options):
        conclude(*args, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(finish, "conclude", conclude_and_interrupt)

    with pytest.raises(KeyboardInterrupt):
        runner.run(session)

    session.refresh_from_db()
    assert (session.status, session.error) == (Status.COMPLETED, "")


def test_a_stop_by_the_caller_ends_the_session_as_interrupted(fake_cli, session):
    fake_cli.then("init(); say(); time.sleep(60)")

    runner.run(
        session,
        asked_to_stop=lambda: CTRL_C if session.events.count() > 1 else None,
    )

    session.refresh_from_db()
    assert (session.status, session.error) == (Status.INTERRUPTED, "Stopped: Ctrl-C.")
    assert session.cycle.outcome == Outcome.NEEDS_PERSON


def test_a_stop_request_in_the_database_ends_the_session_as_interrupted(
    fake_cli, session, monkeypatch
):
    monkeypatch.setattr(runner, "LOOK_SECONDS", 0.05)
    fake_cli.then("init(); time.sleep(60)")

    def ask_for_stop(event: SessionEvent) -> None:
        Session.objects.filter(pk=session.pk).ask_to_stop(
            Session.StopCause.WORKER, "the worker was told to stop"
        )

    runner.run(session, listener=ask_for_stop)

    session.refresh_from_db()
    assert session.status == Status.INTERRUPTED
    assert "the worker was told to stop" in session.error


def _raising(error):
    def fail(*args, **options):
        raise error

    return fail
