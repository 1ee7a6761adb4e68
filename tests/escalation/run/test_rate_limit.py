"""A session ended by the rate limit: new sessions wait, and it continues by itself."""

from __future__ import annotations

from datetime import timedelta

import pytest
import time_machine
from django.utils import timezone

from escalation import queue, tasks
from escalation.agent.rate_limit import FIRST_BACK_OFF, RateLimitReached
from escalation.queue import start_waiting
from escalation.run import runner
from escalation.run.recovery import recover
from escalation.run.runner import objection
from escalation.supervisor import breaker
from escalation.supervisor.decision import Ending
from escalation.supervisor.manual import follow_up
from sessions_app.models import Cycle, RateLimit, Session
from tests.escalation.rows import ESCALATE, queued_session
from tests.escalation.runs import child_of, run
from tests.factories import CycleFactory, SessionFactory

pytestmark = pytest.mark.django_db

IN_AN_HOUR = "int(time.time()) + 3600"
EVENT = (
    "emit(type='rate_limit_event', rate_limit_info={'status': 'rejected', 'rateLimitType': "
    f"'five_hour', 'resetsAt': {IN_AN_HOUR}}}); "
)
REFUSED = (
    EVENT + "result(is_error=True, api_error_status=429, "
    "result='You have hit something · resets some time'); sys.exit(1)"
)
CUT = "init(); say(); " + REFUSED
UNKNOWN = "init(); say(); result(is_error=True, api_error_status=429, result='No.'); sys.exit(1)"
WELL = "init(); say(); result(HEALTHY)"


def later(**time: int) -> time_machine.travel:
    return time_machine.travel(timezone.now() + timedelta(**time), tick=True)


def test_session_is_interrupted_with_the_time_of_the_reset(fake_cli, session):
    fake_cli.then(CUT)

    ended = run(session)

    assert (ended.status, ended.stop_cause) == ("interrupted", "rate_limit")
    assert "waits for the rate limit until" in ended.escalation_reason
    assert ended.cycle.state == Cycle.State.RUNNING
    assert ended.cycle.outcome == ""


def test_rate_limit_of_the_installation_is_stored(fake_cli, session):
    fake_cli.then(CUT)

    run(session)

    clock = RateLimit.current()
    assert clock.is_holding
    assert clock.until is not None
    assert timedelta(minutes=59) < clock.until - timezone.now() <= timedelta(hours=1)
    assert (clock.kind, clock.times_in_a_row) == ("five_hour", 1)
    assert clock.words == "You have hit something · resets some time"


def test_session_resumes_its_own_conversation_after_the_reset(fake_cli, session):
    fake_cli.then(CUT).then(WELL)
    ended = run(session)
    successor = child_of(ended)
    assert runner.run(successor) is False

    with later(minutes=61):
        last = run(successor)

    assert fake_cli.calls[-1].flag("--resume") == ended.session_id
    assert (last.purpose, last.continued_by, last.tier) == ("recovery", "resume", 1)
    assert last.cycle.outcome == Cycle.Outcome.HEALTHY
    assert RateLimit.current().times_in_a_row == 0


def test_session_without_output_is_started_again_unchanged(fake_cli, session):
    fake_cli.then("init(); " + REFUSED).then(WELL)
    ended = run(session)
    again = ended.cycle.sessions.get(status="queued")

    with later(minutes=61):
        last = run(again)

    assert (again.parent_session, again.purpose) == (None, "tier")
    assert last.cycle.outcome == Cycle.Outcome.HEALTHY


def test_a_rate_limit_at_the_start_of_a_resumed_tier_is_no_refused_resume(fake_cli, session):
    fake_cli.reports(ESCALATE).then(EVENT + _legacy() + "; sys.exit(1)")
    second = run(child_of(run(session)))

    assert second.stop_cause == "rate_limit"
    assert second.cycle.sessions.filter(tier=2, status="queued", force_fresh=False).count() == 1


def test_an_interrupted_follow_up_stays_a_follow_up(fake_cli, session):
    fake_cli.then(WELL).then(CUT)
    question = follow_up(run(session), "Why?")

    ended = run(question)

    waiting = ended.cycle.sessions.get(status="queued")
    assert (waiting.purpose, waiting.request) == ("follow_up", "Why?")


def test_after_the_last_attempt_a_person_is_needed(fake_cli, session, settings):
    settings.CLAUDEOPS_MAX_RATE_LIMIT_WAITS = 1
    fake_cli.then(CUT)
    successor = child_of(run(session))

    with later(minutes=61):
        last = run(successor)

    assert last.cycle.outcome == Cycle.Outcome.NEEDS_PERSON
    assert "met the rate limit 2 times in a row" in last.cycle.outcome_reason


def test_the_circuit_breaker_does_not_count_a_rate_limit(fake_cli, session, settings):
    settings.CLAUDEOPS_MAX_RATE_LIMIT_WAITS = 0
    fake_cli.then(CUT)

    watch = run(session).cycle.watch

    assert watch is not None
    assert watch.failures_in_a_row == 0


