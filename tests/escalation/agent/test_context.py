"""Use of the context window by a transcript, and default windows of models."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from escalation.agent.stream import default_window, occupancy_of
from tests.tables import each_row

OLD, NEW = "2.1.197 (Claude Code)", "2.1.325 (Claude Code)"


def answer(
    number: str = "msg_1", *, output: int = 1, read: int = 0, **entry: Any
) -> dict[str, Any]:
    usage = {
        "input_tokens": 1000,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": 30,
        "output_tokens": output,
    }
    message = {"id": number, "model": "claude-haiku-5-5", "usage": usage}
    return {"type": "assistant", "uuid": f"uuid-of-{number}", "message": message, **entry}


def test_the_context_is_the_input_and_output_of_the_last_answer():
    entries = [answer("msg_1", read=90_000, output=7), answer("msg_2", read=200, output=4000)]

    assert occupancy_of(entries) == 1000 + 200 + 30 + 4000


def test_of_the_blocks_of_one_answer_the_largest_output_counts():
    entries = [answer(output=1), answer(output=500), answer(output=1)]

    assert occupancy_of(entries) == 1530


def test_an_answer_of_a_subagent_does_not_count():
    assert occupancy_of([answer(output=5), answer("msg_2", output=9, isSidechain=True)]) == 1035


def test_a_synthetic_entry_does_not_count():
    own = answer("msg_2", output=0)
    own["message"]["model"] = "<synthetic>"

    assert occupancy_of([answer(output=5), own]) == 1035


def test_entries_after_the_last_answer_do_not_count():
    after: list[dict[str, Any]] = [
        {"type": "user", "message": {"content": "Go on."}},
        {"type": "cost-state"},
    ]

    assert occupancy_of([answer(output=5), *after]) == 1035


def test_a_conversation_without_an_answer_has_no_known_context():
    assert occupancy_of([{"type": "user", "message": {"content": "Look."}}]) == 0


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda children: st.dictionaries(
        st.sampled_from(["type", "message", "id", "usage", "input_tokens", "model"]), children
    ),
    max_leaves=8,
)


@given(st.lists(st.fixed_dictionaries({"type": st.just("assistant"), "message": ANYTHING})))
@hypothesis_settings(database=None, deadline=None)
def test_any_transcript_gives_a_number_that_can_be_stored(entries):
    assert 0 <= occupancy_of(entries) < 2**63


@each_row(
    ("model", "version", "window"),
    [
        ("haiku", OLD, 200_000),
        ("haiku", "2.0.77 (Claude Code)", 200_000),
        ("haiku", "2.1.324 (Claude Code)", 200_000),
        ("haiku", NEW, 1_000_000),
        ("sonnet", NEW, 1_000_000),
        ("opus", NEW, 1_000_000),
        ("claude-sonnet-5-5", NEW, 1_000_000),
        ("opus", "2.2.0 (Claude Code)", 1_000_000),
        ("opus", "10.0.0", 1_000_000),
        ("claude-3-5-haiku", NEW, 200_000),
        ("haiku", "", 200_000),
        ("haiku", "not a version", 200_000),
    ],
)
def test_the_default_window_depends_on_the_model_and_the_cli(model, version, window):
    assert default_window(model, version) == window
