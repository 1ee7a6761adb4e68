"""The requests that the CLI sends to the Messages API, and what else is refused (pure).

The tables hold what CLI 2.0.77, 2.1.197 and 2.1.325 sent to an API of our own: each model alias,
each kind of credential, resumed with other tools, with subagents, web tools, images, compaction,
and after errors. What reaches outside the conversation (servers, containers, files and addresses
that the API would fetch) is in none of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

MESSAGES, COUNT_TOKENS = "/v1/messages", "/v1/messages/count_tokens"
TARGETS = {
    f"{path}{query}": path for path in (MESSAGES, COUNT_TOKENS) for query in ("", "?beta=true")
}
"""The paths with the only query that the CLI sends."""

_COUNTED_FIELDS = frozenset({"model", "messages", "system", "tools", "tool_choice", "thinking"})
FIELDS = {
    MESSAGES: _COUNTED_FIELDS
    | {"max_tokens", "metadata", "stream", "temperature", "context_management", "output_config"}
    # Not seen, but they only shape the answer.
    | {"top_p", "top_k", "stop_sequences", "output_format"},
    COUNT_TOKENS: _COUNTED_FIELDS,
}
MESSAGE_FIELDS = frozenset({"role", "content", "output_config"})
# Of a tool that the CLI runs itself.
TOOL_FIELDS = frozenset(
    {
        *("name", "description", "input_schema", "type", "cache_control", "defer_loading"),
        *("strict", "eager_input_streaming", "input_examples"),
    }
)
# The tool WebSearch is a request of its own, whose single tool runs at the API.
WEB_SEARCH_TYPE = "web_search_20250305"
WEB_SEARCH_FIELDS = frozenset({"type", "name", "max_uses", "allowed_domains", "blocked_domains"})
MAX_WEB_SEARCHES = 8
BLOCKS = frozenset(
    {
        *("text", "image", "document", "tool_use", "tool_result", "tool_reference"),
        *("thinking", "redacted_thinking"),
        # A resumed conversation gets tools that its first tier did not have by such blocks.
        *("tool_addition", "tool_removal"),
    }
)
# Not `url` and `file`, which the API would fetch.
SOURCES = frozenset({"base64", "text", "content"})
SOURCE_FIELDS = frozenset({"type", "media_type", "data", "content"})

HEADERS = frozenset(
    {
        *("accept", "accept-language", "sec-fetch-mode", "user-agent", "x-app"),
        *("anthropic-version", "anthropic-dangerous-direct-browser-access"),
        *("x-claude-code-session-id", "x-claude-code-agent-id", "x-claude-code-parent-agent-id"),
        *("x-stainless-arch", "x-stainless-lang", "x-stainless-os", "x-stainless-runtime"),
        *("x-stainless-package-version", "x-stainless-runtime-version", "x-stainless-timeout"),
        *("x-stainless-retry-count", "x-stainless-helper-method"),
    }
)
BETAS = {
    "claude-code-20250219": "marks the CLI; every request",
    "oauth-2025-04-20": "login by subscription",
    "token-counting-2024-11-01": "count of tokens",
    "interleaved-thinking-2025-05-14": "thinking between tool calls",
    "thinking-token-count-2026-05-13": "tokens of thinking in the usage",
    "thinking-display-updates-2026-08-18": "`thinking.display`",
    "effort-2025-11-24": "`output_config.effort`",
    "per-turn-control-2026-07-01": "`output_config` of a message",
    "context-management-2025-06-27": "`context_management`",
    "context-1m-2025-08-07": "a tier whose model ends in [1m]",
    "prompt-caching-scope-2026-01-05": "caching",
    "extended-cache-ttl-2025-04-11": "caching for an hour, by subscription",
    "mid-conversation-system-2026-04-07": "messages with the role system",
    "mid-conversation-tool-changes-2026-07-01": "`tool_addition` in a resumed conversation",
    "structured-outputs-2025-12-15": "titles, by `output_config.format`",
}
"""Values of `anthropic-beta` with what they are needed for.

