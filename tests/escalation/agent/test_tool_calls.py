from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from escalation.agent.stream import answers, denied_calls, normalised, tool_calls
from tests.sessions_app.tool_events import answer, call, said
from tests.tables import each_row

DEEP: dict[str, Any] = {}
for _ in range(3_000):
    DEEP = {"deeper": DEEP}


def test_a_call_is_read_with_its_result():
    (found,) = tool_calls([call("df -h"), answer("/var 100%")])

    assert (found.name, found.input, found.output) == ("Bash", {"command": "df -h"}, "/var 100%")
    assert (found.is_error, found.message_id) == (False, "m1")


def test_stored_events_are_read_like_their_payloads():
    events = [SimpleNamespace(payload=call("df -h")), SimpleNamespace(payload=answer("full"))]

    assert tool_calls(events) == tool_calls([call("df -h"), answer("full")])


def test_calls_keep_their_order_when_results_arrive_in_another():
    events = [
        call("first", call_id="a"),
        call("second", call_id="b"),
        answer("2", call_id="b"),
        answer("1", call_id="a"),
    ]

    assert [(c.normalised, c.output) for c in tool_calls(events)] == [
        ("first", "1"),
        ("second", "2"),
    ]


def test_a_failed_call_is_marked():
    (found,) = tool_calls([call("false"), answer("exit code 1", is_error=True)])

    assert found.is_error


def test_a_call_without_a_result_has_no_output():
    (found,) = tool_calls([call("sleep 999")])

    assert (found.output, found.is_answered) == ("", False)


def test_a_call_with_an_empty_result_was_answered():
    (found,) = tool_calls([call("true"), answer("")])

    assert (found.output, found.is_answered) == ("", True)


def test_a_result_of_several_blocks_is_joined():
    content = [{"type": "text", "text": "one"}, {"type": "image"}, {"type": "text", "text": "two"}]

    assert tool_calls([call("x"), answer(content)])[0].output == "one\nimage\ntwo"


def test_the_report_is_not_a_tool_call():
    assert tool_calls([call({"summary": "all is well"}, name="StructuredOutput")]) == []


def test_a_repeated_line_is_one_call():
    assert len(tool_calls([call("df -h"), call("df -h")])) == 1


def test_calls_without_an_id_are_all_counted():
    assert len(tool_calls([call("a", call_id=""), call("b", call_id="")])) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"command": "df -h"}, {"command": "  df   -h\n"}),
        ({"command": "df -h"}, {"command": "df -h", "description": "Disk", "timeout": 5}),
    ],
)
def test_commands_that_do_the_same_are_equal(one, other):
    assert normalised("Bash", one) == normalised("Bash", other)


def test_the_order_of_keys_makes_no_difference():
    one, other = {"pattern": "x", "path": "/a"}, {"path": "/a", "pattern": "x"}

    assert normalised("Grep", one) == normalised("Grep", other)


def test_another_tool_is_compared_by_all_of_its_input():
    one, other = {"file_path": "/a"}, {"file_path": "/a", "offset": 100}

    assert normalised("Read", one) != normalised("Read", other)


def test_only_bash_is_compared_by_its_command():
    assert normalised("Other", {"command": "x", "a": 1}) != normalised("Other", {"command": "x"})


@each_row(
    "hostile",
    [
        None,
        7,
        "text",
        [],
        {},
        {"type": ["assistant"]},
        {"type": "assistant"},
        {"type": "assistant", "message": "no"},
        {"type": "assistant", "message": {"id": {}, "content": "no"}},
        {"type": "assistant", "message": {"content": [None, 3, {"type": {}}, {}]}},
        {"type": "assistant", "message": {"content": [{"type": "tool_use"}]}},
        {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": []}]}},
        {"type": "result", "permission_denials": [None, 3, {"tool_name": [], "tool_input": 1}]},
        call(DEEP),
        call({"command": ["not", "text"]}),
        call({1: float("nan"), None: object()}),
        answer({"odd": DEEP}),
    ],
)
def test_hostile_events_never_raise(hostile):
    events = [hostile, call("df -h", call_id="good")]

    assert tool_calls(events)[-1].normalised == "df -h"
    assert "m1" in answers(events)
    assert isinstance(denied_calls(events), set)


def test_answers_are_distinguished_by_their_ids():
    events = [said("Let me see.", message="a"), call("ls", message="a"), said("Done.", message="b")]

    assert answers(events) == {"a": False, "b": False}


def test_the_answer_with_the_report_is_marked():
    report = call({"summary": "well"}, name="StructuredOutput", message="b")

    assert answers([call("ls", message="a"), report]) == {"a": False, "b": True}


def test_a_synthetic_answer_is_left_out():
    made_up = {"type": "assistant", "message": {"id": "x", "model": "<synthetic>", "content": []}}

    assert answers([made_up]) == {}


def test_denied_calls_are_listed_with_their_input():
    denials = [{"tool_name": "Bash", "tool_input": {"command": "docker  restart web"}}]

    assert denied_calls([{"type": "result", "permission_denials": denials}]) == {
        ("Bash", "docker restart web")
    }
