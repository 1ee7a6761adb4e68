"""`--resume` refused at run time: the tier runs again by handoff, unless a tool already ran."""

from __future__ import annotations

import pytest

from sessions_app.history.resume import Guard
from sessions_app.models import Conversation, Cycle, Session
from tests.escalation.continuation_cases import FENCE
from tests.escalation.fake_cli import FakeCli
from tests.escalation.rows import HEALTHY, notes_of
from tests.escalation.runs import FOUND, escalated, run

pytestmark = pytest.mark.django_db
Status, State = Session.Status, Conversation.State

ERROR_RESULT = (
    "result(None, subtype='error_during_execution', is_error=True, num_turns=0, total_cost_usd=0,"
    " result='', errors=[{errors}]); sys.exit(1)"
)
REFUSALS = {
    "as the CLI says it": "sys.stderr.write('No conversation found with session ID: x');"
    + ERROR_RESULT.format(errors=""),
    "in the errors of the result": ERROR_RESULT.format(errors="'Session not found or expired'"),
    "in another language": "sys.stderr.write('Sitzung abgelaufen\\n'); sys.exit(1)",
    "without a word": "sys.exit(1)",
    "with another code": "init(); sys.exit(42)",
    "as a title": "sys.stderr.write('--resume: no session with this title'); sys.exit(2)",
    "with the word connection": "sys.stderr.write('cannot reconnect to this session'); sys.exit(1)",
    "prompt is too long": "init(); result(None, is_error=True, result='Prompt is too long',"
    " terminal_reason='prompt_too_long', num_turns=1, total_cost_usd=0); sys.exit(1)",
    "API 400 on its history": "init(); result(None, is_error=True, total_cost_usd=0,"
    " result='API Error: 400 messages.3: tool_use ids without tool_result'); sys.exit(1)",
}


def refused(fake_cli: FakeCli, session: Session, program: str) -> Session:
    """Tier 2, whose `--resume` was refused."""
    child = escalated(fake_cli, session)
    fake_cli.then(program)
    return run(child)


def conversation_of(session: Session) -> Conversation:
    assert session.parent_session is not None
    return Conversation.objects.get(session_id=session.parent_session.session_id)


def sibling_of(session: Session) -> Session:
    assert session.parent_session is not None
    return session.parent_session.children.exclude(pk=session.pk).get()


@pytest.mark.parametrize("program", REFUSALS.values(), ids=REFUSALS.keys())
def test_req7_fallback_to_handoff_when_resume_fails(fake_cli, session, program):
    first = refused(fake_cli, session, program)
    fake_cli.reports(HEALTHY)

    again = run(sibling_of(first))

    assert "--resume" in fake_cli.calls[1].argv
    assert "--resume" not in fake_cli.calls[2].argv
    assert FOUND in FENCE.split(fake_cli.calls[2].stdin)[1]
    assert (again.tier, again.purpose) == (2, Session.Purpose.TIER)
    assert (again.continued_by, again.continued_guard) == ("handoff", Guard.RETIRED)
    assert again.cycle.outcome == Cycle.Outcome.HEALTHY


@pytest.mark.parametrize("program", REFUSALS.values(), ids=REFUSALS.keys())
def test_req7_a_refused_resume_is_logged_and_the_conversation_retired(fake_cli, session, program):
    first = refused(fake_cli, session, program)

    assert first.status == Status.FAILED
    (decision,) = notes_of(first, "decision")
    assert "could not be resumed, so Tier 2 is run again by handoff" in decision
    assert conversation_of(first).state == State.RETIRED
    assert first.error in conversation_of(first).reason


@pytest.mark.parametrize("program", REFUSALS.values(), ids=REFUSALS.keys())
def test_the_tier_runs_again_only_once(fake_cli, session, program):
    first = refused(fake_cli, session, program)

    again = run(sibling_of(first))

    assert len(fake_cli.calls) == 3
    assert again.status == Status.FAILED
    assert again.cycle.outcome == Cycle.Outcome.NEEDS_PERSON
    assert not Session.objects.filter(status=Status.QUEUED).exists()


