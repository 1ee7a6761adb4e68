"""What a run is doing at this moment, from the last thing that its stream said."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import OuterRef, QuerySet

from sessions_app.models import Session, SessionEvent
from sessions_app.reading.event_text import describe_event
from sessions_app.reading.plain_text import one_line

LONGEST = 120
TELLING = ("assistant", "user")
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
    """What a tool was called with: output, which not everybody may see. Empty without a tool."""
    words: str
    """For everybody."""
    since: datetime | None


def last_steps() -> QuerySet[SessionEvent]:
    """Of a running session, to be used inside of a query about sessions."""
    return SessionEvent.objects.filter(
        session=OuterRef("pk"),
        session__status=Session.Status.RUNNING,
        source=SessionEvent.Source.STREAM,
        kind__in=TELLING,
    ).order_by("-sequence")


def current_step(payload: Any, at: datetime | None) -> CurrentStep:
    lines = describe_event("stream", "", payload) if payload else ()
    if not lines:
        return CurrentStep(command="", words=STARTS, since=at)
    last = lines[-1]
    if last.kind != "tool":
        return CurrentStep(command="", words=WITHOUT_A_TOOL.get(last.kind, "it works"), since=at)
    told = one_line(last.text, LONGEST) or last.title
    return CurrentStep(command=told, words=f"it uses the tool {last.title}", since=at)
