"""Duplicate work: calls of a session that an earlier one had already made."""

from __future__ import annotations

from decimal import Decimal

import pytest

from escalation.web.resume_comparison import RepeatedWork, measure
from sessions_app.history.chain import chain_of
from tests.factories import SessionFactory, three_tier_chain
from tests.sessions_app.tool_events import call, said, store, store_commands

pytestmark = pytest.mark.django_db


@pytest.fixture
def pair():
    first = SessionFactory(escalated=True)
    return first, SessionFactory(tier=2, parent_session=first, cost_usd=Decimal("0.40"))


def meter(session) -> RepeatedWork:
    return measure(chain_of(session).sessions)[session.pk]


def test_a_call_of_the_parent_counts_as_repeated(pair):
    first, second = pair
    store_commands(first, "df -h", "uptime")
    store_commands(second, "df  -h", "systemctl restart web")

    assert (meter(second).repeated, meter(second).calls) == (1, 2)
    assert meter(second).share == Decimal("0.5")


def test_a_call_of_any_earlier_tier_counts_as_repeated():
    first, _second, third = three_tier_chain()
    store_commands(first, "df -h")
    store_commands(third, "df -h")

    assert meter(third).repeated == 1


def test_the_same_input_to_another_tool_is_not_repeated(pair):
    first, second = pair
    store(first, call({"path": "/a"}, name="Read"))
    store(second, call({"path": "/a"}, name="Glob"))

    assert meter(second).repeated == 0


def test_a_call_of_a_sibling_is_not_repeated(pair):
    first, second = pair
    beside = SessionFactory(tier=2, parent_session=first, purpose="fork")
    store_commands(beside, "df -h")
    store_commands(second, "df -h")

    assert meter(second).repeated == 0


def test_a_call_repeated_within_one_session_does_not_count(pair):
    store_commands(pair[0], "df -h", "df -h")

    assert meter(pair[0]).repeated == 0


def test_a_call_that_was_denied_before_is_not_repeated(pair):
    first, second = pair
    denial = {"tool_name": "Bash", "tool_input": {"command": "docker restart web"}}
    store_commands(first, "docker restart web")
    store(first, {"type": "result", "permission_denials": [denial]})
    store_commands(second, "docker restart web")

    assert meter(second).repeated == 0


def test_the_cost_is_the_share_of_answers_that_only_repeat(pair):
    first, second = pair
    store_commands(first, "df -h", "uptime")
    store_commands(second, "df -h", "uptime", "systemctl restart web")
    store(second, said("It answers again.", message="m9"))

    assert meter(second).cost_usd == Decimal("0.20")


def test_an_answer_that_also_does_something_new_is_not_repeated_work(pair):
    first, second = pair
    store_commands(first, "df -h")
    store(second, call("df -h", call_id="a"), call("uptime", call_id="b"))

    assert meter(second).repeated == 1
    assert meter(second).cost_usd == 0


def test_the_answer_with_the_report_is_not_repeated_work(pair):
    first, second = pair
    store_commands(first, "df -h")
    store(second, call("df -h"), call({"summary": "ok"}, call_id="r", name="StructuredOutput"))

    assert meter(second).cost_usd == 0


def test_without_repeated_calls_the_cost_is_zero(pair):
    store_commands(pair[1], "df -h")

    assert meter(pair[1]).cost_usd == 0


def test_the_cost_is_unknown_when_the_cost_of_the_session_is(pair):
    first, second = pair
    second.cost_usd = None
    second.save()
    store_commands(first, "df -h")
    store_commands(second, "df -h")

    assert (meter(second).repeated, meter(second).cost_usd) == (1, None)


def test_the_cost_is_unknown_when_no_answer_has_an_id(pair):
    first, second = pair
    store_commands(first, "df -h")
    store(second, call("df -h", message=""))

    assert (meter(second).repeated, meter(second).cost_usd) == (1, None)


@pytest.mark.parametrize("position", [0, 1])
def test_a_session_without_its_expected_events_is_not_measured(position):
    pair = SessionFactory(turns=4), None
    second = SessionFactory(tier=2, parent_session=pair[0], turns=4)
    store_commands((pair[0], second)[position], "df -h")

    assert not meter(second).is_measured
    assert meter(second).share is None


def test_a_parent_without_answers_is_measured_as_no_work(pair):
    store_commands(pair[1], "df -h")

    assert (meter(pair[1]).is_measured, meter(pair[1]).calls) == (True, 1)


def test_a_chain_is_measured_with_one_query(django_assert_num_queries):
    chain = chain_of(three_tier_chain()[0])
    for session in chain.sessions:
        store_commands(session, *(f"command {n}" for n in range(20)))

    with django_assert_num_queries(1):
        work = measure(chain.sessions)

    assert [work[s.pk].repeated for s in chain.sessions] == [0, 20, 20]


def test_a_cycle_of_parents_does_not_loop_forever():
    first = SessionFactory()
    second = SessionFactory(parent_session=first)
    first.parent_session = second

    assert measure([first, second])[second.pk].repeated == 0
