"""Refusals of the API end in a clear status with advice."""

from __future__ import annotations

import pytest

from escalation.drills.scenario import Reply
from sessions_app.models import Cycle, Session
from tests.real_cli.conftest import report_call


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (401, "Check ANTHROPIC_API_KEY"),
        (500, "failed with status 500"),
        (529, "overloaded"),
    ],
)
def test_api_failure_ends_the_cycle_with_advice(scripted_api, watch_cycle, status, advice):
    scripted_api(Reply(error=status, times=20))

    cycle = watch_cycle.run()

    session = cycle.sessions.get()
    assert session.status == Session.Status.FAILED
    assert advice in session.error
    assert cycle.outcome == Cycle.Outcome.COULD_NOT_RUN


def test_passing_failure_of_the_api_is_retried_by_the_cli(scripted_api, watch_cycle):
    scripted_api(Reply(error=529), *watch_cycle.healthy)

    cycle = watch_cycle.run()

    assert cycle.outcome == Cycle.Outcome.HEALTHY
    assert cycle.sessions.get().events.filter(kind="system/api_retry").exists()


def test_api_that_cannot_be_reached_is_named(watch_cycle, monkeypatch, settings):
    settings.CLAUDEOPS_API_RETRIES = 0
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")

    cycle = watch_cycle.run()

    assert "cannot be reached" in cycle.outcome_reason


def test_field_that_the_api_proxy_does_not_know_fails_the_run_and_is_named(
    scripted_api, watch_cycle, monkeypatch, settings
):
    api = scripted_api(*watch_cycle.healthy)
    settings.CLAUDEOPS_PASS_ENV = ("CLAUDE_CODE_EXTRA_BODY",)
    monkeypatch.setenv("CLAUDE_CODE_EXTRA_BODY", '{"inference_geo": "us"}')

    session = watch_cycle.run().sessions.get()

    assert session.status == Session.Status.FAILED
    assert "inference_geo" in session.error
    assert api.requests == []


def test_a_tier_that_fails_after_an_escalation_needs_a_person(scripted_api, watch_cycle):
    escalating = Reply(calls=(report_call(status="down", escalate="needs a restart"),))
    scripted_api(escalating, Reply(error=403, times=20))

    cycle = watch_cycle.run()

    assert cycle.outcome == Cycle.Outcome.NEEDS_PERSON
    assert cycle.outcome_reason.startswith("Tier 2 failed after Tier 1 had asked for it")
    assert [session.status for session in cycle.sessions.order_by("pk")] == ["escalated", "failed"]
