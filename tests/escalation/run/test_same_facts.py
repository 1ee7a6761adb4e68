"""A session has the same facts whether its own runner or a recovery records its end."""

from __future__ import annotations

from decimal import Decimal

import pytest

from escalation.supervisor import manual
from sessions_app.models import Conversation, Cycle, Session
from tests.escalation.recovery_cases import Handed, dead_process, recovered
from tests.escalation.rows import HEALTHY
from tests.escalation.runs import child_of, escalated, run

pytestmark = pytest.mark.django_db

# Nobody saw the exit, and the time of death is only known from the last sign of life.
UNSEEN = {"exit_code", "duration_ms", "finished_at", "heartbeat_at"}
WHO_RAN_IT = {"runner_pid", "runner_started"}
OWN = "model_usage_since_last_result={'m': {'costUSD': 0.02, 'inputTokens': 7}}"
RUNS = {
    "healthy": "init(); say(); tool('uptime', 'up'); result(HEALTHY, stop_reason='end_turn')",
    "with a share of its own": f"init(); say(); result(HEALTHY, {OWN})",
    "escalating": "init(); say(); result(ESCALATE)",
    "without a report": "init(); say(); result(None)",
    "at its turn limit": "init(); say(); result(None, subtype='error_max_turns', is_error=True)",
    "with a window": "init(); say(); result(HEALTHY, modelUsage={model: {'contextWindow': 9000}})",
    "refused by the API": "init(); say(); result(None, is_error=True, api_error_status=401)",
    "with secrets": "init(); say('password=abc123'); result({**ESCALATE, 'summary': 'token=a1b2'})",
    "compacted": "init(); say(); emit(type='system', subtype='compact_boundary'); result(HEALTHY)",
}


def facts_of(session: Session) -> dict[str, object]:
    left_out = UNSEEN | WHO_RAN_IT
    return {
        field.attname: getattr(session, field.attname)
        for field in Session._meta.concrete_fields
        if field.attname not in left_out
    }


def died_before_it_was_concluded(session: Session) -> Session:
    """Turn the clock back to the moment before the runner wrote the ending down."""
    Session.objects.filter(parent_session=session).delete()
    session.events.filter(source="supervisor", kind__in=["decision", "status"]).delete()
    blank = {
        field.attname: field.get_default()
        for field in Session._meta.concrete_fields
        if field.attname in ENDED_FIELDS
    }
    Session.objects.filter(pk=session.pk).update(
        **blank, status="running", runner_pid=dead_process(), runner_started=1
    )
    Cycle.objects.filter(pk=session.cycle_id).update(state="running", outcome="")
    Conversation.objects.filter(session_id=session.session_id).update(
        state="live", reason="", in_use_by=session
    )
    return Session.objects.get(pk=session.pk)


ENDED_FIELDS = (
    *("cost_usd", "reported_cost_usd", "estimated_cost_usd", "cost_basis", "input_tokens"),
    *("output_tokens", "cache_read_tokens", "cache_creation_tokens", "context_tokens"),
    *("context_window", "compactions", "turns", "messages", "duration_ms", "exit_code"),
    *("stop_reason", "terminal_reason", "result", "report", "escalation_reason", "error"),
    *("finished_at", "first_activity_at", "last_activity_at", "model_used"),
)


@pytest.mark.parametrize("program", RUNS.values(), ids=RUNS.keys())
def test_a_recovered_session_has_the_facts_of_one_that_its_runner_finished(
    fake_cli, session, program
):
    fake_cli.then(program)
    seen = run(session)
    expected, outcome = facts_of(seen), seen.cycle.outcome

    after, _done = recovered(died_before_it_was_concluded(seen), Handed())

    assert facts_of(after) == expected
    assert after.cycle.outcome == outcome


@pytest.mark.parametrize("program", ["escalating", "without a report", "at its turn limit"])
def test_recovered_session_gets_the_same_successor(fake_cli, session, program):
    fake_cli.then(RUNS[program])
    seen = run(session)
    expected = child_of(seen).purpose

    after, _done = recovered(died_before_it_was_concluded(seen), Handed())

    assert child_of(after).purpose == expected


@pytest.mark.parametrize("accumulates", [True, False])
def test_req5_recovered_cost_follows_the_capabilities_of_the_cli(
    fake_cli, session, settings, accumulates
):
    """0.02 was stored where 0.05 was right: recovery took every CLI for one that accumulates."""
    fake_cli.install(settings, accumulates_on_fork=accumulates)
    child = escalated(fake_cli, session, "init(); say(); result(ESCALATE, total_cost_usd=0.03)")
    fake_cli.then("init(); say(); result(HEALTHY, total_cost_usd=0.05)")
    run(child)

    after, _done = recovered(died_before_it_was_concluded(Session.objects.get(pk=child.pk)))

    assert after.cost_usd == (Decimal("0.02") if accumulates else Decimal("0.05"))


def test_the_answer_to_a_follow_up_is_recovered(fake_cli, session):
    fake_cli.reports(HEALTHY).then("init(); say(); result(None, result='Because of the cache.')")
    asked = manual.follow_up(run(session), "Why?")
    run(asked)

    after, _done = recovered(died_before_it_was_concluded(Session.objects.get(pk=asked.pk)))

    assert (after.status, after.result) == (Session.Status.COMPLETED, "Because of the cache.")
