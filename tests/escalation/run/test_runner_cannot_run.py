"""A run that cannot even begin, or that we ourselves break: it still comes to an end."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest

from escalation.agent.process import StopAsked
from escalation.next_step import conclude as conclude_module
from escalation.next_step.cycles import leave_to_caller
from escalation.rehearsal.drills.drill import start_drill
from escalation.run import ending, finish, prepare, runner, stop
from escalation.run.recorder import Recorder
from sessions_app.models import Cycle, Session, SessionEvent
from tests.escalation.processes import group_is_gone_soon
from tests.escalation.rows import CONVERSATION, notes_of
from tests.factories import CycleFactory, SessionFactory

pytestmark = pytest.mark.django_db
Status, Outcome = Session.Status, Cycle.Outcome
CTRL_C = StopAsked(Session.StopCause.FOREGROUND, "Ctrl-C")


def run(session: Session) -> Session:
    assert runner.run(session, enqueue=leave_to_caller)
    session.refresh_from_db()
    return session


def assert_could_not_run(session: Session, *words: str) -> None:
    assert (session.status, session.cycle.outcome) == (Status.FAILED, Outcome.COULD_NOT_RUN)
    assert session.cycle.state == Cycle.State.FINISHED
    assert [word for word in words if word not in session.error] == []
    assert session.error in notes_of(session, "decision")[-1]


def test_a_missing_cli_says_where_it_was_looked_for(settings, session, tmp_path):
    settings.CLAUDEOPS_CLAUDE_BIN = str(tmp_path / "nowhere")

    run(session)

    assert_could_not_run(session, str(tmp_path / "nowhere"), "CLAUDEOPS_CLAUDE_BIN")


def test_a_cli_that_is_not_executable_says_how_to_make_it_so(fake_cli, session):
    fake_cli.path.chmod(0o644)

    run(session)

    assert_could_not_run(session, f"chmod +x {fake_cli.path}")


def test_a_cli_that_breaks_when_asked_for_its_version_says_so(settings, session, tmp_path):
    broken = tmp_path / "claude"
    broken.write_text("#!/bin/sh\necho missing library >&2\nexit 3\n")
    broken.chmod(0o755)
    settings.CLAUDEOPS_CLAUDE_BIN = str(broken)

    run(session)

    assert_could_not_run(session, "--version", "code 3", "missing library")


def test_a_cli_that_vanishes_between_question_and_start_says_so(fake_cli, session, monkeypatch):
    from escalation.agent.binary import find_binary

    binary = find_binary()
    monkeypatch.setattr(prepare, "find_binary", lambda: binary)
    fake_cli.path.unlink()

    run(session)

    assert_could_not_run(session, "cannot be started", "CLAUDEOPS_CLAUDE_BIN")


def test_a_missing_working_directory_says_what_to_correct(fake_cli, session, workdir):
    workdir.rmdir()

    run(session)

    assert_could_not_run(session, str(workdir), "correct the watch")


def test_a_missing_prompt_file_says_what_to_correct(fake_cli, session, settings, tmp_path):
    settings.CLAUDEOPS_PROMPTS_DIR = tmp_path / "no-prompts"

    run(session)

    assert_could_not_run(session, "no-prompts", "CLAUDEOPS_PROMPTS_DIR")


def test_a_missing_key_says_where_to_set_it(fake_cli, session, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY")

    run(session)

    assert_could_not_run(session, "ANTHROPIC_API_KEY", ".env")
    assert fake_cli.calls == []


def test_a_drill_whose_scenario_is_gone_says_which_are_known(fake_cli):
    cycle = start_drill("all-healthy", enqueue=leave_to_caller)
    Cycle.objects.filter(pk=cycle.pk).update(drill="forgotten")

    session = run(Session.objects.get(cycle=cycle))

    assert_could_not_run(session, "'forgotten'", "all-healthy")


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


def test_our_own_fault_ends_the_session_and_is_raised(fake_cli, session, monkeypatch):
    fake_cli.then("init(); say(); result(HEALTHY)")
    monkeypatch.setattr(ending, "checked_report", _raising(Broken("a bug of ours")))

    with pytest.raises(Broken):
        runner.run(session, enqueue=leave_to_caller)

    session.refresh_from_db()
    assert session.status == Status.FAILED
    assert "Claude Ops itself failed" in session.error
    assert "a bug of ours" in session.error
    assert session.cycle.state == Cycle.State.FINISHED


def test_the_events_before_our_own_fault_are_kept(fake_cli, session, monkeypatch):
    fake_cli.then("init(); say(); result(HEALTHY)")
    monkeypatch.setattr(ending, "checked_report", _raising(Broken()))

    with pytest.raises(Broken):
        runner.run(session, enqueue=leave_to_caller)

    assert session.events.filter(source=SessionEvent.Source.STREAM).count() == 3


def test_a_queue_that_refuses_the_successor_ends_the_session_failed(fake_cli, session):
    fake_cli.then("init(); say(); result(ESCALATE)")

    with pytest.raises(Broken):
        runner.run(session, enqueue=_raising(Broken("no queue")))

    session.refresh_from_db()
    assert (session.status, session.children.count()) == (Status.FAILED, 0)
    assert session.cycle.state == Cycle.State.FINISHED


def test_events_that_cannot_be_stored_do_not_keep_the_session_from_ending(
    fake_cli, session, monkeypatch
):
    fake_cli.then("init(); say(); result(HEALTHY)")
    monkeypatch.setattr(Recorder, "close", _raising(ValueError("an event of no known shape")))

    with contextlib.suppress(ValueError):
        runner.run(session, enqueue=leave_to_caller)

    session.refresh_from_db()
    assert not session.is_open
    assert session.cycle.state == Cycle.State.FINISHED


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])
def test_an_interruption_ends_the_session_interrupted(fake_cli, session, interruption, tmp_path):
    fake_cli.then("init(); say(); out(str(os.getpid())); time.sleep(60)")
    began = time.monotonic()

    def interrupt() -> None:
        if noise := session.events.filter(source=SessionEvent.Source.NOISE).first():
            (tmp_path / "pid").write_text(noise.payload["text"])
            raise interruption

    with pytest.raises(interruption):
        runner.run(session, enqueue=leave_to_caller, asked_to_stop=interrupt)

    session.refresh_from_db()
    assert session.status == Status.INTERRUPTED
    assert interruption.__name__ in session.error
    assert session.cycle.state == Cycle.State.FINISHED
    assert group_is_gone_soon(int(Path(tmp_path / "pid").read_text()))
    assert time.monotonic() - began < 10


def test_an_interruption_after_the_end_does_not_rewrite_it(fake_cli, session, monkeypatch):
    fake_cli.then("init(); say(); result(HEALTHY)")
    conclude = conclude_module.conclude

    def conclude_and_interrupt(*args, **options):
        conclude(*args, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(finish, "conclude", conclude_and_interrupt)

    with pytest.raises(KeyboardInterrupt):
        runner.run(session, enqueue=leave_to_caller)

    session.refresh_from_db()
    assert (session.status, session.error) == (Status.COMPLETED, "")


def test_a_stop_from_the_caller_ends_the_run_interrupted(fake_cli, session):
    fake_cli.then("init(); say(); time.sleep(60)")

    runner.run(
        session,
        enqueue=leave_to_caller,
        asked_to_stop=lambda: CTRL_C if session.events.count() > 1 else None,
    )

    session.refresh_from_db()
    assert (session.status, session.error) == (Status.INTERRUPTED, "Stopped: Ctrl-C.")
    assert session.cycle.outcome == Outcome.NEEDS_PERSON


def test_a_stop_through_the_database_ends_the_run_interrupted(fake_cli, session, monkeypatch):
    monkeypatch.setattr(stop, "LOOK_SECONDS", 0.05)
    fake_cli.then("init(); time.sleep(60)")

    def ask_for_stop(event: SessionEvent) -> None:
        Session.objects.filter(pk=session.pk).ask_to_stop(
            Session.StopCause.WORKER, "the worker was told to stop"
        )

    runner.run(session, enqueue=leave_to_caller, listener=ask_for_stop)

    session.refresh_from_db()
    assert session.status == Status.INTERRUPTED
    assert "the worker was told to stop" in session.error


def _raising(error):
    def fail(*args, **options):
        raise error

    return fail
