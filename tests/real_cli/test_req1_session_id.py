"""REQ-1: the session id of every run is captured and stored."""

from __future__ import annotations

import json

from sessions_app.models import Session


def test_req1_session_id_captured_from_successful_tier_1_invocation(play_drill):
    drill = play_drill("all-healthy")

    session = drill.of_tier(1)
    stated = session.events.get(kind="system/init").payload["session_id"]
    seen_by_api = json.loads(drill.first_request_of_tier(1)["metadata"]["user_id"])["session_id"]
    assert session.session_id == stated == seen_by_api


def test_req1_session_id_stored_in_database_and_queryable(play_drill):
    drill = play_drill("all-healthy")

    found = Session.objects.get(session_id=drill.of_tier(1).session_id)
    assert (found.tier, found.model, found.status) == (1, "haiku", Session.Status.COMPLETED)


def test_req1_session_id_is_stored_before_the_process_starts(play_drill, monkeypatch):
    stored_at_start = []

    def note_what_is_stored(argv, **options):
        stored_at_start.append(Session.objects.get(session_id=argv[argv.index("--session-id") + 1]))
        raise OSError("not started")

    monkeypatch.setattr("escalation.run.runner.run_process", note_what_is_stored)

    play_drill("all-healthy")

    assert stored_at_start[0].argv[1] == "-p"


def test_req1_each_tier_has_an_id_of_its_own(play_drill):
    drill = play_drill("three-tiers")

    assert len({session.session_id for session in drill.sessions}) == 3