def test_a_rate_limit_without_a_time_waits_longer_each_time(fake_cli, session):
    fake_cli.then(UNKNOWN)
    successor = child_of(run(session))

    with later(minutes=6):
        run(successor)
        second = RateLimit.current().until

        assert second is not None
        assert second - timezone.now() > FIRST_BACK_OFF * 1.9


def test_a_rate_limit_does_not_count_as_an_interruption(fake_cli, session):
    killed = "init(); say(); os.kill(os.getpid(), signal.SIGKILL)"
    fake_cli.then(CUT).then(killed)
    successor = child_of(run(session))

    with later(minutes=61):
        second = run(child_of(run(successor)))

    assert second.children.count() == 1


@pytest.mark.usefixtures("fake_cli")
def test_all_sessions_wait_and_start_after_the_reset(workdir):
    hold(minutes=30)
    session = queued_session(workdir)
    queue.enqueue_session(session)

    tasks.run_session(session.pk)
    tasks.recover_orphans()
    session.refresh_from_db()
    assert session.waiting_since is not None
    assert "the rate limit is reached" in objection(session)

    with later(minutes=31):
        assert objection(session) == ""
        assert start_waiting() == 0  # its first task is still in the queue


def test_housekeeping_starts_sessions_after_the_reset(workdir):
    session = queued_session(workdir)
    Session.objects.update(waiting_since=timezone.now())
    hold(minutes=30)
    tasks.recover_orphans()
    assert queue.waiting_sessions(include_taken=True) == set()

    with later(minutes=31):
        tasks.recover_orphans()

        assert queue.waiting_sessions(include_taken=True) == {session.pk}


def test_a_drill_does_not_wait_for_the_rate_limit():
    hold(minutes=30)
    drill = SessionFactory(drill=True, status="queued", cycle=CycleFactory(drilled=True))

    assert objection(drill) == ""


def test_session_that_waits_for_the_rate_limit_takes_no_slot_from_a_drill(settings):
    settings.CLAUDEOPS_MAX_SESSIONS = 1
    hold(minutes=30)
    SessionFactory(status="queued", waiting_since=timezone.now())
    drill = SessionFactory(drill=True, status="queued", waiting_since=timezone.now())

    assert start_waiting() == 1
    assert queue.waiting_sessions(include_taken=True) == {drill.pk}


def test_lifting_the_rate_limit_starts_waiting_sessions(operator):
    hold(minutes=30)
    session = SessionFactory(status="queued", waiting_since=timezone.now())

    assert breaker.lift(by=operator) == 1
    assert not RateLimit.current().is_holding
    assert RateLimit.current().lifted_by == operator
    assert objection(session) == ""


def test_an_earlier_reset_does_not_shorten_the_wait():
    hold(minutes=300)
    until = RateLimit.current().until
    soon = RateLimitReached(
        until=timezone.now() + timedelta(minutes=1), kind="requests", words="No."
    )

    breaker.note_ending(Ending(tier=1, status="interrupted", rate_limit=soon))

    assert (RateLimit.current().until, RateLimit.current().times_in_a_row) == (until, 1)


def test_the_use_of_the_windows_is_stored(fake_cli, session):
    window = f"{{'five_hour': {{'utilization': 0.93, 'resetsAt': {IN_AN_HOUR}}}}}"
    fake_cli.then(
        "init(); say(); emit(type='rate_limit_event', rate_limit_info={'status': 'allowed', "
        f"'unifiedWindows': {window}}}); result(HEALTHY)"
    )

    run(session)

    assert str(RateLimit.current().fullest).startswith("93% of the five-hour window")
    with later(minutes=61):
        assert RateLimit.current().fullest is None


def test_a_session_keeps_waiting_after_a_restart_of_the_worker(fake_cli, session):
    fake_cli.then(CUT).then(WELL)
    successor = child_of(run(session))

    recover(at_start=True)
    tasks.run_session(successor.pk)
    successor.refresh_from_db()
    assert successor.status == "queued"

    with later(minutes=61):
        tasks.run_session(successor.pk)

        assert Cycle.objects.get().outcome == Cycle.Outcome.HEALTHY


def test_recovery_of_a_rate_limited_session_gives_the_same_end(fake_cli, session):
    fake_cli.then(CUT)
    ended = run(session)
    Session.objects.filter(parent_session=ended).delete()
    Session.objects.filter(pk=ended.pk).update(
        status="running", stop_cause="", finished_at=None, runner_pid=None, runner_started=None
    )
    RateLimit.objects.all().delete()

    recover()

    ended.refresh_from_db()
    assert (ended.status, ended.stop_cause) == ("interrupted", "rate_limit")
    assert RateLimit.current().is_holding
    assert child_of(ended).purpose == "recovery"


def test_turn_limit_is_no_rate_limit(fake_cli, session):
    fake_cli.then(
        "init(); say(); result(is_error=True, subtype='error_max_turns', api_error_status=429); "
        "sys.exit(1)"
    )

    assert run(session).stop_cause == ""
    assert not RateLimit.current().is_holding


def hold(**time: int) -> None:
    RateLimit.objects.update_or_create(
        pk=RateLimit.THE_ONE, defaults={"until": timezone.now() + timedelta(**time)}
    )


def _legacy() -> str:
    return f"result(is_error=True, result='Claude AI usage limit reached|' + str({IN_AN_HOUR}))"
