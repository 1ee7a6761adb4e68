"""Live output by server-sent events.

A session runs in another process, so its events come from the database. One feed reads them for all
viewers of a session or a cycle, and their access is checked together (`still_allowed`).
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import re
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from asgiref.sync import SyncToAsync, sync_to_async
from django.contrib.auth.models import User
from django.core.serializers.json import DjangoJSONEncoder
from django.db import DatabaseError, connection, connections
from django.db.models import Q
from django.http import HttpRequest, StreamingHttpResponse
from django.shortcuts import aget_object_or_404
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from django.views.decorators.http import require_GET

from escalation.agent.event_text import EventLine, describe_event
from escalation.agent.stream import blocks_of
from sessions_app.access.permissions import needs
from sessions_app.access.roles import Right, rights_of
from sessions_app.access.tokens import still_valid
from sessions_app.history.commands import JudgedCommand, judged_commands
from sessions_app.models import ApiToken, Cycle, Session, SessionEvent
from sessions_app.models.session import EventKind, EventSource, Verdict
from sessions_app.redaction.redact import redacted_data
from sessions_app.text import as_text, clean, duration, mapping, one_line

logger = logging.getLogger(__name__)

# Django keeps a thread and a database connection for each request until its response ends. A stream
# lasts for minutes, so it releases both, and reads for several streams run in another thread.


def own_context() -> contextvars.Context:
    """Return a context for a task that serves several requests, without a request's thread."""
    context = contextvars.copy_context()
    context.run(SyncToAsync.thread_sensitive_context.set, None)  # type: ignore[arg-type]
    return context


async def give_thread_back() -> None:
    """Release the thread of the request. It gets another one when needed."""
    await sync_to_async(_close_connections)()
    request = SyncToAsync.thread_sensitive_context.get(None)
    executor = SyncToAsync.context_to_thread_executor.pop(request, None) if request else None
    if executor is not None:
        executor.shutdown(wait=False)


def _close_connections() -> None:
    for opened in connections.all(initialized_only=True):
        if not opened.in_atomic_block:
            opened.close()


ASK_AGAIN_SECONDS = 5.0
"""Longest time for which a stream goes on after the right was removed."""


@dataclass(eq=False, slots=True)
class Ticket:
    """Permission of one viewer to read a stream."""

    user_pk: int
    auth_hash: str
    """Session hash of the account; a new password invalidates the ticket."""
    right: Right
    is_good: bool = True
    token_pk: int | None = None
    """The API token of the viewer; one that is revoked or expires invalidates the ticket."""

    def __enter__(self) -> Ticket:
        _keeper().add(self)
        return self

    def __exit__(self, *_error: object) -> None:
        _keeper().remove(self)


def ticket_for(request: HttpRequest, right: Right, token_pk: int | None = None) -> Ticket:
    """Return a ticket for a request whose right was checked."""
    user = request.user
    assert isinstance(user, User), "the request has no account"
    return Ticket(
        user_pk=user.pk, auth_hash=user.get_session_auth_hash(), right=right, token_pk=token_pk
    )


class Keeper:
    """Checks all tickets of one event loop."""

    def __init__(self) -> None:
        self._tickets: set[Ticket] = set()
        self._task: asyncio.Task[None] | None = None

    def add(self, ticket: Ticket) -> None:
        self._tickets.add(ticket)
        if self._task is None:
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._look(), context=own_context())

    def remove(self, ticket: Ticket) -> None:
        self._tickets.discard(ticket)
        if not self._tickets and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(ASK_AGAIN_SECONDS)
            try:
                await sync_to_async(check_tickets)(tuple(self._tickets))
            except DatabaseError:
                logger.warning(
                    "Could not check the rights of stream viewers; retrying", exc_info=True
                )
                await sync_to_async(connection.close)()


def check_tickets(tickets: Iterable[Ticket]) -> None:
    """Update the tickets, with two queries, and one more if some came with an API token."""
    tickets = list(tickets)
    valid = _valid_tokens(tickets)
    users = User.objects.prefetch_related("groups").in_bulk({ticket.user_pk for ticket in tickets})
    for ticket in tickets:
        user = users.get(ticket.user_pk)
        ticket.is_good = user is not None and _may_still(user, ticket)
        if ticket.token_pk is not None and ticket.token_pk not in valid:
            ticket.is_good = False


