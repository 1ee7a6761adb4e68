"""REQ-4: the runs of a cycle are linked, both ways."""

from __future__ import annotations

from sessions_app.models import Session
from sessions_app.reading.chain import chain_of


def test_req4_resumed_session_references_its_parent(play_drill):
    drill = play_drill("fixed-at-tier-2")

    first, second = drill.sessions
    assert second.parent_session_id == first.pk
    assert second.session_id == second.events.get(kind="system/init").payload["session_id"]
    assert second.continued_by == Session.ContinuedBy.RESUME


def test_req4_three_tier_chain_is_fully_linked_from_any_of_its_sessions(play_drill):
    drill = play_drill("three-tiers")

    expected = [session.pk for session in drill.sessions]
    for session in drill.sessions:
        assert [member.pk for member in chain_of(session).sessions] == expected
