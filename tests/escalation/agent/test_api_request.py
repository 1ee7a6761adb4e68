from __future__ import annotations

import json
from typing import Any

from escalation.agent.api_request import (
    BETAS,
    COUNT_TOKENS,
    FIELDS,
    MAX_ITEMS,
    MESSAGES,
    TARGETS,
    Fault,
    RequestPolicy,
    judge_message_request,
    known_headers,
    read_request,
)
from tests.tables import each_row

BASH = {"name": "Bash", "description": "Run a command", "input_schema": {"type": "object"}}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
CACHED = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
PIXEL = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
TEXT = {"type": "text", "text": "hello"}


def request(**fields: Any) -> dict[str, Any]:
    return {"model": "claude-haiku-4-5", "messages": [], **fields}


def with_blocks(*blocks: Any, role: str = "user") -> dict[str, Any]:
    return request(messages=[{"role": role, "content": list(blocks)}])


def with_result(*blocks: Any) -> dict[str, Any]:
    return with_blocks({"type": "tool_result", "tool_use_id": "t", "content": list(blocks)})


def with_change(tool: Any) -> dict[str, Any]:
    return with_blocks({"type": "tool_addition", "tool": tool}, role="system")


def judged(body: dict[str, Any], **policy: Any) -> tuple[str, str] | None:
    refusal = judge_message_request(body, RequestPolicy(**policy))
    return None if refusal is None else (refusal.fault, refusal.where)


@each_row(
    "body",
    [
        request(
            system=[{**TEXT, **CACHED}],
            tools=[BASH, {**BASH, "type": "custom", "defer_loading": True, "strict": True}],
            tool_choice={"type": "auto"},
            max_tokens=32000,
            metadata={"user_id": "user_1"},
            stream=True,
            temperature=1,
            thinking={"type": "adaptive", "display": "updates"},
            context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            output_config={"effort": "high"},
        ),
        request(system="text", tools=[]),
        request(messages=[{"role": "user", "content": "text"}]),
        request(messages=[{"role": "system", "content": [], "output_config": {"effort": "low"}}]),
        with_blocks({**TEXT, **CACHED}, {"type": "image", "source": PIXEL}),
        with_blocks(
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "redacted_thinking", "data": "x"},
            {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "true"}},
            role="assistant",
        ),
        with_blocks({"type": "tool_result", "tool_use_id": "t", "content": "x", "is_error": True}),
        with_blocks({"type": "tool_result", "tool_use_id": "t"}),
        with_result(TEXT, {"type": "document", "source": {**PIXEL, "type": "base64"}}),
        with_result({"type": "tool_reference", "tool_name": "Write"}),
        with_blocks(
            {"type": "document", "source": {"type": "text", "data": "x"}},
            {"type": "document", "source": {"type": "content", "content": [TEXT]}},
        ),
        with_change({"type": "tool_reference", "name": "Write"}),
        with_change({"type": "tool_definition", "definition": BASH}),
    ],
)
def test_a_request_of_the_cli_passes(body):
    assert judged(body) is None


def test_arguments_of_a_tool_are_free():
    """The model writes them; they may look like a part of the request."""
    hostile = {"model": "x", "type": "url", "source": {"type": "url"}, "mcp_servers": []}
    call = {"type": "tool_use", "id": "t", "name": "x", "input": hostile}
    schema = {"type": "object", "properties": {"type": {"type": "string"}, "model": {}}}

    assert judged(with_blocks(call, role="assistant")) is None
    assert judged(request(tools=[{"name": "x", "input_schema": schema}])) is None


@each_row(
    "field",
    [
        *("mcp_servers", "container", "service_tier", "inference_geo", "fallbacks", "speed"),
        *("thread", "diagnostics", "safeguards", "betas", "prompt", "Messages", "MCP_SERVERS"),
        *("fallback_credit_token", "cache_control", "context_hint", "user_profile_id"),
    ],
)
def test_another_field_is_refused_by_its_name(field):
    assert judged(request(**{field: "x"})) == (Fault.FIELD, field)


@each_row("field", sorted(FIELDS[MESSAGES] - FIELDS[COUNT_TOKENS]))
def test_a_count_of_tokens_takes_no_field_of_an_answer(field):
    assert judged(request(**{field: None}), path=COUNT_TOKENS) == (Fault.FIELD, field)


def test_a_count_of_tokens_of_the_cli_passes():
    assert judged(request(tools=[BASH], thinking={}), path=COUNT_TOKENS) is None


@each_row("model", [None, 1, "", "x" * 201, ["haiku"], {"id": "haiku"}])
def test_a_request_without_one_model_is_refused(model):
    assert judged(request(model=model)) == (Fault.MODEL, "model")


