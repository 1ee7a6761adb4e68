"""Events of a session as readable lines, and the current step of a running session.

The stream of the CLI is stored unchanged. Fields may be missing or of another type, so the type of
every value is checked before it is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db.models import OuterRef, QuerySet
from django.utils import timezone

from escalation.agent import stream as shape
from sessions_app.models import Session, SessionEvent
from sessions_app.models.session import SPOKEN, EventKind, EventSource, StreamKind, Verdict
from sessions_app.redaction.redact import redacted
from sessions_app.text import as_text, cost, cut, duration, mapping, money, one_line
from sessions_app.tiers import tier_row

LONGEST_TEXT = 4_000
LONGEST_TITLE = 120
LONGEST_SUMMARY = 160

KIND_OF_LEVEL = {"warning": "warning", "error": "error"}

COMMAND_POLICY_TEXTS = dict(Verdict.choices)

# The parts of the input to show; other tools show their whole input.
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

# A call that a rule denies, or of a tool that the run does not have.
DENIAL = re.compile(
    r"^Permission to use (?P<denied>\S+).* denied"
    r"|^(?:<tool_use_error>)?(?:Error: )?No such tool available: (?P<missing>[\w-]+)",
    re.DOTALL,
)
WHY_DENIED = {
    "AskUserQuestion": "Nobody answers questions during a run: the agent decides within its role, "
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
    """Return the lines for one stored event: usually one, sometimes several or none."""
    data = mapping(payload)
    if source == EventSource.SUPERVISOR:
        lines: Iterable[EventLine] = [_from_supervisor(kind, data)]
    elif source == EventSource.STDERR:
        lines = [EventLine("warning", "stderr", as_text(data.get("text")))]
    elif source == EventSource.NOISE:
        lines = [EventLine("noise", "output", as_text(data.get("text")))]
    else:
        lines = _from_stream(kind or as_text(data.get("type")), data)
    return tuple(_within_limits(line) for line in lines)


def summary_line(line: EventLine) -> str:
    """Return the event as one line for a terminal."""
    return one_line(f"{line.title}: {line.text}" if line.text else line.title, LONGEST_SUMMARY)


def _within_limits(line: EventLine) -> EventLine:
    """Redact secrets, then cut: half a secret would not be recognized."""
    title = one_line(redacted(line.title), LONGEST_TITLE)
    return EventLine(line.kind, title, cut(redacted(line.text).strip("\n"), LONGEST_TEXT))


def _from_supervisor(kind: str, data: Mapping[str, Any]) -> EventLine:
    level = KIND_OF_LEVEL.get(as_text(data.get("level")), "note")
    text = as_text(data.get("text"))
    if kind == EventKind.COMMAND:
        return _decision(data, text)
    if kind == EventKind.COMMAND_END:
        return EventLine("noise", "Command · ended", text or _command_end(data))
    if kind == EventKind.STATUS:
        text = "\n".join(filter(None, [_status_change(data), text]))
    if kind == EventKind.TOLD:
        return EventLine("said", f"{as_text(data.get('by')) or 'A person'} to the session", text)
    return EventLine(level, f"Claude Ops · {kind or 'note'}", text)


def _decision(data: Mapping[str, Any], text: str) -> EventLine:
    verdict, rule = as_text(data.get("verdict")), as_text(data.get("rule"))
    said = " · ".join(filter(None, [COMMAND_POLICY_TEXTS.get(verdict, verdict), rule]))
    lines = [one_line(as_text(data.get("command")), LONGEST_SUMMARY), as_text(data.get("reason"))]
    kind = "denied" if verdict == Verdict.DENY else "note"
    return EventLine(kind, f"Command · {said}", "\n".join(filter(None, lines)) or text)


def _command_end(data: Mapping[str, Any]) -> str:
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
    """Return the tool of a call and the significant part of its input."""
    name, given = as_text(block.get("name")) or "unnamed tool", block.get("input")
    shown = [as_text(mapping(given).get(key)) for key in TELLING_INPUTS.get(name, ())]
    return name, "\n".join(filter(None, shown)) or as_text(given)


def _report_summary(report: Any) -> str:
    fields = mapping(report)
    lines = [as_text(fields.get("summary"))]
    reason = as_text(mapping(fields.get("escalation")).get("reason"))
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
    keys = ("message", "reason", "decision_reason", "tool_input")
    reasons = filter(None, (as_text(data.get(key)) for key in keys))
    yield EventLine("denied", f"Denied · {tool}", "\n".join(reasons))


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
    # With a structured report the result repeats it as one line of JSON.
    said = "" if data.get("structured_output") else as_text(data.get("result"))
    text = "\n".join(filter(None, [known, said]))
    yield EventLine("error" if failed else "result", f"Run ended: {subtype}", text)


def _cost(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    return money(value) if abs(value) < 1_000_000 else ""


def _nothing(_data: Mapping[str, Any]) -> Iterator[EventLine]:
    """Ignore parts of a message that also arrives as a whole."""
    yield from ()


STREAM_KINDS: dict[str, Callable[[Mapping[str, Any]], Iterable[EventLine]]] = {
    "system/init": _init,
    "system/permission_denied": _permission_denied,
    "system/api_retry": _api_retry,
    "system/compact_boundary": _compaction,
    StreamKind.ASSISTANT: _assistant,
    StreamKind.USER: _user,
    StreamKind.RESULT: _result,
    "stream_event": _nothing,
}


# Events in a terminal, as they come.


class EventLines:
    """Turns events of one or several sessions, in their order, into lines for a terminal."""

    def __init__(self, *, with_session: bool = False, indent: str = "") -> None:
        self._with_session = with_session
        self._indent = indent

    def of(self, event: SessionEvent) -> Iterator[str]:
        """Return the lines that an event completes."""
        for line in describe_event(event.source, event.kind, event.payload):
            yield f"{self.begin(event)}{summary_line(line)}"

    def left(self) -> Iterator[str]:
        """Return the lines that no event has completed."""
        yield from ()

    def begin(self, event: SessionEvent) -> str:
        when = timezone.localtime(event.created_at).strftime("%H:%M:%S")
        whose = f"#{event.session_id} {event.session.cycle.subject} " if self._with_session else ""
        return f"{self._indent}{when} {whose}Tier {event.session.tier}  "


def start_of_tier(session: Session) -> str:
    return f"── Session {session.pk}: Tier {session.tier}, {session.model}"


def end_of_tier(session: Session) -> str:
    """Return the status, cost and duration of a session that has run."""
    paid = cost(session.cost_usd, session.estimated_cost_usd)
    status, took = session.get_status_display(), duration(session.duration_ms)
    return f"── Tier {session.tier} {status}: {paid}, {took}"


# Current step of a running session, from the last line of its stream.

LONGEST = 120
WITHOUT_A_TOOL = {
    "said": "it writes",
    "thinking": "it thinks",
    "report": "it writes its report",
    "tool_result": "it reads what came back",
    "tool_error": "it reads what went wrong",
    "denied": "it reads why it was refused",
}
STARTS = "it starts"


@dataclass(frozen=True, kw_only=True, slots=True)
class CurrentStep:
    command: str
    """Input of the tool call, for users who may see output. Empty without a tool."""
    words: str
    """Description for all users."""
    since: datetime | None


def last_steps() -> QuerySet[SessionEvent]:
    """Return the subquery for the last events of a running session."""
    return SessionEvent.objects.filter(
        session=OuterRef("pk"),
        session__status=Session.Status.RUNNING,
        source=SessionEvent.Source.STREAM,
        kind__in=SPOKEN,
    ).order_by("-sequence")


def current_step(payload: Any, at: datetime | None) -> CurrentStep:
    lines = describe_event(SessionEvent.Source.STREAM, "", payload) if payload else ()
    if not lines:
        return CurrentStep(command="", words=STARTS, since=at)
    last = lines[-1]
    if last.kind != "tool":
        return CurrentStep(command="", words=WITHOUT_A_TOOL.get(last.kind, "it works"), since=at)
    command = one_line(last.text, LONGEST) or last.title
    return CurrentStep(command=command, words=f"it uses the tool {last.title}", since=at)


# Open tool call and usage of a running session.

EVENTS_LOOKED_AT = 60
LONGEST_CALL = 90
TOKEN_KINDS = (
    *("input_tokens", "output_tokens"),
    *("cache_read_input_tokens", "cache_creation_input_tokens"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenCall:
    """A tool call whose result has not come yet."""

    tool: str
    words: str
    since: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveRun:
    session: Session
    seconds: int
    limit_seconds: int
    call: OpenCall | None
    """None while the model thinks or before the first line."""
    call_seconds: int
    tokens: int
    budget_usd: Decimal


def load_live_run(session: Session) -> LiveRun:
    now, call = timezone.now(), open_call(_latest_events(session))
    return LiveRun(
        session=session,
        seconds=_seconds(session.started_at, now),
        limit_seconds=tier_row(session.tier).timeout_seconds,
        call=call,
        call_seconds=_seconds(call.since, now) if call else 0,
        tokens=tokens_in(_usages(session)),
        budget_usd=budget_of(session),
    )


def budget_of(session: Session) -> Decimal:
    """Return the budget of the session, or that of its tier before it starts."""
    own = session.max_budget_usd
    return own if own is not None else Decimal(tier_row(session.tier).max_budget_usd)


def open_call(events: Iterable[SessionEvent]) -> OpenCall | None:
    """Return the latest call without a result. Events come newest first."""
    answered: set[str] = set()
    for event in events:
        line = mapping(event.payload)
        answered |= shape.answered_calls(line)
        for block in reversed(shape.calls_of(line)):
            if as_text(block.get("id")) not in answered:
                return _call(block, event.created_at)
    return None


def tokens_in(usages: Iterable[tuple[Any, Any]]) -> int:
    """Sum up usage. An answer has several lines with its usage so far: the last one counts."""
    last = {as_text(message): mapping(usage) for message, usage in usages}
    return sum(_count(usage.get(kind)) for usage in last.values() for kind in TOKEN_KINDS)


def _call(block: Any, since: datetime) -> OpenCall:
    tool, words = call_words(block)
    return OpenCall(tool=tool, words=one_line(redacted(words), LONGEST_CALL), since=since)


def _latest_events(session: Session) -> Iterable[SessionEvent]:
    spoken = session.events.filter(source=SessionEvent.Source.STREAM, kind__in=SPOKEN)
    return spoken.order_by("-sequence")[:EVENTS_LOOKED_AT]


def _usages(session: Session) -> Iterable[tuple[Any, Any]]:
    answers = session.events.filter(source=SessionEvent.Source.STREAM, kind=StreamKind.ASSISTANT)
    return answers.order_by("sequence").values_list(
        "payload__message__id", "payload__message__usage"
    )


def _seconds(since: datetime | None, now: datetime) -> int:
    return max(0, int((now - since).total_seconds())) if since else 0


def _count(value: Any) -> int:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return max(0, value) if is_number else 0