def _valid_tokens(tickets: Iterable[Ticket]) -> set[int]:
    numbers = {ticket.token_pk for ticket in tickets if ticket.token_pk is not None}
    if not numbers:
        return set()
    rows = ApiToken.objects.filter(still_valid(timezone.now()), pk__in=numbers)
    return set(rows.values_list("pk", flat=True))


def _may_still(user: User, ticket: Ticket) -> bool:
    same_password = constant_time_compare(user.get_session_auth_hash(), ticket.auth_hash)
    return same_password and ticket.right in rights_of(user)


_keepers: WeakKeyDictionary[asyncio.AbstractEventLoop, Keeper] = WeakKeyDictionary()


def _keeper() -> Keeper:
    return _keepers.setdefault(asyncio.get_running_loop(), Keeper())


# Position of a viewer: the last event seen of each session. Sessions of a cycle can overlap (a
# plan session runs while a tier waits, and the supervisor writes after the end), so one number
# is not enough.

NOTHING = -2
HEADING = -1
"""Position at the heading of a session, before its first event."""
ALL = 999_999_999
LONGEST_TEXT = 4_000
PAIR = re.compile(r"([0-9]{1,15}):(-1|[0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class LivePosition:
    seen: Mapping[int, int] = field(default_factory=dict)
    """Maps a session to the sequence number of the last event."""

    def __str__(self) -> str:
        return ",".join(f"{session}:{number}" for session, number in self.seen.items())

    def of(self, session: int) -> int:
        return self.seen.get(session, NOTHING)

    def covers(self, other: LivePosition) -> bool:
        """Returns whether this position includes everything that the other one has seen."""
        return all(self.of(session) >= number for session, number in other.seen.items())

    def moved(self, session: int, number: int) -> LivePosition:
        return LivePosition({**self.seen, session: max(number, self.of(session))})

    def joined(self, other: LivePosition) -> LivePosition:
        further = {session: max(number, self.of(session)) for session, number in other.seen.items()}
        return LivePosition({**self.seen, **further})


def read_position(text: str | None) -> LivePosition:
    """Reads a position from a request; invalid parts are ignored."""
    parts = (text or "")[:LONGEST_TEXT].split(",")
    pairs = filter(None, map(PAIR.fullmatch, parts))
    return LivePosition({int(pair[1]): int(pair[2]) for pair in pairs})


# Events of a session as log entries; events with nothing to show are left out.


PLUMBING = frozenset({"note", "noise", "result"})
CALLS = frozenset({"tool", "report"})


class Chip(NamedTuple):
    tone: str
    words: str


@dataclass(frozen=True, slots=True)
class LogEntry:
    event: SessionEvent
    lines: tuple[EventLine, ...]
    in_chain: bool = False
    """True on a page with several sessions, each with its own sequence numbers."""
    decisions: tuple[SessionEvent, ...] = ()
    """Decisions on the commands of a call and their ends, joined by `one_row_a_call`."""
    result: EventLine | None = None
    """Result of a call, folded below it."""
    took: timedelta | None = None
    """Time from a call to its result."""

    @property
    def chips(self) -> tuple[Chip, ...]:
        """Verdicts, exit codes and time of a call."""
        chips = chips_of(judged_commands(self.decisions))
        if self.took is not None:
            chips.append(Chip("quiet", duration(self.took.total_seconds() * 1000)))
        if self.result is not None and self.result.kind != "tool_result":
            chips.append(Chip("bad", self.result.title))
        return tuple(chips)

    @property
    def is_plumbing(self) -> bool:
        """True if nothing in it was said, called or refused: shown behind a switch."""
        return all(line.kind in PLUMBING for line in self.lines)

    @property
    def anchor(self) -> str:
        session = f"{self.event.session_id}-" if self.in_chain else ""
        return f"event-{session}{self.event.sequence}"


def log_entries(events: Iterable[SessionEvent], *, in_chain: bool = False) -> list[LogEntry]:
    entries = [
        LogEntry(event, describe_event(event.source, event.kind, event.payload), in_chain)
        for event in events
    ]
    return [entry for entry in entries if entry.lines]


VERDICT_TONES = {
    Verdict.ALLOW: "good",
    Verdict.ISOLATE: "live",
    Verdict.DENY: "bad",
    Verdict.ASK: "warn",
}


class CallRows:
    """Joins a call with the decision on its command, its exit code and its result, as one row.

    A decision is joined only while one call is open: with two the record does not say whose it is.
    """

    def __init__(self) -> None:
        self._open: dict[str, LogEntry] = {}

    def add(self, entry: LogEntry) -> tuple[LogEntry, bool]:
        """Return the row that an entry begins or completes, and whether it was begun before."""
        payload, only = mapping(entry.event.payload), entry.lines[0]
        block = next(iter(blocks_of(payload)), {}) if len(entry.lines) == 1 else {}
        call = self._open.pop(as_text(block.get("tool_use_id")), None)
        if call is not None:
            return _with_result(call, entry, only), True
        if (
            len(self._open) == 1
            and entry.event.source == EventSource.SUPERVISOR
            and entry.event.kind in (EventKind.COMMAND, EventKind.COMMAND_END)
        ):
            number, call = self._open.popitem()
            row = self._open[number] = replace(call, decisions=(*call.decisions, entry.event))
            return row, True
        if only.kind in CALLS and block.get("type") == "tool_use":
            self._open[as_text(block.get("id"))] = entry
        return entry, False

    @property
    def has_open(self) -> bool:
        return bool(self._open)

    def is_open(self, row: LogEntry) -> bool:
        """Return whether a row is a call whose result has not come."""
        return any(row.event is call.event for call in self._open.values())

    def left(self) -> tuple[LogEntry, ...]:
        """Return the calls without a result, and forget them."""
        rows, self._open = tuple(self._open.values()), {}
        return rows


def one_row_a_call(entries: Iterable[LogEntry]) -> list[LogEntry]:
    """Return the entries of one session with one row for each call."""
    calls, rows = CallRows(), dict[str, LogEntry]()
    for entry in entries:
        row, _ = calls.add(entry)
        rows[row.anchor] = row
    return list(rows.values())


def _with_result(call: LogEntry, end: LogEntry, result: EventLine) -> LogEntry:
    took = end.event.created_at - call.event.created_at
    return replace(call, result=result, took=took)


MOST_PROGRAMS = 6
LONGEST_PROGRAM = 32


def chips_of(commands: Sequence[JudgedCommand]) -> list[Chip]:
    """Return one verdict and one exit code of a call, or each program with its own.

    A shell text that runs in its sandbox is judged, and so is each program that it starts: for its
    only program, the verdict is that of the program.
    """
    inside = {one.parent for one in commands} - {""}
    judged = [one for one in commands if one.call not in inside or not one.call]
    codes = {one.exit_code for one in commands if one.exit_code is not None}
    verdicts = {one.verdict for one in judged}
    if len(verdicts) <= 1 and len(codes) <= 1:
        return [*map(_verdict_chip, judged[:1]), *map(_exit_chip, codes)]
    shells = [one for one in commands if one not in judged and one.exit_code is not None]
    own = list(dict.fromkeys(map(_program_chip, judged)))
    more = [Chip("quiet", f"{len(own) - MOST_PROGRAMS} more")] if len(own) > MOST_PROGRAMS else []
    last = [_exit_chip(one.exit_code) for one in shells[-1:] if one.exit_code is not None]
    return [*own[:MOST_PROGRAMS], *more, *last]


def _verdict_chip(command: JudgedCommand) -> Chip:
    return Chip(_tone_of(command), command.word)


def _exit_chip(code: int) -> Chip:
    return Chip("bad" if code else "good", f"exit {code}")


def _program_chip(command: JudgedCommand) -> Chip:
    code = command.exit_code
    end = "" if code is None else f", exit {code}"
    tone = "bad" if code else _tone_of(command)
    return Chip(tone, f"{one_line(command.command, LONGEST_PROGRAM)}: {command.word}{end}")


def _tone_of(command: JudgedCommand) -> str:
    is_known = command.verdict in Verdict.values
    return VERDICT_TONES[Verdict(command.verdict)] if is_known else "quiet"


# One look at the events of a session, or of all sessions of a cycle, rendered.
# The status is read before the events, or an event written just before the end could be missed.
# Each event is one message with the viewer's position as its id, so that a browser reconnects where
# it stopped. A look is the last one when the status has been final for a moment, because the
# supervisor writes its last events after the end. In a cycle a heading precedes the first event
# of each session.

EVENTS_PER_LOOK = 200
LAST_WORDS = timedelta(seconds=1)
LONGEST_NUMBER = 10
HEADING_FIELDS = ("tier", "purpose", "model", "status", "finished_at", "cycle_id")


class LiveMessage(NamedTuple):
    """One entry, rendered once for all viewers; the id is added for each viewer."""

    session: int
    number: int
    data: str


@dataclass(frozen=True, slots=True)
class Look:
    messages: tuple[LiveMessage, ...]
    last: LivePosition
    """Position after the last event read; some events have nothing to show."""
    done: bool
    place: int = 0
    """Number of feed messages up to and including this look."""


class Subject(NamedTuple):
    """A session or a cycle that is watched."""

    pk: int
    is_cycle: bool = False
    is_data: bool = False
    """As data for programs, in place of entries of a page."""

    def position_in(self, text: str | None) -> LivePosition | None:
        """Reads the position that a browser sends; None if it is invalid."""
        if self.is_cycle:
            position = read_position(text)
            return position if position.seen else None
        is_number = text is not None and text.isascii() and text.isdecimal()
        if text is None or not is_number or len(text) >= LONGEST_NUMBER:
            return None
        return LivePosition({self.pk: int(text)})

    def mark(self, position: LivePosition) -> str:
        return str(position if self.is_cycle else max(position.of(self.pk), HEADING))


def look_at(subject: Subject, after: LivePosition) -> Look:
    sessions, ended = _snapshot_of(subject)
    events = _events_after(sessions, after)
    messages = tuple(_messages(subject, sessions, events, after))
    ends = {event.session_id: event.sequence for event in events}
    return Look(
        messages=messages,
        last=after.joined(LivePosition(ends)),
        done=ended and len(events) < EVENTS_PER_LOOK,
    )


def _snapshot_of(subject: Subject) -> tuple[dict[int, Session], bool]:
    """Returns the sessions to read, and whether no more events are expected."""
    rows = Session.objects.only(*HEADING_FIELDS)
    if not subject.is_cycle:
        sessions = rows.filter(pk=subject.pk).in_bulk()
        return sessions, all(_is_over(s.is_open, s.finished_at) for s in sessions.values())
    cycle = Cycle.objects.filter(pk=subject.pk).only("state", "finished_at").first()
    over = cycle is None or _is_over(cycle.is_active, cycle.finished_at)
    return {session.pk: session for session in rows.filter(cycle=subject.pk).order_by("pk")}, over


def _is_over(is_open: bool, finished_at: datetime | None) -> bool:
    if is_open:
        return False
    return finished_at is None or timezone.now() - finished_at >= LAST_WORDS


def _events_after(sessions: dict[int, Session], after: LivePosition) -> list[SessionEvent]:
    unseen = Q()
    for session in sessions:
        unseen |= Q(session=session, sequence__gt=after.of(session))
    if not sessions:
        return []
    found = SessionEvent.objects.filter(unseen).order_by("session_id", "sequence")
    return list(found[:EVENTS_PER_LOOK])


def _messages(
    subject: Subject,
    sessions: dict[int, Session],
    events: Sequence[SessionEvent],
    after: LivePosition,
) -> Iterator[LiveMessage]:
    if subject.is_data:
        for event in events:
            yield LiveMessage(
                event.session_id,
                event.sequence,
                data_lines(_as_json(event, sessions[event.session_id].cycle_id)),
            )
        return
    entries = {entry.event.pk: entry for entry in log_entries(events, in_chain=subject.is_cycle)}
    announced = {session for session in sessions if after.of(session) != NOTHING}
    calls = _calls_before(subject, entries.values(), after)
    for event in events:
        number = event.session_id
        if subject.is_cycle and number not in announced:
            announced.add(number)
            yield LiveMessage(number, HEADING, data_lines(_heading(sessions[number])))
        if entry := entries.get(event.pk):
            row, is_known = calls[number].add(entry)
            yield LiveMessage(number, event.sequence, data_lines(_rendered(row, is_known)))


def event_as_data(event: SessionEvent, cycle: int | None = None) -> dict[str, Any]:
    """Return an event as plain data, which commands print as JSON."""
    return {
        "session": event.session_id,
        "cycle": cycle if cycle is not None else event.session.cycle_id,
        "sequence": event.sequence,
        "at": event.created_at,
        "source": event.source,
        "kind": event.kind,
        "payload": event.payload,
    }


def _as_json(event: SessionEvent, cycle: int) -> str:
    plain = json.loads(json.dumps(event_as_data(event, cycle), cls=DjangoJSONEncoder))
    return json.dumps(redacted_data(plain))


EVENTS_BEFORE = 40
"""How far back the call of a result is looked for."""


def _calls_before(
    subject: Subject, entries: Iterable[LogEntry], after: LivePosition
) -> dict[int, CallRows]:
    """Return the rows of each session, with the calls that an earlier look has shown as open."""
    calls: dict[int, CallRows] = defaultdict(CallRows)
    for session in {entry.event.session_id for entry in entries}:
        last = after.of(session)
        if last < 0:
            continue
        earlier = SessionEvent.objects.filter(
            session=session, sequence__gt=last - EVENTS_BEFORE, sequence__lte=last
        )
        for entry in log_entries(earlier.order_by("sequence"), in_chain=subject.is_cycle):
            calls[session].add(entry)
    return calls


def _heading(session: Session) -> str:
    return render_to_string("web/_log_heading.html", {"session": session})


def _rendered(entry: LogEntry, is_known: bool) -> str:
    """Return an entry as HTML; one that the page has already is swapped in its place."""
    return render_to_string("web/_log_entry.html", {"entry": entry, "is_known": is_known})


def data_lines(text: str) -> str:
    """Formats text as data lines; an empty message needs one too, or browsers drop it."""
    return "".join(f"data: {line}\n" for line in clean(text).strip().split("\n"))


def sse_message(name: str, data: str, mark: str) -> str:
    return f"event: {name}\nid: {mark}\n{data}\n"


# One feed for each watched session or cycle. It reads the database a few times a second, renders
# new events once and keeps the last ones. A viewer that joins late or falls behind reads the
# database itself until it has caught up, so no queue grows. The last viewer to leave ends it.

POLL_SECONDS = 0.1
MESSAGES_KEPT = 1_000
CHARACTERS_KEPT = 2_000_000


class Feed:
    def __init__(self, subject: Subject, after: LivePosition) -> None:
        self.subject = subject
        self.last = self._first = after
        """Positions after the last event read, and before the first one kept."""
        self.done = False
        self.viewers = 0
        self._kept: deque[LiveMessage] = deque()
        self._told = 0
        """Number of messages so far, including those that are no longer kept."""
        self._size = 0
        self._news = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._read(), context=own_context())

    async def wait(self, seconds: float) -> None:
        """Waits for new messages or the timeout."""
        try:
            await asyncio.wait_for(self._news.wait(), seconds)
        except TimeoutError:
            return

    def since(self, after: LivePosition, place: int = 0) -> Look | None:
        """Returns messages after a position, or None if they are no longer kept.

        `place` is the end of the viewer's last look, which makes the search short.
        """
        if not after.covers(self._first):
            return None
        newest = islice(reversed(self._kept), max(0, self._told - place))
        unseen = [message for message in newest if message.number > after.of(message.session)]
        return Look(
            messages=tuple(unseen[::-1]),
            last=after.joined(self.last),
            done=self.done,
            place=self._told,
        )

    def has_news(self, after: LivePosition) -> bool:
        return self.done or not after.covers(self.last)

    def stop(self) -> None:
        self._task.cancel()

    async def _read(self) -> None:
        while not self.done:
            try:
                look = await sync_to_async(_look_afresh)(self.subject, self.last)
            except DatabaseError:
                # A locked or restarted database is read again; viewers stay connected.
                logger.warning("%s could not be looked at", self.subject, exc_info=True)
            else:
                self._tell(look)
            if not self.done:
                await asyncio.sleep(POLL_SECONDS)

    def _tell(self, look: Look) -> None:
        self._keep(look.messages)
        self.last, self.done = look.last, look.done
        if look.messages or look.done:
            news, self._news = self._news, asyncio.Event()
            news.set()

    def _keep(self, messages: Iterable[LiveMessage]) -> None:
        for message in messages:
            self._kept.append(message)
            self._told += 1
            self._size += len(message.data)
        while len(self._kept) > MESSAGES_KEPT or self._size > CHARACTERS_KEPT:
            gone = self._kept.popleft()
            self._first = self._first.moved(gone.session, gone.number)
            self._size -= len(gone.data)


