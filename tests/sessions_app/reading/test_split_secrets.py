"""A secret that is split over two lines of a stream."""

from __future__ import annotations

from typing import Any

import pytest

from sessions_app.reading.known_values import KnownValues
from sessions_app.reading.split_secrets import SplitSecrets

VALUE = "sk-ant-api03-Zq8rZq8rZq8r"
KNOWN = KnownValues([("key", VALUE)])


def assistant(text: str) -> dict[str, Any]:
    return {"type": "assistant", "message": {"content": [{"type": "text", "text": text}]}}


def tool_result(text: str) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": "toolu_1", "content": text}
    return {"type": "user", "message": {"content": [block]}}


def said_in(payload: dict[str, Any]) -> str:
    block = payload["message"]["content"][0]
    return block.get("text") or block["content"]


@pytest.mark.parametrize("make", [assistant, tool_result])
@pytest.mark.parametrize("place", range(1, len(VALUE)))
def test_the_second_half_is_hidden_wherever_it_is_split(make, place):
    split = SplitSecrets()

    split.hidden_in("stream", make(f"the key is {VALUE[:place]}\n"), KNOWN)
    second = split.hidden_in("stream", make(f"{VALUE[place:]} and more"), KNOWN)

    assert said_in(second) == "[masked: key] and more"


def test_over_three_lines_the_last_piece_is_hidden():
    split = SplitSecrets()
    lines = [VALUE[:8], VALUE[8:16], VALUE[16:]]

    *_, last = [split.hidden_in("stderr", {"text": line}, KNOWN) for line in lines]

    assert last == {"text": "[masked: key]"}


def test_sources_are_not_mixed_up():
    split = SplitSecrets()

    split.hidden_in("stderr", {"text": VALUE[:10]}, KNOWN)

    assert split.hidden_in("stream", assistant(VALUE[10:]), KNOWN) == assistant(VALUE[10:])


def test_what_is_no_secret_is_left_as_it_is():
    split = SplitSecrets()
    lines = [assistant("All is"), assistant("well."), {"type": "system", "subtype": "init"}]

    assert [split.hidden_in("stream", line, KNOWN) for line in lines] == lines


def test_the_payload_that_the_engine_reads_stays_as_it_was():
    split = SplitSecrets()
    split.hidden_in("stream", assistant(VALUE[:10]), KNOWN)
    second = assistant(VALUE[10:])

    split.hidden_in("stream", second, KNOWN)

    assert second == assistant(VALUE[10:])