@pytest.mark.parametrize(
    "program",
    [
        "init(); tool('restart web', 'done'); sys.exit(1)",
        "init(); say(); tool('restart web', 'done');"
        "result(None, is_error=True, result='API Error: 400 bad history'); sys.exit(1)",
        "init(); tool('restart web', 'done'); result(None, is_error=True,"
        " result='Prompt is too long', terminal_reason='prompt_too_long'); sys.exit(1)",
    ],
)
def test_after_a_tool_call_a_person_is_needed(fake_cli, session, program):
    first = refused(fake_cli, session, program)

    assert first.cycle.state == Cycle.State.FINISHED
    assert first.cycle.outcome == Cycle.Outcome.NEEDS_PERSON
    assert not Session.objects.filter(status=Status.QUEUED).exists()


@pytest.mark.parametrize(
    "said",
    [
        "API Error: 401 bad key",
        "API Error: 500 internal",
        "API Error: 529 overloaded",
        "Unable to connect to API (ECONNREFUSED)",
    ],
)
def test_api_error_does_not_retire_the_conversation(fake_cli, session, said):
    program = f"init(); result(None, is_error=True, result={said!r}, num_turns=1); sys.exit(1)"

    first = refused(fake_cli, session, program)

    assert conversation_of(first).state == State.LIVE
    assert first.cycle.outcome == Cycle.Outcome.NEEDS_PERSON
    assert not Session.objects.filter(status=Status.QUEUED).exists()


@pytest.mark.parametrize(
    "ending",
    [
        "result='API Error: 400 invalid_request_error: messages'",
        "result='Prompt is too long', terminal_reason='prompt_too_long'",
        "api_error_status=400, result='bad'",
    ],
)
def test_a_conversation_that_the_api_refuses_is_retired_at_once(fake_cli, session, ending):
    fake_cli.then(f"init(); say(); result(None, is_error=True, {ending}); sys.exit(1)")

    ran = run(session)

    conversation = Conversation.objects.get(session_id=ran.session_id)
    assert (conversation.state, conversation.reason) == (State.RETIRED, ran.error)


def test_a_requested_stop_is_no_refused_resume(fake_cli, session):
    child = escalated(fake_cli, session)
    fake_cli.then("init(); time.sleep(60)")
    Session.objects.filter(pk=child.pk).update(
        stop_cause=Session.StopCause.PERSON, stop_requested="the operator"
    )

    first = run(child)

    assert first.status == Status.INTERRUPTED
    assert conversation_of(first).state == State.LIVE
    assert not Session.objects.filter(status=Status.QUEUED).exists()


def test_a_missing_report_of_a_refused_conversation_is_requested_by_handoff(fake_cli, session):
    fake_cli.then("init(); tool('df /', 'disk is 100% full'); result(None)")
    fake_cli.then("sys.exit(1)").reports(HEALTHY)
    first = run(session)
    asked = run(first.children.get())

    again = run(sibling_of(asked))

    assert again.purpose == Session.Purpose.REPORT
    assert FOUND in fake_cli.calls[2].stdin
    assert again.cycle.outcome == Cycle.Outcome.HEALTHY


def test_a_conversation_that_the_cli_could_not_save_is_not_resumed(fake_cli, session):
    """On a full disk the CLI loses lines of its transcript, says so, and goes on."""
    fake_cli.then(
        "init(); tool('df /', 'disk is 100% full');"
        "emit(type='system', subtype='session_writes_lost', lost=['transcript']); result(ESCALATE)"
    )
    child = run(session).children.get()
    fake_cli.reports(HEALTHY)

    second = run(child)

    assert (second.continued_by, second.continued_guard) == ("handoff", "retired")
    assert "incomplete" in second.continued_why
    assert FOUND in fake_cli.calls[1].stdin