@each_row(
    ("tool", "where"),
    [
        *(
            ({"type": kind, "name": "x"}, "tools.1.type")
            for kind in (
                *("web_search_20250305", "web_search_20260209", "web_fetch_20250910"),
                *("code_execution_20250825", "bash_20250124", "text_editor_20250728"),
                *("computer_20250124", "memory_20250818", "mcp_toolset", "advisor_20260301"),
                *("tool_search_tool_regex_20251119", "Custom", "custom ", "", None, 1, ["custom"]),
            )
        ),
        ({"name": "x", "Type": "web_search_20250305"}, "tools.1.Type"),
        ({"name": "x", "model": "claude-opus-4-1"}, "tools.1.model"),
        ({"name": "x", "url": "https://x.example"}, "tools.1.url"),
        ({"name": "x", "allowed_callers": ["code_execution_20250825"]}, "tools.1.allowed_callers"),
    ],
)
def test_a_tool_that_runs_at_the_api_is_refused(tool, where):
    assert judged(request(tools=[BASH, tool]), web_search=True) == (Fault.TOOL, where)
    change = {"type": "tool_definition", "definition": tool}
    place = where.replace("tools.1", "messages.0.content.0.tool.definition")
    assert judged(with_change(change)) == (Fault.TOOL, place)


@each_row("tools", [None, {}, "x", ["x"], [BASH, None], 1])
def test_tools_that_are_no_list_of_objects_are_refused(tools):
    assert judged(request(tools=tools)) == (Fault.TOOL, "tools")


@each_row(
    "change",
    [
        None,
        "Write",
        {},
        {"type": "server_tool", "name": "web_search"},
        {"type": "tool_definition"},
        {"type": "tool_definition", "definition": "x"},
        {"type": "tool_definition", "definition": BASH, "mcp_server_name": "x"},
        {"type": "tool_reference", "name": "x", "definition": SEARCH},
    ],
)
def test_another_change_of_tools_is_refused(change):
    assert judged(with_change(change)) == (Fault.TOOL, "messages.0.content.0.tool")


@each_row("extra", [{}, {"allowed_domains": ["a.example"]}, {"blocked_domains": ["b.example"]}])
def test_the_web_search_of_the_cli_passes_at_a_tier_with_that_tool(extra):
    body = request(tools=[{**SEARCH, **extra}], tool_choice={"type": "tool", "name": "web_search"})

    assert judged(body, web_search=True) is None
    assert judged(body) == (Fault.WEB_SEARCH, "tools.0.type")


@each_row(
    ("tools", "refused"),
    [
        ([SEARCH, BASH], (Fault.TOOL, "tools.0.type")),
        ([SEARCH, SEARCH], (Fault.TOOL, "tools.0.type")),
        ([{**SEARCH, "max_uses": 9}], (Fault.WEB_SEARCH, "tools.0.max_uses")),
        ([{**SEARCH, "max_uses": 0}], (Fault.WEB_SEARCH, "tools.0.max_uses")),
        ([{**SEARCH, "max_uses": "8"}], (Fault.WEB_SEARCH, "tools.0.max_uses")),
        (
            [{"type": "web_search_20250305", "name": "web_search"}],
            (Fault.WEB_SEARCH, "tools.0.max_uses"),
        ),
        ([{**SEARCH, "user_location": {}}], (Fault.WEB_SEARCH, "tools.0.user_location")),
        ([{**SEARCH, "type": "web_search_20260209"}], (Fault.TOOL, "tools.0.type")),
    ],
)
def test_another_web_search_is_refused(tools, refused):
    assert judged(request(tools=tools), web_search=True) == refused


@each_row(
    ("source", "place"),
    [
        ({"type": "url", "url": "https://x.example"}, "type"),
        ({"type": "file", "file_id": "file_1"}, "type"),
        ({"type": "URL"}, "type"),
        ({"type": None}, "type"),
        ({"type": ["base64"]}, "type"),
        ({}, "type"),
        ("https://x.example", "type"),
        (None, "type"),
        ({**PIXEL, "url": "https://x.example"}, "url"),
        ({**PIXEL, "file_id": "file_1"}, "file_id"),
    ],
)
def test_a_source_that_the_api_would_fetch_is_refused(source, place):
    for kind in ("image", "document"):
        block = {"type": kind, "source": source}
        where = f"source.{place}"
        nested = {"type": "document", "source": {"type": "content", "content": [block]}}
        assert judged(with_blocks(block)) == (Fault.SOURCE, f"messages.0.content.0.{where}")
        assert judged(with_result(TEXT, block)) == (
            Fault.SOURCE,
            f"messages.0.content.0.content.1.{where}",
        )
        assert judged(with_blocks(nested)) == (
            Fault.SOURCE,
            f"messages.0.content.0.source.content.0.{where}",
        )
        assert judged(request(system=[block])) == (Fault.SOURCE, f"system.0.{where}")


