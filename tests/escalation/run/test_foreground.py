"""A cycle in the foreground: tier after tier, until a signal or the end."""

from __future__ import annotations

import os
import signal

import pytest

from escalation.run.runner import run_to_end, stop_on_signals
from sessions_app.models import Cycle, Session
from sessions_app.text import money
from tests.escalation.rows import ESCALATE, HEALTHY
from tests.factories import CycleFactory


def test_it_runs_until_no_session_is_left(fake_cli, session):
    fake_cli.reports(ESCALATE).reports(ESCALATE).reports(HEALTHY)
    lines: list[str] = []

    cycle = run_to_end(session.cycle, lines.append)

    assert cycle.outcome == Cycle.Outcome.HEALTHY
    heads = [line for line in lines if line.startswith("──")]
    assert heads[::2] == [
        f"── Session {pk}: Tier {tier}, {model}"
        for pk, tier, model in cycle.sessions.order_by("pk").values_list("pk", "tier", "model")
    ]
    assert [head.partition(", ")[0] for head in heads[1::2]] == [
        f"── Tier {session.tier} {session.get_status_display()}: {money(session.cost_usd)}"
        for session in cycle.sessions.order_by("pk")
    ]


def test_events_are_printed(fake_cli, session):
    fake_cli.then("init(); say('I look at web.'); result(HEALTHY)")
    lines: list[str] = []

    run_to_end(session.cycle, lines.append)

    assert "I look at web." in "\n".join(lines)


@pytest.mark.django_db
def test_a_cycle_without_a_queued_session_is_unchanged(fake_cli):
    cycle = CycleFactory()

    assert run_to_end(cycle, print).outcome == Cycle.Outcome.HEALTHY
    assert fake_cli.calls == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_tier_and_starts_no_other(fake_cli, session, number):
    fake_cli.then("init(); say('ready'); time.sleep(60)")

    def interrupt(line: str) -> None:
        if "ready" in line:
            os.kill(os.getpid(), number)

    cycle = run_to_end(session.cycle, interrupt)

    session.refresh_from_db()
    assert session.status == Session.Status.INTERRUPTED
    assert signal.Signals(number).name in session.error
    assert (cycle.outcome, cycle.sessions.count()) == (Cycle.Outcome.NEEDS_PERSON, 1)


def test_the_signal_handlers_are_restored():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    with stop_on_signals(Session.StopCause.FOREGROUND, "in a test") as asked_to_stop:
        assert asked_to_stop() is None

    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
