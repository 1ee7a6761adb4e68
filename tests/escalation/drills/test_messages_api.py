"""The scripted Messages API over HTTP, as the CLI uses it."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from escalation.agent.messages_api import NO_USAGE
from escalation.drills.scenario import Reply, Scenario, ScriptedToolCall
from escalation.drills.scripted_api import LAST_WORD, ScriptedApi, reply_at

BASH = ScriptedToolCall(tool="Bash", input={"command": "docker ps", "note": "x" * 450})
SCENARIO = Scenario(
    name="shop",
    title="Shop",
    tiers={
        1: (Reply(say="I look.", calls=(BASH,)), Reply(say="Done.")),
        2: (Reply(error=529, times=2), Reply(say="Back again.")),
        3: (Reply(say="Slow.", delay=0.3, usage={"input_tokens": 7, "output_tokens": 9}),),
    },
    aside=(Reply(say="I am a subagent."),),
)


@pytest.fixture
def api(tmp_path):
    with ScriptedApi(SCENARIO, request_log=tmp_path / "requests.jsonl").serving() as api:
        yield api


def body(text: str = "check the system", **fields) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": "haiku", "messages": messages, "tools": [{"name": "Bash"}], **fields}


def post(address: str, content: bytes | dict[str, Any]) -> tuple[int, str]:
    data = json.dumps(content).encode() if isinstance(content, dict) else content
    try:
        with urllib.request.urlopen(urllib.request.Request(address, data=data), timeout=5) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def ask(api: ScriptedApi, tier: int = 1, run: str = "1", **fields) -> dict[str, Any]:
    _status, text = post(f"{api.base_url('shop', tier, run)}/v1/messages", body(**fields))
    return json.loads(text)


def said(answer: dict[str, Any]) -> str:
    return answer["content"][0]["text"]


def events_of(api: ScriptedApi, tier: int = 1) -> list[dict[str, Any]]:
    address = f"{api.base_url('shop', tier)}/v1/messages?beta=true"
    _status, text = post(address, body(stream=True))
    blocks = [block.split("\n") for block in text.strip().split("\n\n")]
    events = [json.loads(data.removeprefix("data: ")) for _name, data in blocks]
    assert [name for name, _data in blocks] == [f"event: {event['type']}" for event in events]
    return events


def test_a_run_gets_the_replies_of_its_tier_in_order(api):
    assert [said(ask(api)), said(ask(api))] == ["I look.", "Done."]


def test_after_the_last_reply_the_same_closing_text_is_repeated(api):
    answers = [said(ask(api)) for _ in range(4)]

    assert answers[2:] == [LAST_WORD.say] * 2


def test_an_answer_is_a_message_with_its_tool_calls(api):
    answer = ask(api)

    assert (answer["type"], answer["role"], answer["model"]) == ("message", "assistant", "haiku")
    assert answer["stop_reason"] == "tool_use"
    assert answer["content"][1]["name"] == "Bash"
    assert answer["content"][1]["input"] == BASH.input


def test_an_answer_without_calls_ends_the_turn(api):
    ask(api)

    assert ask(api)["stop_reason"] == "end_turn"


def test_a_streamed_answer_has_the_events_in_order(api):
    events = events_of(api)

    types = [event["type"] for event in events]
    assert types[:2] == ["message_start", "content_block_start"]
    assert types[-2:] == ["message_delta", "message_stop"]
    assert types.count("content_block_start") == types.count("content_block_stop") == 2


def test_a_streamed_tool_call_comes_in_parts(api):
    pieces = [
        event["delta"]["partial_json"]
        for event in events_of(api)
        if event["type"] == "content_block_delta" and event["index"] == 1
    ]

    assert len(pieces) > 1
    assert json.loads("".join(pieces)) == BASH.input


def test_a_streamed_answer_has_its_usage_at_the_end(api):
    events = events_of(api, tier=3)

    assert events[0]["message"]["usage"]["output_tokens"] == 1
    assert events[-2]["usage"]["output_tokens"] == 9


def test_scripted_error_is_repeated(api):
    address = f"{api.base_url('shop', 2)}/v1/messages"

    answers = [post(address, body()) for _ in range(3)]

    assert [status for status, _text in answers] == [529, 529, 200]
    assert json.loads(answers[0][1])["error"]["type"] == "overloaded_error"


def test_a_delayed_answer_comes_late(api):
    began = time.monotonic()

    ask(api, tier=3)

    assert time.monotonic() - began >= 0.3


def test_each_session_of_a_tier_has_its_own_script(api):
    ask(api, run="1")

    assert said(ask(api, run="2")) == "I look."


def test_another_conversation_of_a_session_uses_no_reply(api):
    answers = [
        said(ask(api, text="check the system")),
        said(ask(api, text="you are a subagent")),
        said(ask(api, text="check the system")),
    ]

    assert answers == ["I look.", "I am a subagent.", "Done."]
    assert [request.main for request in api.requests] == [True, False, True]


def test_concurrent_sessions_do_not_mix(api):
    answers: dict[str, list[str]] = {}

    def converse(run: str) -> None:
        answers[run] = [said(ask(api, run=run, text=run)) for _ in range(3)]

    threads = [threading.Thread(target=converse, args=(f"run-{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert list(answers.values()) == [["I look.", "Done.", LAST_WORD.say]] * 8


def logged(tmp_path: Path, lines: int) -> list[dict[str, Any]]:
    """The answer is noted just after it went out, so its line may take a moment."""
    log = tmp_path / "requests.jsonl"
    give_up = time.monotonic() + 5
    while len(log.read_text().splitlines()) < lines and time.monotonic() < give_up:
        time.sleep(0.01)
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_requests_are_stored_in_memory_and_on_disk(api, tmp_path):
    ask(api, tier=1, run="7", text="é")

    (kept,) = api.requests
    asked = logged(tmp_path, lines=1)[0]
    assert (kept.scenario, kept.tier, kept.run) == ("shop", 1, "7")
    assert "é" in kept.text()
    assert (asked["tier"], asked["run"], asked["body"]) == (1, "7", kept.body)


@pytest.mark.parametrize("stream", [True, False])
def test_offered_and_served_usage_are_logged(api, tmp_path, stream):
    post(f"{api.base_url('shop', 3, '7')}/v1/messages", body(stream=stream))

    asked, answered = logged(tmp_path, lines=2)
    assert asked["offered"]["input_tokens"] == 7
    assert (answered["tier"], answered["run"], answered["model"]) == (3, "7", "haiku")
    assert answered["served"] == asked["offered"]


def test_answer_to_a_closed_connection_is_not_logged_as_served(api, tmp_path):
    address = f"{api.base_url('shop', 3)}/v1/messages"
    request = urllib.request.Request(address, data=json.dumps(body(stream=True)).encode())
    with pytest.raises(TimeoutError):
        urllib.request.urlopen(request, timeout=0.05)

    time.sleep(0.6)

    assert "served" not in (tmp_path / "requests.jsonl").read_text()


CLI_S_OWN_CALLS = [
    pytest.param({"text": "Warmup"}, id="a subagent is warmed up"),
    pytest.param({"text": "a title for: check the system", "tools": []}, id="a title"),
    pytest.param({"text": "check the system", "tools": None}, id="the same text without tools"),
]


@pytest.mark.parametrize("call", CLI_S_OWN_CALLS)
def test_auxiliary_request_uses_no_reply_and_no_tokens(api, call):
    """It may come before the conversation does."""
    beside = ask(api, **call)

    assert {name: beside["usage"][name] for name in NO_USAGE} == NO_USAGE
    assert said(ask(api)) == "I look."
    assert said(ask(api, text="you are a subagent")) == "I am a subagent."
    assert [request.main for request in api.requests] == [False, True, False]


def test_counting_tokens_uses_no_reply(api):
    address = f"{api.base_url('shop', 1)}/v1/messages/count_tokens"

    status, text = post(address, body())

    assert (status, set(json.loads(text))) == (200, {"input_tokens"})
    assert said(ask(api)) == "I look."


@pytest.mark.parametrize("path", ["/", "/v1/messages", "/other/tier/1/run/1/v1/messages"])
def test_unknown_scenario_is_not_found(api, path):
    root = api.base_url("shop", 1).split("/shop/")[0]

    status, text = post(root + path, body())

    assert (status, json.loads(text)["type"]) == (404, "error")


def test_invalid_json_is_a_bad_request(api):
    status, text = post(f"{api.base_url('shop', 1)}/v1/messages", b"not json")

    assert (status, json.loads(text)["error"]["type"]) == (400, "invalid_request_error")
    assert api.requests == []


def test_only_post_requests_are_scripted(api):
    with pytest.raises(urllib.error.HTTPError) as refusal:
        urllib.request.urlopen(api.base_url("shop", 1), timeout=5)

    with refusal.value:
        assert refusal.value.code == 404


def test_the_server_is_stopped_afterwards():
    with ScriptedApi(SCENARIO).serving() as api:
        address = api.base_url("shop", 1)

    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address, timeout=1)


def test_tier_without_replies_gets_the_last_reply():
    assert reply_at((), 0) == LAST_WORD