@each_row(
    "kind",
    [
        *("container_upload", "server_tool_use", "mcp_tool_use", "mcp_tool_result", "fallback"),
        *("web_search_tool_result", "search_result", "compaction", "Text", "", None, 1, ["text"]),
    ],
)
def test_another_block_is_refused(kind):
    block = {"type": kind, "file_id": "file_1"}

    assert judged(with_blocks(TEXT, block)) == (Fault.BLOCK, "messages.0.content.1.type")
    assert judged(with_result(block)) == (Fault.BLOCK, "messages.0.content.0.content.0.type")
    assert judged(request(system=[block])) == (Fault.BLOCK, "system.0.type")


@each_row("content", [None, 1, {}, {"type": "text"}, ["x"], [None], True])
def test_content_that_is_neither_text_nor_blocks_is_refused(content):
    body = request(messages=[{"role": "user", "content": content}])
    result = {"type": "tool_result", "content": content}

    assert judged(body) == (Fault.BLOCK, "messages.0.content")
    assert judged(with_blocks(result)) == (Fault.BLOCK, "messages.0.content.0.content")


@each_row("field", ["tool_changes", "clear_at", "container", "mcp_servers", "Content"])
def test_another_field_of_a_message_is_refused(field):
    body = request(messages=[{"role": "system", "content": "x", field: []}])

    assert judged(body) == (Fault.MESSAGE, f"messages.0.{field}")


@each_row("messages", [None, "x", {}, ["x"]])
def test_messages_that_are_no_list_of_objects_are_refused(messages):
    assert judged(request(messages=messages)) == (Fault.MESSAGE, "messages")


def test_blocks_are_checked_at_any_depth():
    block: dict[str, Any] = {"type": "image", "source": {"type": "url"}}
    for _level in range(5000):
        block = {"type": "tool_result", "content": [block]}

    refused = judged(with_blocks(block))

    assert refused is not None
    assert refused[0] == Fault.SOURCE


def test_a_refusal_names_the_field_on_one_short_line():
    refusal = judge_message_request(request(**{"x\nsent\x1b[0m" * 1000: 1}), RequestPolicy())

    assert refusal is not None
    assert refusal.where.startswith("x\\nsent")
    assert refusal.where in refusal.message
    assert refusal.message.isprintable()
    assert len(refusal.message) < 1000


@each_row(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"haiku"',
        b"\xff",
        b"null",
        b'{"model": "haiku", "mod\\u0065l": "opus"}',
        b'{"model": "haiku", "tools": [], "tools": []}',
        b'{"model": "haiku", "messages": [{"role": "user", "role": "user"}]}',
        b'{"model": "haiku", "temperature": NaN}',
        b'{"model": "haiku", "temperature": -Infinity}',
        b'\xef\xbb\xbf{"model": "haiku"}',
        json.dumps({"model": "haiku"}).encode("utf-16"),
        json.dumps({"model": "haiku"}).encode("utf-32-le"),
        b'{"model": "haiku"} {"model": "opus"}',
        b"[" * 100_000,
        b'{"model": "haiku", "messages": [' + b"[]," * MAX_ITEMS + b"[]]}",
    ],
)
def test_a_body_that_is_not_one_clear_object_is_not_read(body):
    assert read_request(body) == {}


def test_a_body_is_read():
    body = {"model": "haiku", "messages": [{"role": "user", "content": "é\U0001f600\ud800"}]}

    assert read_request(json.dumps(body).encode()) == body


def test_known_headers_are_passed_on_and_others_left_out():
    headers = [
        ("X-App", "cli"),
        ("Anthropic-Version", "2023-06-01"),
        ("anthropic-beta", "claude-code-20250219, files-api-2025-04-14 ,,"),
        ("Anthropic-Beta", "effort-2025-11-24,mcp-client-2025-11-20"),
        ("authorization", "Bearer x"),
        ("x-api-key", "x"),
        ("host", "x"),
        ("content-length", "1"),
        ("content-encoding", "gzip"),
        ("x-forwarded-for", "10.0.0.1"),
        ("anthropic-workspace-id", "x"),
    ]

    assert known_headers(headers) == {
        "x-app": "cli",
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "claude-code-20250219,effort-2025-11-24",
    }


def test_a_list_of_unknown_betas_is_left_out_as_a_whole():
    assert known_headers([("anthropic-beta", "files-api-2025-04-14")]) == {}


def test_no_beta_for_files_servers_or_other_models_is_known():
    words = ("files", "mcp", "skills", "code-execution", "fallback", "advisor", "batches", "fast")

    assert [beta for beta in BETAS if any(word in beta for word in words)] == []


@each_row(
    ("target", "path"),
    [
        ("/v1/messages", MESSAGES),
        ("/v1/messages?beta=true", MESSAGES),
        ("/v1/messages/count_tokens?beta=true", COUNT_TOKENS),
        ("/v1/messages?beta=true&x=1", None),
        ("/v1/messages?", None),
        ("/v1/messages/", None),
        ("/v1/files", None),
    ],
)
def test_a_target_is_a_path_with_the_query_of_the_cli(target, path):
    assert TARGETS.get(target) == path
