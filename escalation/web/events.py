"""Pages over all watches: services, and events of three append-only records, newest first.

A page of events starts after a key of each record, so nothing is counted, and no row is shown twice
or skipped while rows are added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from heapq import merge
from itertools import islice
from typing import TypeVar

from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model, QuerySet
from django.http import HttpResponse, QueryDict
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from escalation.web.lists import ONLY_DRILLS, shows_drills
from escalation.web.responses import HtmxRequest, wants_fragment
from escalation.web.services import load_services
from sessions_app.access.permissions import needs
from sessions_app.access.roles import Right, rights_of
from sessions_app.models import IncidentEvent, Notification, PauseSwitch, Watch
from sessions_app.models.notification import NO_INCIDENT_EVENT

Row = TypeVar("Row", bound=Model)
PER_PAGE = 50
LONGEST_NUMBER = 18
STORY, WORD, ACT = "story", "word", "act"
SOURCES = (STORY, WORD, ACT)
SHOWN_TO_ALL = (Watch, PauseSwitch)
"""Models whose admin log everyone sees; others (accounts, channels) need `manage_keys`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    source: str
    number: int
    at: datetime
    what: str
    title: str
    text: str = ""
    who: str = ""
    url: str = ""
    drill: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class EventsPage:
    events: tuple[Event, ...]
    older: str
    """Query string of the next page; empty on the last one."""
    is_first: bool


def load_events(parameters: QueryDict, rights: frozenset[Right]) -> EventsPage:
    """Makes one query for each record."""
    begin = {source: _number(parameters.get(source, "")) for source in SOURCES}
    drills = shows_drills(parameters)
    streams = [_stories(begin[STORY], drills=drills)]
    if not drills:  # nobody is told of a drill, and no act of a person is one
        streams += [_words(begin[WORD], rights), _acts(begin[ACT], rights)]
    merged = list(islice(merge(*streams, key=lambda event: event.at, reverse=True), PER_PAGE + 1))
    shown = merged[:PER_PAGE]
    return EventsPage(
        events=tuple(shown),
        older=_older(shown, begin, drills=drills) if len(merged) > PER_PAGE else "",
        is_first=not any(begin.values()),
    )


def _older(shown: Iterable[Event], begin: dict[str, int | None], *, drills: bool) -> str:
    last = dict(begin)
    for event in shown:
        last[event.source] = event.number
    kept = [("drill", ONLY_DRILLS)] if drills else []
    return "&".join(f"{name}={value}" for name, value in [*kept, *last.items()] if value)


def _stories(before: int | None, *, drills: bool) -> Iterator[Event]:
    """Yields events of incidents, without repeated sightings."""
    rows = IncidentEvent.objects.exclude(kind=IncidentEvent.Kind.SEEN)
    rows = rows.exclude(incident__drill="") if drills else rows.filter(incident__drill="")
    for row in _page(rows.select_related("incident__watch", "by"), before):
        yield Event(
            source=STORY,
            number=row.pk,
            at=row.at,
            what=row.get_kind_display(),
            title=f"{row.incident.subject}: {row.incident.title}",
            text=row.text,
            who=row.by.get_username() if row.by else "",
            url=row.incident.get_absolute_url(),
            drill=bool(row.incident.drill),
        )


def _words(before: int | None, rights: frozenset[Right]) -> Iterator[Event]:
    """Yields notifications that belong to no incident; commands only for those who see output."""
    sees_output = Right.SEE_OUTPUT in rights
    # The drill is compared for the few approvals among them; others have none.
    rows = Notification.objects.filter(NO_INCIDENT_EVENT).exclude(
        approval__session__cycle__drill__gt=""
    )
    for row in _page(rows.select_related("watch"), before):
        is_asked = row.kind == Notification.Kind.APPROVAL_WANTED
        hidden = is_asked and not sees_output
        yield Event(
            source=WORD,
            number=row.pk,
            at=row.at,
            what=row.get_kind_display(),
            title=(row.watch.name if row.watch else "") if hidden else row.title,
            text=row.text if sees_output else "",
            url="" if hidden else row.path,
        )


def _acts(before: int | None, rights: frozenset[Right]) -> Iterator[Event]:
    rows = LogEntry.objects.select_related("user", "content_type")
    if Right.MANAGE_KEYS not in rights:
        kinds = ContentType.objects.get_for_models(*SHOWN_TO_ALL).values()
        rows = rows.filter(content_type__in=kinds)
    for row in _page(rows, before):
        yield Event(
            source=ACT,
            number=row.pk,
            at=row.action_time,
            what={ADDITION: "added", CHANGE: "changed"}.get(row.action_flag, "removed"),
            title=f"{row.content_type.name if row.content_type else ''} {row.object_repr}".strip(),
            text=row.get_change_message(),
            who=row.user.get_username(),
            url=_page_of(row),
        )


def _page_of(row: LogEntry) -> str:
    """Returns the address of the watch, if it still exists."""
    is_watch = row.content_type is not None and row.content_type.model == Watch._meta.model_name
    number = _number(row.object_id or "")
    return Watch(pk=number).get_absolute_url() if is_watch and number and row.is_change() else ""


def _page(rows: QuerySet[Row], before: int | None) -> QuerySet[Row]:
    asked = rows if before is None else rows.filter(pk__lt=before)
    return asked.order_by("-pk")[: PER_PAGE + 1]


def _number(text: str) -> int | None:
    is_number = text.isascii() and text.isdecimal() and len(text) <= LONGEST_NUMBER
    return int(text) or None if is_number else None


@needs(Right.SEE)
@require_safe
@vary_on_headers("HX-Request")
def services(request: HtmxRequest) -> HttpResponse:
    template = "_services.html" if wants_fragment(request) else "services.html"
    return render(request, f"web/{template}", {"list": load_services(request.GET)})


@needs(Right.SEE)
@require_safe
def events(request: HtmxRequest) -> HttpResponse:
    page = load_events(request.GET, rights_of(request.user))
    context = {
        "page": page,
        "zone": timezone.get_current_timezone_name(),
        "drills": shows_drills(request.GET),
    }
    return render(request, "web/events.html", context)
