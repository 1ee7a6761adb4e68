"""The model's side of a trial: it asks for one tool call after another, whatever comes back.

Between two requests of the CLI nothing of the earlier call should be left: that is the moment at
which each call's effects are looked at, so that they are its own.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from escalation.agent import NO_USAGE, Answer, MessagesHandler, ToolCall, is_auxiliary

LAST_WORD = Answer(say="That was all.", usage=NO_USAGE)
BESIDE_THE_SCRIPT = Answer(say="ok", usage=NO_USAGE)


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolResult:
    """What the model got back for one call."""

    text: str
    is_error: bool


@dataclass(slots=True)
class CallScript:
    """Plays a list of calls in one conversation, and reports each result as it arrives."""

    on_result: Callable[[int, ToolResult], None]
    """The number of the call and its result; called before the next call is given out."""
    on_prompt: Callable[[str], None]
    """The words with which the conversation opens, as the model's side sees them."""
    is_foreign: Callable[[Mapping[str, Any]], bool]
    """Whether a request comes from somebody else than the CLI."""
    calls: Sequence[ToolCall] = ()
    was_asked: bool = False
    given: int = 0
    _reported: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: dict[str, Any]) -> Answer:
        if self.is_foreign(request) or is_auxiliary(request):
            return BESIDE_THE_SCRIPT
        with self._lock:
            results = _newest_results(request)
            if not self.was_asked:
                self.was_asked = True
                self.on_prompt(json.dumps(request.get("messages"), ensure_ascii=False))
            elif results and self._reported < self.given:
                self.on_result(self.given - 1, results[-1])
                self._reported = self.given
            if self.given >= len(self.calls):
                return LAST_WORD
            call = self.calls[self.given]
            self.given += 1
        return Answer(calls=(call,), usage=NO_USAGE)


class CallHandler(MessagesHandler):
    def answer_to(self, request: dict[str, Any]) -> None:
        self.send_answer(cast(CallScript, self.player).answer(request), request)


def _newest_results(request: Mapping[str, Any]) -> list[ToolResult]:
    """The tool results of the last message that has any: the CLI may add notes behind them."""
    for message in reversed(request.get("messages") or []):
        content = message.get("content") if message.get("role") == "user" else None
        blocks = content if isinstance(content, list) else []
        found = [block for block in blocks if block.get("type") == "tool_result"]
        if found:
            return [_result(block) for block in found]
    return []


def _result(block: Mapping[str, Any]) -> ToolResult:
    content = block.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    text = "\n".join(str(part.get("text") or "") for part in parts if isinstance(part, dict))
    return ToolResult(text=text, is_error=bool(block.get("is_error")))
