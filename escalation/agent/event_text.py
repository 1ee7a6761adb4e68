"""An event of a session as a person wants to read it.

The stream of the CLI is kept as it came, and whatever comes is shown: fields that are missing, of
another type or hostile are normal here, so every value is asked for its type before it is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sessions_app.reading import stream_shape as shape
from sessions_app.reading.formatting import money
from sessions_app.reading.masking import masked
from sessions_app.reading.plain_text import as_text, cut, one_line

LONGEST_TEXT = 4_000
LONGEST_TITLE = 120
LONGEST_SUMMARY = 160

KIND_OF_LEVEL = {"warning": "warning", "error": "error"}

GATE_WORDS = {"allow": "allowed", "contain": "contained", "deny": "denied", "ask": "asked for"}

# What of a tool's input says what it does; any other tool shows its whole input.
TELLING_INPUTS = {
    "Bash": ("command",),
    "Read": ("file_path",),
    "Write": ("file_path",),
    "Edit": ("file_path",),
    "Grep": ("pattern", "path"),
    "Glob": ("pattern", "path"),
    "Task": ("description", "prompt"),
    "Agent": ("description", "prompt"),
    "WebFetch": ("url", "prompt"),
    "WebSearch": ("query",),
}

# A call that a rule forbids, or of a tool that the run was not given.
DENIAL = re.compile(
    r"^Permission to use (?P<denied>\S+).* denied"
    r"|^(?:<tool_use_error>)?(?:Error: )?No such tool available: (?P<missing>[\w-]+)",
    re.DOTALL,
)
WHY_DENIED = {
    "AskUserQuestion": "Nobody is there to answer while a run works: it decides within its role, "
    "or asks for a person in its report.",
}


@dataclass(frozen=True, slots=True)
class EventLine:
    kind: str
    """said, thinking, tool, tool_result, tool_error, denied, report, note, warning, error,
    result or noise."""
    title: str
    text: str


def describe_event(source: str, kind: str, payload: Any) -> tuple[EventLine, ...]:
    """What one stored event has to say: often one line, sometimes several, sometimes none."""
    data = shape.mapping(payload)
    if source == "supervisor":
        lines: Iterable[EventLine] = [_from_supervisor(kind, data)]
    elif source == "stderr":
        lines = [EventLine("warning", "stderr", as_text(data.get("text")))]
    elif source == "noise":
        lines = [EventLine("noise", "output", as_text(data.get("text")))]
    else:
        lines = _from_stream(kind or as_text(data.get("type")), data)
    return tuple(_within_limits(line) for line in lines)


def summary_line(line: EventLine) -> str:
    """The same in one line, for a terminal."""
    return one_line(f"{line.title}: {line.text}" if line.text else line.title, LONGEST_SUMMARY)


def _within_limits(line: EventLine) -> EventLine:
    """Masked before it is cut: transcripts are kept as they were, and so are older events."""
    title = one_line(masked(line.title), LONGEST_TITLE)
    return EventLine(line.kind, title, cut(masked(line.text).strip("\n"), LONGEST_TEXT))


def _from_supervisor(kind: str, data: Mapping[str, Any]) -> EventLine:
    level = KIND_OF_LEVEL.get(as_text(data.get("level")), "note")
    text = as_text(data.get("text"))
    if kind == "gate":
        return _gate(data, text)
    if kind == "gate_end":
        return EventLine("noise", "Gate · ended", text or _gate_end(data))
    if kind == "status":
        text = "\n".join(filter(None, [_status_change(data), text]))
    return EventLine(level, f"Claude Ops · {kind or 'note'}", text)


def _gate(data: Mapping[str, Any], text: str) -> EventLine:
    """One line for a command: what was said to it, and what it is."""
    verdict, rule = as_text(data.get("verdict")), as_text(data.get("rule"))
    said = " · ".join(filter(None, [GATE_WORDS.get(verdict, verdict), rule]))
    told = [one_line(as_text(data.get("command")), LONGEST_SUMMARY), as_text(data.get("reason"))]
    kind = "denied" if verdict == "deny" else "note"
    return EventLine(kind, f"Gate · {said}", "\n".join(filter(None, told)) or text)


def _gate_end(data: Mapping[str, Any]) -> str:
    code, took = as_text(data.get("exit_code")), data.get("milliseconds")
    is_number = isinstance(took, int | float) and not isinstance(took, bool)
    facts = [f"exit {code}" if code else "no exit code", f"{took:.0f} ms" if is_number else ""]
    return " · ".join(filter(None, facts))


def _status_change(data: Mapping[str, Any]) -> str:
    before, after = (as_text(data.get(key)).replace("_", " ") for key in ("from", "to"))
    return " → ".join(filter(None, [before, after]))


def _from_stream(kind: str, data: Mapping[str, Any]) -> Iterable[EventLine]:
    describe = STREAM_KINDS.get(kind) or STREAM_KINDS.get(kind.partition("/")[0])
    return describe(data) if describe else [EventLine("noise", kind or "unknown line", "")]


def _init(data: Mapping[str, Any]) -> Iterator[EventLine]:
    tools = data.get("tools")
    facts = [
        as_text(data.get("model")),
        f"{len(tools)} tools" if isinstance(tools, list) else "",
        as_text(data.get("cwd")),
        as_text(data.get("session_id")),
    ]
    yield EventLine("note", "Conversation opened", " · ".join(fact for fact in facts if fact))


def _assistant(data: Mapping[str, Any]) -> Iterator[EventLine]:
    whose = " (subagent)" if data.get("parent_tool_use_id") else ""
    for block in shape.blocks_of(data):
        match block.get("type"):
            case "text":
                yield EventLine("said", f"Claude{whose}", as_text(block.get("text")))
            case "thinking":
                yield EventLine("thinking", f"Thinking{whose}", as_text(block.get("thinking")))
            case "tool_use":
                yield _tool_use(block, whose)
            case other:
                yield EventLine("noise", as_text(other) or "unknown block", "")


def _tool_use(block: Mapping[str, Any], whose: str) -> EventLine:
    name, words = call_words(block)
    if name == shape.REPORT_TOOL:
        return EventLine("report", f"Report{whose}", _report_summary(block.get("input")))
    return EventLine("tool", f"{name}{whose}", words)


def call_words(block: Mapping[str, Any]) -> tuple[str, str]:
    """The tool of a call, and what of its input says what it does."""
    name, given = as_text(block.get("name")) or "unnamed tool", block.get("input")
    told = [as_text(shape.mapping(given).get(key)) for key in TELLING_INPUTS.get(name, ())]
    return name, "\n".join(filter(None, told)) or as_text(given)


def _report_summary(report: Any) -> str:
    fields = shape.mapping(report)
    lines = [as_text(fields.get("summary"))]
    reason = as_text(shape.mapping(fields.get("escalation")).get("reason"))
    if reason:
        lines.append(f"Escalation: {reason}")
    return "\n".join(filter(None, lines)) or as_text(report)


def _user(data: Mapping[str, Any]) -> Iterator[EventLine]:
    for block in shape.blocks_of(data):
        if block.get("type") == "tool_result":
            yield _tool_result(block)
        elif block.get("type") == "text":
            yield EventLine("note", "Prompt", as_text(block.get("text")))


def _tool_result(block: Mapping[str, Any]) -> EventLine:
    text = shape.output_of(block)
    if not block.get("is_error"):
        return EventLine("tool_result", "Result", text or "(no output)")
    if denial := DENIAL.search(text):
        tool = denial["denied"] or denial["missing"]
        why = WHY_DENIED.get(tool, "")
        return EventLine("denied", f"Denied · {tool}", "\n".join(filter(None, [why, text])))
    return EventLine("tool_error", "Tool error", text or "(no output)")


def _permission_denied(data: Mapping[str, Any]) -> Iterator[EventLine]:
    tool = as_text(data.get("tool_name")) or as_text(data.get("tool")) or "a tool"
    why = ("message", "reason", "decision_reason", "tool_input")
    told = [as_text(data.get(key)) for key in why]
    yield EventLine("denied", f"Denied · {tool}", "\n".join(filter(None, told)))


def _api_retry(data: Mapping[str, Any]) -> Iterator[EventLine]:
    attempt, limit = as_text(data.get("attempt")), as_text(data.get("max_retries"))
    facts = [
        f"attempt {attempt}{f' of {limit}' if limit else ''}" if attempt else "",
        f"HTTP {as_text(data.get('error_status'))}" if data.get("error_status") else "",
        as_text(data.get("error")),
    ]
    yield EventLine("warning", "API retry", " · ".join(fact for fact in facts if fact))


def _compaction(_data: Mapping[str, Any]) -> Iterator[EventLine]:
    yield EventLine("warning", "Conversation compacted", "Earlier tool outputs are now a summary.")


def _result(data: Mapping[str, Any]) -> Iterator[EventLine]:
    subtype = as_text(data.get("subtype")) or "no subtype"
    failed = bool(data.get("is_error")) or subtype != "success"
    facts = [
        f"{turns} turns" if (turns := as_text(data.get("num_turns"))) else "",
        f"the CLI counts {cost}" if (cost := _cost(data.get("total_cost_usd"))) else "",
    ]
    known = " · ".join(fact for fact in facts if fact)
    # With a structured report the result is that report once more, as one line of JSON.
    said = "" if data.get("structured_output") else as_text(data.get("result"))
    text = "\n".join(filter(None, [known, said]))
    yield EventLine("error" if failed else "result", f"Run ended: {subtype}", text)


def _cost(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    return money(value) if abs(value) < 1_000_000 else ""


def _nothing(_data: Mapping[str, Any]) -> Iterator[EventLine]:
    """Pieces of a message that also comes whole."""
    yield from ()


STREAM_KINDS: dict[str, Callable[[Mapping[str, Any]], Iterable[EventLine]]] = {
    "system/init": _init,
    "system/permission_denied": _permission_denied,
    "system/api_retry": _api_retry,
    "system/compact_boundary": _compaction,
    "assistant": _assistant,
    "user": _user,
    "result": _result,
    "stream_event": _nothing,
}
