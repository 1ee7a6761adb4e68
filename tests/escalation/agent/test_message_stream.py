"""The wire format of the Messages API's answers."""

from __future__ import annotations

from typing import Any

import pytest

from escalation.agent.messages_api import (
    NO_USAGE,
    ScriptedAnswer,
    error_body,
    stream_events,
    usage_of,
)


def body(text: str = "make the round") -> dict[str, Any]:
    return {"model": "haiku", "messages": [{"role": "user", "content": text}]}


@pytest.mark.parametrize(
    ("status", "name"), [(429, "rate_limit_error"), (529, "overloaded_error"), (500, "api_error")]
)
def test_an_error_has_the_type_of_its_status_or_the_general_one(status, name):
    assert error_body(status, "x")["error"]["type"] == name


def test_usage_is_estimated_from_the_real_size():
    small = usage_of(ScriptedAnswer(say="ok"), body())
    large = usage_of(ScriptedAnswer(say="ok " * 1000), body("x" * 40_000))

    assert small["output_tokens"] >= 1
    assert large["input_tokens"] > 9000 > small["input_tokens"]
    assert large["output_tokens"] > 700


def test_an_answer_without_usage_charges_nothing():
    start, *_pieces, end, _stop = stream_events(ScriptedAnswer(say="ok", usage=NO_USAGE), body())

    assert start["message"]["usage"] == NO_USAGE
    assert end["usage"] == NO_USAGE
