"""A CLI that misbehaves: the session ends, the cycle ends, and the message says what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest
from django.db import OperationalError

from escalation.run import runner
from sessions_app.models import Cycle, Session, SessionEvent
from tests.escalation.rows import CONVERSATION, ESCALATE, HEALTHY, notes_of

pytestmark = pytest.mark.django_db
Status, Outcome, Source = Session.Status, Cycle.Outcome, SessionEvent.Source


def run(session: Session) -> Session:
    assert runner.run(session)
    session.refresh_from_db()
    return session


@pytest.fixture
def one_second_tier(settings) -> None:
    tier = replace(settings.CLAUDEOPS_TIERS[1], timeout_seconds=1)
    settings.CLAUDEOPS_TIERS = {**settings.CLAUDEOPS_TIERS, 1: tier}


class Fault(NamedTuple):
    program: str
    outcome: str
    message: str
    source: str


FAULTS = {
    "crashes at once": Fault(
        "sys.stderr.write('boom: no such option\\n'); sys.exit(7)",
        Outcome.COULD_NOT_RUN,
        "boom: no such option",
        Source.STDERR,
    ),
    "exits 0 without a result": Fault(
        "init(); say()", Outcome.NEEDS_PERSON, "exited with code 0 without a result", Source.STREAM
    ),
    "prints nothing": Fault(
        "pass",
        Outcome.COULD_NOT_RUN,
        "exited with code 0 without a result",
        Source.SUPERVISOR,
    ),
    "prints garbage": Fault(
        "out('Segmentation fault?'); sys.stdout.buffer.write(b'\\xff\\x00\\xfe\\n'); out('[1,2]')",
        Outcome.COULD_NOT_RUN,
        "without a result",
        Source.NOISE,
    ),
    "prints half a line": Fault(
        'init(); sys.stdout.write(\'{"type": "result", "subtype": "succ\')',
        Outcome.COULD_NOT_RUN,
        "without a result",
        Source.NOISE,
    ),
    "is_error with exit 0": Fault(
        "init(); result(HEALTHY, is_error=True, result='API Error: 401 bad key')",
        Outcome.COULD_NOT_RUN,
        "Check ANTHROPIC_API_KEY",
        Source.STREAM,
    ),
    "good result with exit 1": Fault(
        "init(); say(); result(HEALTHY); sys.exit(1)",
        Outcome.NEEDS_PERSON,
        "reported success but exited with code 1",
        Source.STREAM,
    ),
    "used up its turns": Fault(
        "init(); say(); result(None, subtype='error_max_turns', is_error=True); sys.exit(1)",
        Outcome.NEEDS_PERSON,
        "CLAUDEOPS_TIER1_MAX_TURNS",
        Source.STREAM,
    ),
    "used up its budget": Fault(
        "init(); say(); result(None, subtype='error_max_budget_usd', is_error=True); sys.exit(1)",
        Outcome.NEEDS_PERSON,
        "CLAUDEOPS_TIER1_MAX_BUDGET_USD",
        Source.STREAM,
    ),
    "API unreachable": Fault(
        "init(); result(None, is_error=True, result='Unable to connect to API'); sys.exit(1)",
        Outcome.COULD_NOT_RUN,
        "Check the network and ANTHROPIC_BASE_URL",
        Source.STREAM,
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_faulty_cli_ends_the_session_failed_with_its_events(fake_cli, session, fault):
    fake_cli.then(fault.program)

    run(session)

    assert session.status == Status.FAILED
    assert fault.message in session.error
    assert session.events.filter(source=fault.source).exists()


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_faulty_cli_ends_the_cycle_with_the_right_outcome(fake_cli, session, settings, fault):
    settings.CLAUDEOPS_MAX_CONTINUATIONS = 0
    fake_cli.then(fault.program)

    run(session)

    assert (session.cycle.state, session.cycle.outcome) == (Cycle.State.FINISHED, fault.outcome)
    assert fault.message in session.cycle.outcome_reason
    assert session.events.get(kind="decision").payload["level"] == "error"


@pytest.mark.parametrize("spoken", ["", "say();"])
def test_a_killed_session_continues_a_few_times_and_then_needs_a_person(
    fake_cli, session, settings, spoken
):
    settings.CLAUDEOPS_MAX_INTERRUPTIONS = 1
    fake_cli.then(f"init(); {spoken} os.kill(os.getpid(), signal.SIGKILL)")
    run(session)

    again = run(session.children.get())

    assert (session.status, again.status) == (Status.INTERRUPTED, Status.INTERRUPTED)
    assert "killed by signal 9" in session.error
    assert again.cycle.outcome == Outcome.NEEDS_PERSON
    assert not again.children.exists()


def test_a_session_that_hangs_is_timed_out_at_the_limit_of_its_tier(
    fake_cli, session, one_second_tier
):
    fake_cli.then("init(); say(); time.sleep(60)")

    run(session)

    assert session.status == Status.TIMED_OUT
    assert "CLAUDEOPS_TIER1_TIMEOUT" in session.error
    assert session.cycle.outcome == Outcome.NEEDS_PERSON
    assert session.duration_ms < 6000


def test_a_session_that_hangs_after_a_good_result_is_completed(fake_cli, session, one_second_tier):
    fake_cli.then("init(); say(); result(HEALTHY); time.sleep(60)")

    run(session)

    assert session.status == Status.COMPLETED
    assert session.cycle.outcome == Outcome.HEALTHY


def test_a_line_of_5_megabytes_is_stored_whole(fake_cli, session):
    fake_cli.then("init(); say('x' * 5_000_000); result(HEALTHY)")

    run(session)

    stored = session.events.get(kind="assistant").payload["message"]["content"][0]["text"]
    assert (session.status, len(stored)) == (Status.COMPLETED, 5_000_000)


def test_unknown_events_are_stored_and_change_nothing(fake_cli, session):
    fake_cli.then(
        "init(); emit(type='telemetry', odd=[1]); emit(type=7); emit(no='type'); say();"
        "emit(type='system', subtype='api_retry', attempt=1); result(HEALTHY);"
        "emit(type='system', subtype='after_the_end')"
    )

    run(session)

    kinds = session.events.filter(source=Source.STREAM).values_list("kind", flat=True)
    assert {"telemetry", "", "system/api_retry", "system/after_the_end"} <= set(kinds)
    assert session.status == Status.COMPLETED


def test_a_stream_with_hostile_values_ends_as_usual(fake_cli, session):
    fake_cli.then(
        'out(\'{"type": "\\\\ud800", "subtype": "\\\\u0000"}\');'
        "emit(type='assistant', message={'usage': {'input_tokens': 10**30,"
        " 'cache_read_input_tokens': 10**30}});"
        "init(); result(HEALTHY, num_turns=-1, total_cost_usd='much', usage=[],"
        " result='\\u0000 \\ud800', stop_reason=['odd'], modelUsage=None)"
    )

    run(session)

    assert session.status == Status.COMPLETED
    assert session.cost_usd is None


def test_end_of_a_long_stderr_is_kept(fake_cli, session):
    fake_cli.then("sys.stderr.write('x' * 2_000_000 + '\\nthe reason\\n'); sys.exit(1)")

    run(session)

    assert session.error.endswith("the reason")
    assert len(session.error) < 5000


def test_req1_missing_session_id_triggers_a_warning_with_the_session_details(fake_cli, session):
    fake_cli.then("init(session_id=None); say(); result(HEALTHY, session_id=None)")

    run(session)

    warning = notes_of(session, "warning")[0]
    asked = fake_cli.calls[0].flag("--session-id")
    assert session.session_id == ""
    assert all(word in warning for word in ("session_id", "Tier 1", "haiku", "9.9.9", asked))
    assert session.events.get(kind="warning").payload["level"] == "warning"


def test_req1_without_a_session_id_the_next_tier_runs_by_handoff(fake_cli, session):
    fake_cli.then(
        "init(session_id=None); tool('df /', 'disk is 100% full');result(ESCALATE, session_id=None)"
    ).reports(HEALTHY)
    run(session)

    child = run(session.children.get())

    assert session.status == Status.ESCALATED
    assert (child.tier, child.continued_by) == (2, Session.ContinuedBy.HANDOFF)
    assert "no session id" in child.continued_why
    assert "--resume" not in fake_cli.calls[1].argv
    assert "disk is 100% full" in fake_cli.calls[1].stdin
    assert child.cycle.outcome == Outcome.HEALTHY


def test_an_unexpected_session_id_is_stored_with_a_note(fake_cli, session):
    fake_cli.then(f"init(session_id={CONVERSATION!r}); say(); result(ESCALATE)").reports(HEALTHY)

    run(session)

    assert session.session_id == CONVERSATION
    assert CONVERSATION in notes_of(session, "warning")[0]
    run(session.children.get())
    assert fake_cli.calls[1].flag("--resume") == CONVERSATION


def test_an_unexpected_session_id_that_is_no_uuid_is_never_resumed(fake_cli, session):
    fake_cli.then("init(session_id='sess_other'); tool('uptime', 'up'); result(ESCALATE)").reports(
        HEALTHY
    )
    run(session)

    child = run(session.children.get())

    assert session.session_id == "sess_other"
    assert child.continued_guard == "not_a_uuid"
    assert "--resume" not in fake_cli.calls[1].argv


def test_the_id_of_a_failed_resume_is_not_stored(fake_cli, session):
    fake_cli.reports(ESCALATE).then(
        "sys.stderr.write('No conversation found with session ID: ' + asked);"
        "result(None, subtype='error_during_execution', is_error=True, num_turns=0,"
        " session_id=sys.argv[sys.argv.index('--resume') + 1], result=''); sys.exit(1)"
    )
    run(session)

    child = run(session.children.get())

    assert (child.status, child.session_id) == (Status.FAILED, "")
    assert "No conversation found" in child.error


def test_a_failure_after_an_escalation_needs_a_person(fake_cli, session):
    fake_cli.reports(ESCALATE).then("init(); say(); sys.exit(1)")
    run(session)

    child = run(session.children.get())

    assert child.cycle.outcome == Outcome.NEEDS_PERSON
    assert "Tier 1 had asked for it" in child.cycle.outcome_reason


def test_a_database_that_fails_before_the_start_leaves_the_session_queued(
    session, fake_cli, monkeypatch
):
    def away(*given, **options):
        raise OperationalError("connection refused")

    monkeypatch.setattr(runner, "prepare", away)

    taken = runner.run(session)

    session.refresh_from_db()
    assert (taken, session.status, session.started_at) == (False, Session.Status.QUEUED, None)
    assert fake_cli.calls == []
