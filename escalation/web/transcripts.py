"""Page of a transcript: the archived conversation in pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.core.paginator import Page, Paginator
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from escalation.agent.event_text import EventLine, describe_event
from escalation.web.responses import HtmxRequest, wants_fragment
from sessions_app.access.permissions import needs
from sessions_app.access.roles import Right
from sessions_app.archive.messages import load_readable, messages_in_order
from sessions_app.archive.transcripts import (
    Entry,
    TranscriptDamaged,
    latest_project,
    subtranscripts,
)
from sessions_app.models import Session, Transcript
from sessions_app.models.session import EventSource
from sessions_app.redaction.redact import redacted
from sessions_app.text import as_text, cut, one_line

if TYPE_CHECKING:
    from claude_agent_sdk import SessionMessage


MESSAGES_PER_PAGE = 50
LONGEST_NAME = 80
LONGEST_SUMMARY = 20_000
AGENT_PREFIX = "agent-"

NO_CONVERSATION = (
    "This run has no conversation: the CLI never named one, so it wrote no transcript."
)
NOT_YET = "The transcript is archived when the run ends. Until then, the live output shows it."
NOT_STARTED = "The run has not started, so nothing has been said yet."
NOT_ARCHIVED = (
    "No transcript of this conversation is archived. Either the run ended before the CLI wrote "
    "one, or the file was gone or unreadable when it was to be copied: the worker's log has the "
    "reason. What the run printed is kept in its output."
)
NOT_KEPT = (
    "This run was not kept: its conversation was neither saved nor archived, so it cannot be read "
    "or continued. What the run printed is kept in its output."
)
NO_MESSAGE = "The CLI wrote a transcript, but no message is in it: the run ended before the first."
DAMAGED = (
    "The archived copy is damaged and cannot be shown. Check CLAUDEOPS_ARCHIVE_DIR: {error}. What "
    "the run printed is kept in its output."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscriptMessage:
    number: int
    said_at: datetime | None
    lines: tuple[EventLine, ...]
    begins_run: bool
    """True for the first message of this session; those above came with the resume."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Subagent:
    name: str
    """Name in the address of its page."""
    title: str
    kind: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscriptPage:
    session: Session
    agent: Subagent | None
    subagents: tuple[Subagent, ...]
    page: Page[SessionMessage]
    messages: tuple[TranscriptMessage, ...]
    why_empty: str


class UnknownSubagent(Exception):
    """The conversation has no subagent of that name."""


def load_transcript(session: Session, number: str | None, agent_name: str) -> TranscriptPage:
    project = latest_project(session.session_id) if session.session_id else None
    rows = _subagent_rows(project, session) if project else {}
    if agent_name and agent_name not in rows:
        raise UnknownSubagent(agent_name)
    why_empty = "" if project else _why_not_archived(session)
    entries: list[Entry] = []
    if project:
        try:
            entries = load_readable(project, session.session_id, rows.get(agent_name))
        except TranscriptDamaged as error:
            why_empty = DAMAGED.format(error=one_line(str(error), 300))
    conversation = _Conversation(session, entries)
    page = Paginator(conversation.messages, MESSAGES_PER_PAGE).get_page(number)
    subagents = {name: _subagent(name, row) for name, row in rows.items()}
    return TranscriptPage(
        session=session,
        agent=subagents.get(agent_name),
        subagents=tuple(subagents.values()),
        page=page,
        messages=tuple(conversation.shown(page)),
        why_empty=why_empty or ("" if conversation.messages else NO_MESSAGE),
    )


class _Conversation:
    def __init__(self, session: Session, entries: list[Entry]) -> None:
        self._by_uuid = {entry["uuid"]: entry for entry in entries if "uuid" in entry}
        self.messages = messages_in_order(session.session_id, entries)
        self._first_of_run = self._first_since(session.started_at)

    def shown(self, page: Page[SessionMessage]) -> Iterator[TranscriptMessage]:
        for number, message in enumerate(page.object_list, start=page.start_index()):
            entry = self._by_uuid[message.uuid]
            yield TranscriptMessage(
                number=number,
                said_at=_time_of(entry),
                lines=_described(message, entry),
                begins_run=number == self._first_of_run,
            )

    def _first_since(self, start: datetime | None) -> int | None:
        """Returns the first entry of the session; None if the session began the conversation."""
        for number, message in enumerate(self.messages, start=1):
            said_at = _time_of(self._by_uuid[message.uuid])
            if start and said_at and said_at >= start:
                return number if number > 1 else None
        return None


def _described(message: SessionMessage, entry: Entry) -> tuple[EventLine, ...]:
    payload = {"type": message.type, "message": message.message}
    if entry.get("isCompactSummary") is True:
        content = payload["message"]
        text = as_text(content.get("content") if isinstance(content, dict) else content)
        return (
            EventLine("warning", "Conversation compacted", cut(redacted(text), LONGEST_SUMMARY)),
        )
    lines = describe_event(EventSource.STREAM, message.type, payload)
    return lines or (EventLine("noise", "message", "(nothing that can be shown as text)"),)


def _time_of(entry: Entry) -> datetime | None:
    try:
        said_at = parse_datetime(as_text(entry.get("timestamp")))
        return timezone.make_aware(said_at) if said_at and said_at.tzinfo is None else said_at
    except (ValueError, OverflowError):
        return None


def _subagent_rows(project: str, session: Session) -> dict[str, Transcript]:
    rows = subtranscripts(project, session.session_id).filter(subpath__startswith="subagents/")
    named = {row.subpath.rsplit("/", 1)[-1]: row for row in rows}
    return {
        name.removeprefix(AGENT_PREFIX): row
        for name, row in named.items()
        if name.startswith(AGENT_PREFIX)
    }


def _subagent(name: str, row: Transcript) -> Subagent:
    told: dict[str, Any] = row.summary or {}
    title = one_line(redacted(as_text(told.get("description"))), LONGEST_NAME)
    kind = one_line(as_text(told.get("agentType")), LONGEST_NAME)
    return Subagent(name=name, title=title or one_line(name, LONGEST_NAME), kind=kind)


def _why_not_archived(session: Session) -> str:
    if session.status == Session.Status.QUEUED:
        return NOT_STARTED
    if session.is_open:
        return NOT_YET
    if session.cycle.ephemeral:
        return NOT_KEPT
    return NOT_ARCHIVED if session.session_id else NO_CONVERSATION


@needs(Right.SEE_OUTPUT)
@require_safe
@vary_on_headers("HX-Request")
def transcript(request: HtmxRequest, pk: int) -> HttpResponse:
    session = get_object_or_404(Session.objects.select_related("cycle__watch"), pk=pk)
    asked = request.GET
    try:
        loaded = load_transcript(session, asked.get("page"), asked.get("agent", ""))
    except UnknownSubagent as error:
        raise Http404("The conversation has no such subagent.") from error
    agent = f"{urlencode({'agent': loaded.agent.name})}&" if loaded.agent else ""
    template = "_transcript.html" if wants_fragment(request) else "transcript.html"
    context = {
        "session": session,
        "transcript": loaded,
        "address": f"{request.path}?{agent}",
    }
    return render(request, f"web/{template}", context)
