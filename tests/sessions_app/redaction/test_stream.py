"""Secrets that are split over two lines of a stream, or printed by a command that reads them."""

from __future__ import annotations

import json
from typing import Any

from sessions_app.redaction.redact import (
    HIDDEN_OUTPUT,
    KnownValues,
    SecretOutputs,
    SplitSecrets,
    redacted,
    redacted_data,
)
from tests.tables import each_row

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


@each_row("make", [assistant, tool_result])
@each_row("place", range(1, len(VALUE)))
def test_the_second_half_is_hidden_wherever_it_is_split(make, place):
    split = SplitSecrets()

    split.redact("stream", make(f"the key is {VALUE[:place]}\n"), KNOWN)
    second = split.redact("stream", make(f"{VALUE[place:]} and more"), KNOWN)

    assert said_in(second) == "[redacted: key] and more"


def test_over_three_lines_the_last_piece_is_hidden():
    split = SplitSecrets()
    lines = [VALUE[:8], VALUE[8:16], VALUE[16:]]

    *_, last = [split.redact("stderr", {"text": line}, KNOWN) for line in lines]

    assert last == {"text": "[redacted: key]"}


def test_sources_are_not_mixed_up():
    split = SplitSecrets()

    split.redact("stderr", {"text": VALUE[:10]}, KNOWN)

    assert split.redact("stream", assistant(VALUE[10:]), KNOWN) == assistant(VALUE[10:])


def test_what_is_no_secret_is_left_as_it_is():
    split = SplitSecrets()
    lines = [assistant("All is"), assistant("well."), {"type": "system", "subtype": "init"}]

    assert [split.redact("stream", line, KNOWN) for line in lines] == lines


def test_the_payload_that_the_engine_reads_stays_as_it_was():
    split = SplitSecrets()
    split.redact("stream", assistant(VALUE[:10]), KNOWN)
    second = assistant(VALUE[10:])

    split.redact("stream", second, KNOWN)

    assert second == assistant(VALUE[10:])


UNKNOWN = KnownValues([])
GITHUB = "ghp_" + "a1B2c3D4" * 5
ANTHROPIC = "sk-ant-api03-" + "Zq8r" * 20


@each_row("make", [assistant, tool_result])
@each_row("secret", [GITHUB, ANTHROPIC, "AKIA" + "Q7" * 8])
@each_row("place", range(1, 20, 3))
def test_what_has_the_shape_of_a_key_is_hidden_where_it_goes_on(make, secret, place):
    """Nobody can put it together again from what is stored."""
    split = SplitSecrets()
    halves = make(f"it is {secret[:place]}"), make(f"{secret[place:]} and more")

    stored = [redacted_data(split.redact("stream", half, UNKNOWN)) for half in halves]

    assert secret[place:] not in said_in(stored[1])
    assert said_in(stored[1]).startswith("[redacted: ")
    assert said_in(stored[1]).endswith("] and more")


@each_row(
    ("before", "after"),
    [
        ("the token:", "Let me look at it"),
        (GITHUB, "Done."),
        (f"it is {ANTHROPIC}", "That-was-the-key, and it works"),
        ("see sk-", "learn for the model"),
        ("commit deadbeef", "deadbeefdeadbeefdeadbeefdeadbeef"),
        ("", "ghp_"),
    ],
)
def test_what_only_comes_after_something_is_left_as_it_is(before, after):
    split = SplitSecrets()
    split.redact("stream", assistant(before), UNKNOWN)

    assert split.redact("stream", assistant(after), UNKNOWN) == assistant(after)


BODY = [("MIIEvQIBADANBgkqhkiG9w0BAQEFAASC" * 2)[n:][:64] for n in range(20)]


def test_the_lines_of_a_private_key_are_hidden_one_by_one():
    split = SplitSecrets()
    lines = [
        "-----BEGIN PRIVATE KEY-----",
        *BODY,
        "Zq8r==",
        "-----END PRIVATE KEY-----",
        "All well",
    ]

    stored = [redacted_data(split.redact("stderr", {"text": line}, UNKNOWN)) for line in lines]

    assert {line["text"] for line in stored[:-1]} == {"[redacted: private key]"}
    assert stored[-1] == {"text": "All well"}


def test_a_long_middle_of_a_private_key_is_hidden_too():
    split = SplitSecrets()
    begin, middle, end = "-----BEGIN PRIVATE KEY-----", "\n".join(BODY * 3), BODY[0]
    texts = [f"{begin}\n{BODY[0]}\n", f"{middle}\n", f"{end}\n-----END PRIVATE KEY-----\n"]

    stored = [redacted_data(split.redact("stream", assistant(text), UNKNOWN)) for text in texts]

    assert "MIIE" not in json.dumps(stored)


def test_after_a_key_that_was_cut_off_ordinary_text_is_left_as_it_is():
    split = SplitSecrets()
    cut = assistant("-----BEGIN PRIVATE KEY-----\n" + "\n".join(BODY[:3]))
    split.redact("stream", cut, UNKNOWN)
    lines = [assistant("That was cut off."), assistant(BODY[0])]

    assert [split.redact("stream", line, UNKNOWN) for line in lines] == lines


def call(tool: str, **given: Any) -> dict[str, Any]:
    block = {"type": "tool_use", "id": "toolu_1", "name": tool, "input": given}
    return {"type": "assistant", "message": {"content": [block]}}


@each_row(
    "asked",
    [
        call("Bash", command="kubectl get secret shop -o jsonpath='{.data.a}'"),
        call("Read", file_path="/root/.ssh/id_ed25519"),
        call("Grep", pattern=".", path="/etc/ssl/private/shop.key"),
    ],
)
def test_output_of_a_call_that_reads_secrets_is_redacted_whole(asked):
    outputs = SecretOutputs()
    answer = {
        **tool_result("aHVudGVy"),
        "tool_use_result": {"type": "text", "stdout": "aHVudGVy", "stderr": "", "lines": 1},
    }

    assert outputs.redact(asked) == asked
    hidden = outputs.redact(answer)

    assert said_in(hidden) == HIDDEN_OUTPUT == redacted(HIDDEN_OUTPUT)
    assert hidden["tool_use_result"] == {
        **answer["tool_use_result"],
        "stdout": HIDDEN_OUTPUT,
    }
    assert said_in(answer) == "aHVudGVy"


@each_row(
    "asked",
    [
        call("Bash", command="kubectl get secrets"),
        call("Read", file_path="/etc/hosts"),
        {"type": "assistant", "message": {"content": "kubectl get secret shop -o yaml"}},
        {"type": "assistant", "message": None},
        call("Bash", command=["cat", "server.key"]),
    ],
)
def test_output_of_another_call_stays(asked):
    outputs = SecretOutputs()
    outputs.redact(asked)

    assert outputs.redact(tool_result("all is well")) == tool_result("all is well")


def test_output_of_a_call_beside_one_that_reads_secrets_stays():
    outputs = SecretOutputs()
    outputs.redact(call("Bash", command="cat server.key"))
    other = {"type": "tool_result", "tool_use_id": "toolu_2", "content": "all is well"}
    both = tool_result("aHVudGVy")
    both["message"]["content"].append(other)

    assert outputs.redact(both)["message"]["content"][1] == other
