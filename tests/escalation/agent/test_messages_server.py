"""Calls of the conversation and auxiliary calls of the CLI."""

from __future__ import annotations

from typing import Any

from escalation.agent.messages_api import is_auxiliary, opening_words
from tests.tables import each_row

TOOLS = [{"name": "Bash"}]
REMINDER = {"type": "text", "text": "<system-reminder> USD budget: $0/$2 </system-reminder>"}


def request(content: Any, tools: Any = TOOLS) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], "tools": tools}


@each_row(
    "call",
    [
        request("Warmup"),
        request([REMINDER, {"type": "text", "text": "Warmup"}]),
        request("Extract any file paths", tools=[]),
        request("make the round", tools=None),
        {"messages": []},
        {},
    ],
)
def test_a_call_without_tools_or_for_warm_up_is_auxiliary(call):
    assert is_auxiliary(call)


@each_row("content", ["make the round", "Warmup the oven", "", None, [REMINDER]])
def test_any_other_call_belongs_to_a_conversation(content):
    assert not is_auxiliary(request(content))


def test_the_opening_words_are_those_of_the_prompt():
    content = [REMINDER, {"type": "text", "text": "make the round"}]

    assert opening_words(request(content)) == opening_words(request("make the round"))


@each_row("messages", [None, [], ["odd"], [{"content": 7}], [{}]])
def test_a_malformed_request_does_not_raise(messages):
    assert isinstance(opening_words({"messages": messages}), str)
