"""Budgets with the real CLI: the rest is passed on; a spent one stops a run and a chain."""

from __future__ import annotations

from decimal import Decimal

import pytest

from escalation.drills.scenario import Reply, ScriptedToolCall
from escalation.errors import RefusalCode
from escalation.run import runner
from sessions_app.models import BudgetNotice, Cycle, Notification, Session
from tests.escalation.refusals import refused
from tests.factories import SessionFactory
from tests.real_cli.conftest import report_call
from tests.real_cli.playing import play

LOOK = Reply(calls=(ScriptedToolCall(tool="Bash", input={"command": "ls"}),))


def budget_in(session: Session) -> Decimal:
    return Decimal(session.argv[session.argv.index("--max-budget-usd") + 1])


@pytest.mark.usefixtures("db")
def test_the_drill_budget_reached_stops_tier_2_with_what_tier_1_left(settings):
    settings.CLAUDEOPS_BUDGET_DAY = Decimal(0)

    drill = play("budget-reached")

    first, second = drill.of_tier(1), drill.of_tier(2)
    assert first.status == Session.Status.ESCALATED
    assert budget_in(first) == Decimal("0.03")
    assert budget_in(second) == Decimal("0.03") - (first.cost_usd or 0)
    assert (second.status, second.stop_cause) == (Session.Status.FAILED, "budget")
    assert drill.cycle.outcome == Cycle.Outcome.NEEDS_PERSON
    assert "budget" in drill.cycle.outcome_reason
    assert drill.state_of("web").startswith("Exited")
    assert not Notification.objects.exists()


def test_a_run_is_stopped_between_two_requests_when_others_have_spent_the_day(
    scripted_api, watch_cycle, settings, monkeypatch
):
    """The CLI itself knows nothing of it: its own limit is far away."""
    monkeypatch.setattr(runner, "BEAT_SECONDS", 0.0)
    settings.CLAUDEOPS_BUDGET_DAY = Decimal(1)
    other = SessionFactory(running=True, cost_usd=None, max_budget_usd="0.10")

    waits = Reply(calls=(ScriptedToolCall(tool="Bash", input={"command": "sleep 0.5"}),))
    api = scripted_api(waits, waits, Reply(calls=(report_call(),)))

    def others_spend(line: str) -> None:
        if "sleep" in line:
            Session.objects.filter(pk=other.pk).update(spent_so_far_usd="1.02")

    cycle = watch_cycle.run(listener=others_spend)

    session = cycle.sessions.get()
    assert (session.status, session.stop_cause) == (Session.Status.FAILED, "budget")
    assert "for today is spent" in session.error
    assert len([request for request in api.requests if request.main]) < 3
    assert cycle.outcome == Cycle.Outcome.NEEDS_PERSON
    assert BudgetNotice.objects.filter(budget="day", percent=100).count() == 1


def test_budget_of_0_starts_nothing(scripted_api, watch_cycle, settings):
    settings.CLAUDEOPS_BUDGET_MONTH = Decimal(0)
    api = scripted_api(LOOK)

    with refused(RefusalCode.BUDGET, match="CLAUDEOPS_BUDGET_MONTH"):
        watch_cycle.run()

    assert (api.requests, Cycle.objects.count()) == ([], 0)
