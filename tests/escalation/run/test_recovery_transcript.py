"""Recovery reads what the transcript holds beyond the stored events, with its cost."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from escalation.agent.binary import find_binary
from escalation.agent.capabilities import known_capabilities
from escalation.resume.transcripts import own_and_unheard
from escalation.run import recorder
from sessions_app.models import Conversation, Session, SessionEvent
from tests.escalation.recovery_cases import (
    Handed,
    answer,
    heard,
    orphan,
    prompt,
    recovered,
    tool_call,
    tool_result,
    uuids,
    write_transcript,
)
from tests.escalation.runs import change
from tests.factories import SessionFactory

pytestmark = pytest.mark.django_db

Basis = Session.CostBasis
RESULT = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "total_cost_usd": 0.25,
    "num_turns": 2,
    "usage": {"input_tokens": 900, "output_tokens": 90},
}


def cost_state(total: float) -> dict[str, object]:
    return {"type": "cost-state", "totalCostUSD": total}


def continuing(directory: Path, *, before: Decimal | None) -> Session:
    """A Tier 2 run that resumed its parent's conversation, which had cost so much until then."""
    parent = SessionFactory(escalated=True)
    facts: dict[str, Any] = {
        "tier": 2,
        "continued_by": "resume",
        "baseline_cost_usd": before,
    }
    return orphan(directory, parent_session=parent, **facts)


def test_messages_after_the_last_stored_event_are_imported(tmp_path):
    session = orphan(tmp_path)
    heard(session, answer("a"))
    write_transcript(session, answer("a"), tool_call("b"), tool_result("c"))

    recovered(session)

    assert uuids(session) == ["a", "b", "c"]


def test_event_from_the_transcript_is_marked(tmp_path):
    session = orphan(tmp_path)
    write_transcript(session, answer("a"))

    recovered(session)

    event = session.events.get(kind="assistant")
    assert event.payload["read_from"] == "transcript"
    assert event.source == SessionEvent.Source.STREAM


def test_imported_events_continue_the_numbers(tmp_path):
    session = orphan(tmp_path)
    heard(session, answer("a"))
    write_transcript(session, answer("a"), answer("b"), answer("c"))

    recovered(session)

    numbers = list(session.events.order_by("sequence").values_list("sequence", flat=True))
    assert numbers == list(range(1, len(numbers) + 1))


def test_copied_messages_of_the_parent_are_not_imported(tmp_path):
    session = orphan(tmp_path, tier=2)
    write_transcript(session, answer("of the parent", seconds=-600), answer("own"))

    recovered(session)

    assert uuids(session) == ["own"]


def test_prompt_in_the_transcript_is_no_event(tmp_path):
    session = orphan(tmp_path)
    heard(session, answer("a"))
    write_transcript(session, prompt("the prompt"), answer("a"))

    recovered(session)

    assert uuids(session) == ["a"]


def test_entries_added_by_the_cli_are_left_out(tmp_path):
    session = orphan(tmp_path)
    write_transcript(session, answer("by itself", model="<synthetic>"))

    recovered(session)

    assert uuids(session) == []


@pytest.mark.parametrize(
    "rest", ['{"type": "assistant", "uuid": "h', "not json\n", "\x00\x00\n", "[1]\n", "\n\n"]
)
def test_an_invalid_line_loses_only_itself(tmp_path, rest):
    session = orphan(tmp_path)
    write_transcript(session, answer("a"), rest=rest)

    recovered(session)

    assert uuids(session) == ["a"]


@pytest.mark.parametrize(
    "odd",
    [
        {"message": None},
        {"message": "text"},
        {"timestamp": None},
        {"timestamp": 5},
        {"message": {"content": [None, 5, "x"]}},
    ],
)
def test_malformed_entries_do_not_prevent_recovery(tmp_path, odd):
    session = orphan(tmp_path)
    write_transcript(session, {**answer("odd"), **odd}, answer("a"))

    after, _done = recovered(session)

    assert after.status == Session.Status.INTERRUPTED
    assert "a" in uuids(session)


def test_a_missing_transcript_does_not_prevent_recovery(tmp_path):
    after, _done = recovered(orphan(tmp_path))

    assert after.status == Session.Status.INTERRUPTED


def test_importing_twice_stores_nothing_twice(tmp_path):
    session = orphan(tmp_path)
    write_transcript(session, answer("a"), answer("b"))

    recovered(session)

    assert own_and_unheard(session)[1] == []
    assert uuids(session) == ["a", "b"]


def test_a_tool_call_that_is_only_in_the_transcript_counts_as_running(tmp_path):
    session, handed = orphan(tmp_path, tier=2), Handed()
    write_transcript(session, tool_call("a"))

    recovered(session, handed)

    assert handed.sessions == []


def test_a_tool_result_that_is_only_in_the_transcript_counts(tmp_path):
    session, handed = orphan(tmp_path, tier=2), Handed()
    heard(session, tool_call("a"))
    write_transcript(session, tool_call("a"), tool_result("b"))

    recovered(session, handed)

    assert len(handed.sessions) == 1


def test_text_that_the_database_refuses_is_cleaned_and_stored(tmp_path):
    session = orphan(tmp_path)
    write_transcript(session, answer("a", {"type": "text", "text": "nul \x00, half \ud83d"}))

    recovered(session)

    assert uuids(session) == ["a"]


