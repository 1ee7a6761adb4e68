"""The shape of the CLI's stream: where in a line which fact stands.

The one module that knows it. Lines are read without trust: a field that is missing or of another
type reads as empty, and nothing here raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sessions_app.reading.plain_text import as_text

# How the CLI takes the report: a call that looks at nothing and changes nothing.
REPORT_TOOL = "StructuredOutput"
# What the CLI puts in by itself, such as the text of an API failure, is nobody's word.
SYNTHETIC_MODEL = "<synthetic>"


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def message_of(line: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(line.get("message"))


def blocks_of(line: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The pieces of a message; a plain string counts as one piece of text."""
    content = message_of(line).get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        return []
    return [block for block in content if isinstance(block, Mapping)]


def output_of(result: Mapping[str, Any]) -> str:
    """What a tool gave back: a string, or a list of pieces of which only text can be told."""
    content = result.get("content")
    if not isinstance(content, list):
        return as_text(content)
    return "\n".join(
        as_text(piece.get("text") if piece.get("type") == "text" else piece.get("type"))
        for piece in content
        if isinstance(piece, Mapping)
    )


def is_answer(line: Mapping[str, Any]) -> bool:
    """The model said something: money was spent."""
    said_by = message_of(line).get("model")
    return line.get("type") == "assistant" and said_by != SYNTHETIC_MODEL


def is_main_thread(line: Mapping[str, Any]) -> bool:
    """Not of a subagent."""
    return line.get("parent_tool_use_id") is None


def calls_of(line: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The calls of real tools that a line begins."""
    if line.get("type") != "assistant":
        return []
    calls = [block for block in blocks_of(line) if block.get("type") == "tool_use"]
    return [block for block in calls if block.get("name") != REPORT_TOOL]


def results_of(line: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The results of tools that a line brings."""
    blocks = blocks_of(line) if line.get("type") == "user" else []
    return [block for block in blocks if block.get("type") == "tool_result"]


def begun_calls(line: Mapping[str, Any]) -> set[str]:
    """The ids of all calls that a line begins, the report's included."""
    blocks = blocks_of(line) if line.get("type") == "assistant" else []
    return {text(block.get("id")) for block in blocks} - {""}


def answered_calls(line: Mapping[str, Any]) -> set[str]:
    """The ids of the calls whose results a line brings."""
    return {text(block.get("tool_use_id")) for block in results_of(line)} - {""}