def _look_afresh(subject: Subject, after: LivePosition) -> Look:
    """Reads with a new connection if the old one is broken."""
    try:
        return look_at(subject, after)
    except DatabaseError:
        connection.close()
        raise


Feeds = dict[Subject, Feed]
_feeds: WeakKeyDictionary[asyncio.AbstractEventLoop, Feeds] = WeakKeyDictionary()


@dataclass(slots=True)
class Seat:
    """A viewer's use of a shared feed, as a context manager."""

    subject: Subject
    after: LivePosition
    feed: Feed | None = None

    def __enter__(self) -> Feed:
        feeds = _feeds.setdefault(asyncio.get_running_loop(), {})
        feed = feeds.get(self.subject)
        if feed is None or feed.done:
            feed = feeds[self.subject] = Feed(self.subject, self.after)
        feed.viewers += 1
        self.feed = feed
        return feed

    def __exit__(self, *_error: object) -> None:
        feed = self.feed
        assert feed is not None
        feed.viewers -= 1
        if feed.viewers:
            return
        feed.stop()
        feeds = _feeds.get(asyncio.get_running_loop(), {})
        if feeds.get(self.subject) is feed:
            del feeds[self.subject]


WAIT_SECONDS = 5.0
"""Interval at which access and the heartbeat are due without new messages."""
HEARTBEAT_SECONDS = 15.0
NO_DATA = data_lines("")
LONGEST_STREAM_SECONDS = 600.0
"""Then the browser reconnects, which checks access again."""


