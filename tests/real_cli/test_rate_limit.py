"""The real CLI meets the rate limit: the session waits and continues its own conversation."""

from __future__ import annotations

from datetime import timedelta

import pytest
import time_machine
from django.utils import timezone

from escalation.drills.scenario import Reply, ScriptedToolCall
from escalation.run.runner import run_to_end
from sessions_app.models import Cycle, RateLimit, Session
from tests.real_cli.conftest import report_call
from tests.real_cli.playing import conversation_text

LOOKS = Reply(say="I look.", calls=(ScriptedToolCall(tool="Bash", input={"command": "uptime"}),))
WELL = Reply(say="Fine.", calls=(report_call(),))


def hand_over(cycle: Cycle, minutes: int) -> Cycle:
    """Do what the worker does after the rate limit has passed."""
    with time_machine.travel(timezone.now() + timedelta(minutes=minutes), tick=True):
        return run_to_end(cycle, lambda line: None)


# 2.0.77 asks again by itself, whatever the API says, and is not cut by a single refusal.
@pytest.mark.parametrize("cli_version", ["2.1.197", "bundled"], indirect=True)
@pytest.mark.parametrize("login", ["ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"])
def test_an_interrupted_session_resumes_its_own_conversation(
    scripted_api, watch_cycle, cli_version, monkeypatch, settings, login
):
    api = scripted_api(LOOKS, Reply(limit=1800), WELL)
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    monkeypatch.setenv(login, "test-key")
    settings.CLAUDEOPS_PASS_ENV = (login,)

    cycle = watch_cycle.run()
    first = cycle.sessions.order_by("pk")[0]
    assert (first.status, first.stop_cause) == ("interrupted", "rate_limit")
    clock = RateLimit.current()
    assert clock.until is not None
    assert timedelta(minutes=29) < clock.until - timezone.now() <= timedelta(minutes=30, seconds=1)

    cycle = hand_over(cycle, minutes=31)

    second = cycle.sessions.order_by("pk")[1]
    assert cycle.outcome == Cycle.Outcome.HEALTHY
    assert (second.continued_by, second.purpose) == (Session.ContinuedBy.RESUME, "recovery")
    assert "I look." in conversation_text(api.requests[-1].body)


def test_the_drill_meets_the_rate_limit_once_and_completes(play_drill):
    drill = play_drill("limit-reached")

    assert [session.stop_cause for session in drill.sessions] == ["rate_limit", ""]
    assert drill.sessions[1].continued_by == Session.ContinuedBy.RESUME
    assert drill.cycle.outcome == Cycle.Outcome.HEALTHY
    assert not RateLimit.objects.exists()
