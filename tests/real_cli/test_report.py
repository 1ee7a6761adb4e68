"""A tier that ends without its report is asked once more in the same conversation."""

from __future__ import annotations

from sessions_app.models import Cycle, Session
from tests.real_cli.playing import conversation_text

# The CLI itself nudges once for the report, so it takes two refusals to end without one.
SILENT = """
title = "Silent"
[[tier.1]]
say = "I looked at the lamp."
run = "echo the lamp is green"
[[tier.1]]
say = "I will not report."
[[tier.1]]
say = "I still will not."
"""


def test_run_without_report_is_asked_again_in_the_same_conversation(play_drill, write_scenario):
    # Each run reads the tier's script from the start: the second one sees the prompt for a report.
    write_scenario("silent", SILENT)

    drill = play_drill("silent")

    asked, again = drill.sessions
    assert again.purpose == Session.Purpose.REPORT
    assert again.parent_session_id == asked.pk
    requests = [entry["body"] for entry in drill.requests if entry["run"] == str(again.pk)]
    assert "the lamp is green" in conversation_text(requests[0])
    assert "ended without the structured report" in conversation_text(requests[0])


def test_cycle_without_any_report_needs_a_person_and_is_never_healthy(play_drill, write_scenario):
    write_scenario("silent", SILENT)

    drill = play_drill("silent")

    assert drill.cycle.outcome == Cycle.Outcome.NEEDS_PERSON
    assert "even when asked again" in drill.cycle.outcome_reason
    assert len(drill.sessions) == 2


def test_report_given_on_the_second_request_decides_the_cycle(scripted_api, watch_cycle):
    api = scripted_api(*watch_cycle.silent_then_report)

    cycle = watch_cycle.run()

    assert cycle.outcome == Cycle.Outcome.HEALTHY
    assert [session.purpose for session in cycle.sessions.order_by("pk")] == ["tier", "report"]
    assert len(api.requests) == 3