async def live_events(subject: Subject, after: LivePosition, ticket: Ticket) -> AsyncIterator[str]:
    """Yields chunks; messages that arrive together are sent together."""
    await give_thread_back()  # here: the middleware has used it after the view
    last_sent = time.monotonic()
    ends = last_sent + LONGEST_STREAM_SECONDS
    yield "retry: 1000\n\n"
    place = 0
    with ticket, Seat(subject, after) as feed:
        while ticket.is_good and time.monotonic() < ends:
            look = await _next_look(feed, after, place)
            if look.messages:
                last_sent = time.monotonic()
                yield "".join(_sent(subject, after, look.messages))
            elif time.monotonic() - last_sent >= HEARTBEAT_SECONDS:
                last_sent = time.monotonic()
                yield ": still here\n\n"
            after, place = look.last, look.place
            if look.done:
                yield sse_message("done", NO_DATA, subject.mark(after))
                return
            if not feed.has_news(after):
                await feed.wait(min(WAIT_SECONDS, ends - time.monotonic()))


def _sent(subject: Subject, after: LivePosition, messages: Iterable[LiveMessage]) -> Iterator[str]:
    """Formats messages with this viewer's position as their id."""
    for message in messages:
        after = after.moved(message.session, message.number)
        yield sse_message("entry", message.data, subject.mark(after))


