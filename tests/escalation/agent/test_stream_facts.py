"""Facts from a stream: id, model, tokens, context and cost."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from escalation.agent.stream import StreamFacts, Tokens, to_cost
from tests.tables import each_row

LARGEST_IN_DATABASE = 2**63 - 1
ODD_VALUES = [None, True, False, -1, 1.5, "7", "", [], {}, [1], {"a": 1}, 10**30, float("inf")]


def facts_of(*lines: dict[str, Any]) -> StreamFacts:
    facts = StreamFacts()
    for line in lines:
        facts.observe(line)
    return facts


def init(session_id="sess_1", model="claude-haiku", **fields) -> dict[str, Any]:
    line = {"type": "system", "subtype": "init", "session_id": session_id, "model": model}
    return {**line, **fields}


def answer(usage=None, *, model="claude-haiku", parent=None, id="msg_1") -> dict[str, Any]:
    message = {"id": id, "model": model, "usage": usage or {}}
    return {"type": "assistant", "parent_tool_use_id": parent, "message": message}


def result(**fields) -> dict[str, Any]:
    return {"type": "result", "subtype": "success", "is_error": False, **fields}


def usage(input=0, output=0, cache_read=0, cache_creation=0) -> dict[str, Any]:
    return {
        "input_tokens": input,
        "output_tokens": output,
        "cache_read_input_tokens": cache_read,
        "cache_creation_input_tokens": cache_creation,
    }


def share(cost, tokens=0) -> dict[str, Any]:
    return {"costUSD": cost, "inputTokens": tokens, "outputTokens": tokens}


def stated_cost(facts: StreamFacts) -> Decimal:
    assert facts.own_share is not None
    return facts.own_share.cost_usd


def test_nothing_is_known_before_the_first_line():
    facts = StreamFacts()

    assert (facts.session_id, facts.answered, facts.result) == ("", False, {})
    assert (facts.own_share, facts.own_tokens, facts.turns) == (None, Tokens(), 0)


def test_req1_the_session_id_comes_from_the_init_line():
    assert facts_of(init("sess_abc123")).session_id == "sess_abc123"


def test_the_last_of_several_init_lines_counts():
    facts = facts_of(init("sess_1", "haiku"), init("sess_2", "sonnet"))

    assert (facts.session_id, facts.model) == ("sess_2", "sonnet")


def test_an_init_line_without_an_id_keeps_the_known_one():
    facts = facts_of(init("sess_1", "haiku"), init(None, None))

    assert (facts.session_id, facts.model) == ("sess_1", "haiku")


def test_req1_a_good_result_line_gives_the_id_when_there_was_no_init():
    assert facts_of(result(session_id="sess_1")).session_id == "sess_1"


@pytest.mark.parametrize("is_error", [True, None, "no", 0])
def test_the_id_in_an_error_result_is_ignored(is_error):
    dead = {"type": "result", "is_error": is_error, "session_id": "sess_dead"}

    assert facts_of(dead).session_id == ""


def test_an_assistant_line_is_an_answer():
    assert facts_of(init(), answer()).answered


@pytest.mark.parametrize("line", [init(), result(), answer(model="<synthetic>"), {"type": "user"}])
def test_other_lines_are_no_answer(line):
    assert not facts_of(line).answered


def test_the_context_is_that_of_the_last_main_answer():
    facts = facts_of(
        answer(usage(input=10, output=1)),
        answer(usage(input=20, output=2, cache_read=300, cache_creation=4000), id="msg_2"),
    )

    assert facts.context_tokens == 4322


def test_a_subagent_does_not_change_the_context():
    facts = facts_of(answer(usage(input=10)), answer(usage(input=9999), parent="toolu_1"))

    assert facts.context_tokens == 10


def test_a_synthetic_answer_does_not_change_the_context():
    facts = facts_of(answer(usage(input=10)), answer(usage(input=0), model="<synthetic>"))

    assert facts.context_tokens == 10


def test_the_usage_of_a_message_with_several_blocks_counts_once():
    block = answer(usage(input=100, output=1))
    facts = facts_of(block, block, block, result(usage=usage(input=100, output=20)))

    assert facts.context_tokens == 101
    assert facts.own_tokens == Tokens(input=100, output=20)


def test_turns_are_summed_over_the_result_lines_and_the_last_one_is_the_result():
    facts = facts_of(result(num_turns=2, result="first"), result(num_turns=3, result="second"))

    assert (facts.turns, facts.result_text) == (5, "second")


@each_row(
    ("printed", "stored"),
    [
        ("0.018000000000000002", "0.0180000000"),
        ("0.1", "0.1000000000"),
        ("0", "0E-10"),
        ("0.30000000000000004", "0.3000000000"),
        ("1e-7", "1.000E-7"),
        ("2", "2.0000000000"),
        ("123456.789", "123456.7890000000"),
    ],
)
def test_a_printed_cost_is_stored_exactly(printed, stored):
    assert to_cost(json.loads(printed)) == Decimal(stored)


@each_row("value", [None, True, "0.1", [], {}, -0.1, 1e9, 1e30, 1e308, float("inf"), 10**40])
def test_an_invalid_cost_is_none(value):
    assert to_cost(value) is None


def test_req5_an_old_cli_states_the_cost_of_the_run_itself():
    facts = facts_of(result(total_cost_usd=0.018000000000000002))

    assert facts.own_share is None
    assert facts.reported_cost_usd == Decimal("0.018")


def test_req5_a_new_cli_states_the_share_of_this_run_beside_the_total():
    facts = facts_of(
        result(
            total_cost_usd=0.5,
            model_usage_since_last_result={"sonnet": share(0.46, 7), "haiku": share(0.01, 1)},
        )
    )

    assert stated_cost(facts) == Decimal("0.47")
    assert facts.reported_cost_usd == Decimal("0.5")
    assert facts.own_tokens == Tokens(input=8, output=8)


def test_req5_the_shares_of_several_result_lines_are_summed():
    facts = facts_of(
        result(total_cost_usd=0.1, model_usage_since_last_result={"sonnet": share(0.1, 1)}),
        result(total_cost_usd=0.3, model_usage_since_last_result={"sonnet": share(0.2, 2)}),
    )

    assert stated_cost(facts) == Decimal("0.3")
    assert facts.own_tokens.input == 3


def test_all_kinds_of_tokens_are_read_from_a_share():
    spent = {"inputTokens": 1, "outputTokens": 2, "cacheReadInputTokens": 3}
    facts = facts_of(
        result(model_usage_since_last_result={"m": {**spent, "cacheCreationInputTokens": 4}})
    )

    assert facts.own_tokens == Tokens(input=1, output=2, cache_read=3, cache_creation=4)


def test_an_empty_share_is_a_run_that_cost_nothing():
    facts = facts_of(result(total_cost_usd=0.3, model_usage_since_last_result={}))

    assert stated_cost(facts) == 0


def test_the_window_is_that_of_the_model_that_ran():
    windows = {"claude-haiku": {"contextWindow": 200_000}, "other": {"contextWindow": 5}}

    assert facts_of(init(), result(modelUsage=windows)).context_window == 200_000


def test_an_unknown_window_is_zero():
    assert facts_of(init(), result()).context_window == 0


@each_row("odd", ODD_VALUES, ids=repr)
def test_malformed_values_never_raise_and_fit_the_database(odd):
    facts = facts_of(
        init(session_id=odd, model=odd),
        {"type": odd, "subtype": odd},
        {"type": "assistant", "message": odd, "parent_tool_use_id": odd},
        answer(usage(odd, odd, odd, odd), model=odd),
        {"type": "assistant", "message": {"usage": odd}},
        result(model_usage_since_last_result={"m": odd, "n": share(odd, odd)}, num_turns=odd),
        result(
            session_id=odd,
            num_turns=odd,
            total_cost_usd=odd,
            usage=odd,
            result=odd,
            modelUsage={"claude-haiku": odd},
            model_usage_since_last_result={"m": odd, "n": share(odd, odd)},
        ),
    )

    numbers = [facts.turns, facts.context_tokens, facts.context_window]
    tokens = facts.own_tokens
    numbers += [tokens.input, tokens.output, tokens.cache_read, tokens.cache_creation]
    assert all(0 <= number <= LARGEST_IN_DATABASE for number in numbers)
    assert isinstance(facts.session_id + facts.model + facts.result_text, str)


@pytest.mark.parametrize("huge", [2**62, 10**30])
def test_sums_of_huge_counts_still_fit_the_database(huge):
    facts = facts_of(
        answer(usage(huge, huge, huge, huge)),
        result(num_turns=huge, model_usage_since_last_result={"m": share(0, huge)}),
        result(num_turns=huge, model_usage_since_last_result={"m": share(0, huge)}),
    )

    numbers = [facts.context_tokens, facts.turns, facts.own_tokens.input]
    assert max(numbers) <= LARGEST_IN_DATABASE


@each_row("odd", [value for value in ODD_VALUES if not isinstance(value, dict)])
def test_a_malformed_share_falls_back_to_the_reported_cost(odd):
    facts = facts_of(result(total_cost_usd=0.2, usage=usage(5), model_usage_since_last_result=odd))

    assert facts.own_share is None
    assert (facts.reported_cost_usd, facts.own_tokens.input) == (Decimal("0.2"), 5)


def test_a_tool_result_after_a_stop_counts_as_interrupted():
    """Asked to end, the CLI reports the end of its tool as the tool's own."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}
    ended = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "Exit code 143"}
    facts = facts_of({"type": "assistant", "message": {"id": "m", "content": [call]}})

    facts.note_stop()
    facts.observe({"type": "user", "message": {"content": [ended]}})

    assert (facts.open_tools, facts.cut_tools) == (set(), {"toolu_1"})
