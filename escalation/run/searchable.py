"""Writes the searchable text of a session: what it said, its commands and their output.

A session is indexed when it ends. Housekeeping indexes those that ended before there was an index,
newest first and some at a time, and those whose text could not be written.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

from django.conf import settings
from django.utils import timezone

from escalation.agent import stream as shape
from escalation.agent.event_text import TELLING_INPUTS, call_words
from sessions_app.models import RunText, SearchProgress, Session, SessionEvent
from sessions_app.models.search import LARGEST_NUMBER
from sessions_app.models.session import EventKind, EventSource, StreamKind
from sessions_app.redaction.redact import redacted
from sessions_app.text import as_text, clean, cut, mapping

logger = logging.getLogger(__name__)

LONGEST_SAID = 10_000
LONGEST_OUTPUT = 20_000
"""Characters of a session's commands and their output."""
LONGEST_PIECE = 2_000
"""Characters of one command or of its output."""
MOST_EVENTS = 2_000
AT_ONCE = 200
LATEST = 2_000
"""Newest sessions that housekeeping looks at for missing texts."""
TEXT_KINDS = (StreamKind.ASSISTANT, StreamKind.USER, EventKind.COMMAND)


def index_run(session: Session) -> None:
    """Write the text of an ended session. A failure is left to housekeeping."""
    try:
        _write([session])
    except Exception:
        logger.exception("Session %s: could not write its searchable text", session.pk)


def index_missing(most: int) -> tuple[int, int]:
    """Index up to `most` older sessions, newest first.

    Return how many were indexed, and the id below which sessions are not indexed yet: 0 at the end.
    """
    ended = Session.objects.exclude(status__in=Session.OPEN_STATUSES).filter(run_text=None)
    newest = Session.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    latest = list(ended.filter(pk__gt=newest - LATEST).order_by("-pk")[:most])
    indexed = _write_all(latest)
    below = SearchProgress.objects.filter(pk=SearchProgress.THE_ONE).values_list("below", flat=True)
    left_to = below.first()
    left_to = LARGEST_NUMBER if left_to is None else left_to
    while indexed < most and left_to > 0:
        stretch = Session.objects.filter(pk__lt=left_to).order_by("-pk")
        numbers = list(stretch.values_list("pk", flat=True)[:AT_ONCE])
        left_to = numbers[-1] if len(numbers) == AT_ONCE else 0
        indexed += _write_all(list(ended.filter(pk__in=numbers)))
        SearchProgress.objects.update_or_create(
            pk=SearchProgress.THE_ONE, defaults={"below": left_to}
        )
    return indexed, left_to


def count_missing(most: int) -> int:
    """Return how many sessions `index_missing` would index."""
    ended = Session.objects.exclude(status__in=Session.OPEN_STATUSES).filter(run_text=None)
    return ended[:most].count()


def forget_old_output(long_ago: datetime) -> int:
    """Remove the output of sessions whose events are past their retention."""
    old = RunText.objects.exclude(output="").filter(session__finished_at__lt=long_ago)
    return old.update(output="")


def _write_all(sessions: list[Session]) -> int:
    for begin in range(0, len(sessions), AT_ONCE):
        _write(sessions[begin : begin + AT_ONCE])
    return len(sessions)


def _write(sessions: list[Session]) -> None:
    """Write the texts of some sessions with two queries."""
    kept = timezone.now() - timedelta(days=settings.CLAUDEOPS_EVENT_RETENTION_DAYS)
    lately = [s.pk for s in sessions if s.finished_at is not None and s.finished_at >= kept]
    rows = SessionEvent.objects.filter(session__in=lately, kind__in=TEXT_KINDS)
    events = rows.order_by("session", "sequence").values_list("session", "source", "payload")
    outputs = {
        number: output_of((source, mapping(line)) for _, source, line in islice(own, MOST_EVENTS))
        for number, own in groupby(events.iterator(), key=itemgetter(0))
    }
    RunText.objects.bulk_create(
        [
            RunText(session=session, said=said_by(session), output=outputs.get(session.pk, ""))
            for session in sessions
        ],
        update_conflicts=True,
        unique_fields=["session"],
        update_fields=["said", "output"],
    )


def said_by(session: Session) -> str:
    """Return the texts of the report, and the answer to a question."""
    pieces = [*_texts_in(session.report)]
    if session.is_question or not pieces:
        pieces.append(session.result)
    return _joined(pieces, LONGEST_SAID)


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _texts_in(part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts_in(part)


def output_of(events: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
    """Return commands and output in their order."""
    return _joined(_pieces(events), LONGEST_OUTPUT)


def _pieces(events: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[str]:
    for source, line in events:
        if source == EventSource.SUPERVISOR:
            yield as_text(line.get("command"))
            continue
        for call in shape.calls_of(line):
            name, words = call_words(call)
            yield words if name in TELLING_INPUTS else f"{name} {words}"
        for block in shape.blocks_of(line) if line.get("type") == "assistant" else ():
            if block.get("type") == "text":
                yield as_text(block.get("text"))
        for result in shape.results_of(line):
            yield shape.output_of(result)


def _joined(pieces: Iterable[str], longest: int) -> str:
    """Join different texts, redacted before they are cut: half a secret is not recognized."""
    different: dict[str, None] = {}
    length = 0
    for piece in pieces:
        text = cut(redacted(clean(piece)).strip(), LONGEST_PIECE)
        if text and text not in different:
            different[text] = None
            length += len(text) + 1
        if length > longest:
            break
    return cut("\n".join(different), longest)