def test_a_leftover_spool_is_imported_before_the_transcript(tmp_path):
    session = orphan(tmp_path)
    kept = SessionEvent(
        session=session, sequence=2, source="stream", kind="assistant", payload=answer("spooled")
    )
    recorder.write_spool(session, [kept])
    write_transcript(session, answer("spooled"), answer("beyond"))

    recovered(session)

    assert uuids(session) == ["spooled", "beyond"]
    assert not recorder.spool_path(session).exists()


def test_a_stored_result_line_gives_the_cost(tmp_path):
    session = orphan(tmp_path)
    heard(session, answer("a"), RESULT)

    after, _done = recovered(session)

    assert (after.cost_usd, after.cost_basis) == (Decimal("0.25"), Basis.PER_RUN)
    assert (after.input_tokens, after.output_tokens) == (900, 90)


def test_total_in_the_transcript_gives_the_cost_without_a_result(tmp_path):
    session = orphan(tmp_path)
    write_transcript(session, answer("a"), cost_state(0.1), cost_state(0.4))

    after, _done = recovered(session)

    assert (after.cost_usd, after.cost_basis) == (Decimal("0.4"), Basis.DIFFERENCE)


def test_the_cost_of_a_continued_conversation_is_the_difference(tmp_path):
    session = continuing(tmp_path, before=Decimal("0.3"))
    write_transcript(session, answer("a"), cost_state(0.5))

    after, _done = recovered(session)

    assert after.cost_usd == Decimal("0.2")
    assert after.baseline_cost_usd == Decimal("0.3")


def test_total_from_before_the_session_gives_no_cost(tmp_path):
    session = continuing(tmp_path, before=Decimal("0.3"))
    write_transcript(session, answer("a"), cost_state(0.1))

    after, _done = recovered(session)

    assert (after.cost_usd, after.cost_basis) == (None, Basis.UNKNOWN)


def test_a_total_without_a_known_baseline_gives_no_cost(tmp_path):
    session = continuing(tmp_path, before=None)
    write_transcript(session, answer("a"), cost_state(0.5))

    after, _done = recovered(session)

    assert after.cost_usd is None


def test_without_a_figure_the_stream_gives_an_estimate(tmp_path):
    SessionFactory(model="haiku", cost_usd=Decimal("1"), input_tokens=1000, output_tokens=0)
    session = orphan(tmp_path)
    heard(session, answer("a"))

    after, _done = recovered(session)

    assert (after.cost_usd, after.cost_basis) == (None, Basis.ESTIMATE)
    assert after.estimated_cost_usd == Decimal("0.15")
    assert known_capabilities(find_binary()) is None  # no probe for an estimate


def test_req5_a_session_whose_process_was_not_started_cost_nothing(tmp_path):
    after, _done = recovered(orphan(tmp_path))

    assert (after.cost_usd, after.cost_basis) == (Decimal(0), Basis.MEASURED)


def test_tokens_of_imported_messages_are_counted(tmp_path):
    session = orphan(tmp_path)
    heard(session, answer("a"))
    write_transcript(session, answer("a"), answer("b"))

    after, _done = recovered(session)

    assert (after.input_tokens, after.output_tokens) == (200, 20)


def test_an_interrupted_answer_counts_with_its_final_tokens(tmp_path):
    """The stream states usage when a message begins, the transcript when it has ended."""
    session = orphan(tmp_path)
    begun = answer("a", usage={"input_tokens": 100, "output_tokens": 1})
    heard(session, begun)
    write_transcript(session, answer("a", usage={"input_tokens": 100, "output_tokens": 92}))

    after, _done = recovered(session)

    assert (after.input_tokens, after.output_tokens) == (100, 92)


def test_transcript_without_calls_of_the_stream_is_not_resumed(tmp_path):
    """A CLI that was killed has not written its last words down; who resumes would not know."""
    session = orphan(tmp_path)
    heard(session, answer("a"), tool_call("b"), tool_result("c"))
    write_transcript(session, answer("a"))

    recovered(session)

    conversation = Conversation.objects.get(session_id=session.session_id)
    assert conversation.state == Conversation.State.RETIRED
    assert "incomplete" in conversation.reason


def test_complete_transcript_is_resumed(tmp_path):
    session = orphan(tmp_path)
    heard(session, answer("a"), tool_call("b"), tool_result("c"))
    write_transcript(session, answer("a"), tool_call("b"), tool_result("c"))

    recovered(session)

    states = Conversation.objects.filter(session_id=session.session_id)
    assert not states.filter(state=Conversation.State.RETIRED).exists()


def test_fork_without_calls_of_its_parent_is_not_resumed(tmp_path):
    """On a full disk the copy that a fork begins with may have holes."""
    session = continuing(tmp_path, before=Decimal(0))
    parent = session.parent_session
    assert parent is not None
    change(parent, workdir=session.workdir, config_dir=session.config_dir)
    write_transcript(Session.objects.get(pk=parent.pk), tool_call("a"), tool_result("b"))
    write_transcript(session, answer("c"))

    recovered(session)

    conversation = Conversation.objects.get(session_id=session.session_id)
    assert conversation.state == Conversation.State.RETIRED