Of those that were seen, fallback-credit is left out: with it the API offers a token for a request
to another model.
"""

MAX_MODEL_LENGTH = 200
# One item of JSON takes up to 250 bytes of memory.
MAX_ITEMS = 1_000_000
MAX_SHOWN = 80
UPGRADE = "If the CLI is newer than Claude Ops, upgrade Claude Ops."


class Fault(StrEnum):
    """The part of a request that is refused."""

    MODEL = "model"
    FIELD = "field"
    MESSAGE = "message"
    BLOCK = "block"
    SOURCE = "source"
    TOOL = "tool"
    WEB_SEARCH = "web_search"


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    fault: Fault
    where: str = ""
    """The path of the field, as in errors of the API: `tools.3.type`."""
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestPolicy:
    path: str = MESSAGES
    web_search: bool = False
    """The tier has the tool WebSearch."""


class Refused(Exception):
    def __init__(self, fault: Fault, where: str, message: str) -> None:
        self.refusal = Refusal(fault=fault, where=where, message=message)


def read_request(body: bytes) -> dict[str, Any]:
    """Return the object in a body; an empty one if two parsers could read it differently."""
    if sum(map(body.count, (b",", b"[", b"{"))) > MAX_ITEMS:
        return {}
    try:
        request = json.loads(
            body.decode("utf-8"), object_pairs_hook=_unambiguous, parse_constant=_no_constant
        )
    except (ValueError, RecursionError):
        return {}
    return request if isinstance(request, dict) else {}


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    named = dict(pairs)
    if len(named) != len(pairs):
        raise ValueError("a name is used twice")
    return named


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def judge_message_request(body: dict[str, Any], policy: RequestPolicy) -> Refusal | None:
    """Return the reason why a request is no request of the tier's CLI, or None.

    Whether the tier may use the model is decided elsewhere.
    """
    try:
        _check_names(body, FIELDS[policy.path], Fault.FIELD, "")
        model = body.get("model")
        if not isinstance(model, str) or not 0 < len(model) <= MAX_MODEL_LENGTH:
            reason = "The request is not one clear JSON object that names a model."
            raise Refused(Fault.MODEL, "model", reason)
        _check_tools(body.get("tools", []), policy)
        _check_content(body.get("system", ""), "system")
        for place, message in _objects(body.get("messages", []), Fault.MESSAGE, "messages"):
            _check_names(message, MESSAGE_FIELDS, Fault.MESSAGE, f"{place}.")
            _check_content(message.get("content"), f"{place}.content")
    except Refused as refused:
        return refused.refusal
    return None


def _check_names(found: Iterable[str], known: frozenset[str], fault: Fault, place: str) -> None:
    if unknown := next((name for name in found if name not in known), None):
        raise _unknown(fault, f"{place}{_shown(unknown)}", "field")


def _check_tools(tools: Any, policy: RequestPolicy) -> None:
    listed = list(_objects(tools, Fault.TOOL, "tools"))
    if [tool.get("type") for _place, tool in listed] == [WEB_SEARCH_TYPE]:
        return _check_web_search(listed[0][1], policy)
    for place, tool in listed:
        _check_tool(tool, place)


def _check_tool(tool: dict[str, Any], place: str) -> None:
    """Refuse tools that run at the API."""
    if tool.get("type", "custom") != "custom":
        raise _unknown(Fault.TOOL, f"{place}.type", f"tool of the type {_shown(tool['type'])}")
    _check_names(tool, TOOL_FIELDS, Fault.TOOL, f"{place}.")


def _check_web_search(tool: dict[str, Any], policy: RequestPolicy) -> None:
    if not policy.web_search:
        raise Refused(Fault.WEB_SEARCH, "tools.0.type", "This tier has no tool WebSearch.")
    _check_names(tool, WEB_SEARCH_FIELDS, Fault.WEB_SEARCH, "tools.0.")
    if tool.get("max_uses") not in range(1, MAX_WEB_SEARCHES + 1):
        raise Refused(
            Fault.WEB_SEARCH,
            "tools.0.max_uses",
            f"The API proxy passes web searches with `max_uses` from 1 to {MAX_WEB_SEARCHES}.",
        )


def _check_content(content: Any, place: str) -> None:
    """Check all blocks, also those in results of tools and in documents."""
    waiting = [(place, content)]
    while waiting:
        place, content = waiting.pop()
        if isinstance(content, str):
            continue
        for where, block in _objects(content, Fault.BLOCK, place):
            kind = block.get("type")
            if not isinstance(kind, str) or kind not in BLOCKS:
                raise _unknown(Fault.BLOCK, f"{where}.type", f"block of the type {_shown(kind)}")
            if "source" in block:
                waiting += _within_source(block["source"], f"{where}.source")
            if "tool" in block:
                _check_change(block["tool"], f"{where}.tool")
            if "content" in block:
                waiting.append((f"{where}.content", block["content"]))


def _within_source(source: Any, place: str) -> list[tuple[str, Any]]:
    kind = source.get("type") if isinstance(source, dict) else None
    if not isinstance(kind, str) or kind not in SOURCES:
        raise _unknown(Fault.SOURCE, f"{place}.type", f"source of the type {_shown(kind)}")
    _check_names(source, SOURCE_FIELDS, Fault.SOURCE, f"{place}.")
    return [(f"{place}.content", source["content"])] if "content" in source else []


def _check_change(change: Any, place: str) -> None:
    """Check the tool that a block adds or removes: it is named or defined there."""
    match change:
        case {"type": "tool_reference", **others} if others.keys() <= {"name"}:
            return
        case {"type": "tool_definition", "definition": dict(tool), **others} if not others:
            return _check_tool(tool, f"{place}.definition")
    raise _unknown(Fault.TOOL, place, "change of a tool")


def _objects(listed: Any, fault: Fault, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise Refused(fault, place, f"`{place}` is not a list of objects.")
    for number, entry in enumerate(listed):
        yield f"{place}.{number}", entry


def _unknown(fault: Fault, where: str, what: str) -> Refused:
    return Refused(fault, where, f"{where}: the API proxy does not pass this {what}. {UPGRADE}")


def _shown(name: Any) -> str:
    """Return a name for a message or a log line: short and on one line."""
    return ascii(str(name)[:MAX_SHOWN])[1:-1]


def known_headers(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the headers of a request that are passed on, without unknown betas."""
    passed: dict[str, str] = {}
    betas: list[str] = []
    for name, value in headers:
        if name.lower() == "anthropic-beta":
            betas += (beta for beta in split_betas(value) if beta in BETAS)
        elif name.lower() in HEADERS:
            passed[name.lower()] = value
    return {**passed, **({"anthropic-beta": ",".join(betas)} if betas else {})}


def split_betas(value: str) -> list[str]:
    return [name for name in map(str.strip, value.split(",")) if name]