async def _next_look(feed: Feed, after: LivePosition, place: int) -> Look:
    """Returns messages from the feed, or reads the database where the feed does not reach back."""
    kept = feed.since(after, place)
    return kept if kept is not None else await sync_to_async(look_at)(feed.subject, after)


@needs(Right.SEE_OUTPUT)
@require_GET
async def session_live(request: HttpRequest, pk: int) -> StreamingHttpResponse:
    await aget_object_or_404(Session.objects.only("pk"), pk=pk)
    return await _stream(request, Subject(pk))


@needs(Right.SEE_OUTPUT)
@require_GET
async def cycle_live(request: HttpRequest, pk: int) -> StreamingHttpResponse:
    await aget_object_or_404(Cycle.objects.only("pk"), pk=pk)
    return await _stream(request, Subject(pk, is_cycle=True))


async def _stream(request: HttpRequest, subject: Subject) -> StreamingHttpResponse:
    return await stream_of(request, subject, Right.SEE_OUTPUT)


async def stream_of(
    request: HttpRequest, subject: Subject, right: Right, *, token_pk: int | None = None
) -> StreamingHttpResponse:
    ticket = await sync_to_async(ticket_for)(request, right, token_pk)
    return StreamingHttpResponse(
        live_events(subject, _seen_before(request, subject), ticket),
        content_type="text/event-stream",
        # A buffering proxy would delay live output.
        headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
    )


def _seen_before(request: HttpRequest, subject: Subject) -> LivePosition:
    """Returns the last position seen; the header of a reconnect wins over the address."""
    seen = subject.position_in(request.headers.get("Last-Event-ID"))
    return seen or subject.position_in(request.GET.get("after")) or LivePosition()
