"""Search over everything that has a page: names, incidents, and the full text of sessions.

Names come from tables that do not grow with the sessions. The text of sessions is found along its
index, a bounded number of matches at once; of incidents the newest are read. Page and command use
`find`. Drills are left out unless the reader asks for them instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any
from urllib.parse import urlencode

from django.db.models import F, Q, QuerySet, Subquery
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from escalation.web.context_processors import pages_for
from escalation.web.lists import shows_drills
from escalation.web.responses import HtmxRequest, wants_fragment
from escalation.worker.health import all_settings
from sessions_app.access.permissions import needs
from sessions_app.access.roles import Right, rights_of
from sessions_app.models import (
    Cycle,
    Incident,
    Probe,
    Remedy,
    RunText,
    SearchProgress,
    ServiceState,
    Session,
    Watch,
)
from sessions_app.models.search import (
    LARGEST_NUMBER,
    SHORTEST_WORDS,
    WHAT_ALL_SEE,
    WITH_OUTPUT,
    is_too_short,
    newest_matches,
    number_in,
)
from sessions_app.text import FoundWords, found_words, one_line

LONGEST_WORDS = 200
PER_GROUP = 8
SESSIONS_SHOWN = 20
MATCHES_LOOKED_AT = 3_000
INCIDENTS_LOOKED_AT = 3_000
LONGEST_TITLE = 140
SEEN_IN = "seen_in"


@dataclass(frozen=True, kw_only=True, slots=True)
class Hit:
    title: str
    url: str
    found: FoundWords | None = None
    """None if the title says it all."""
    at: datetime | None = None
    drill: bool = False

    def as_data(self) -> dict[str, Any]:
        text = f"{self.found.before}{self.found.match}{self.found.after}" if self.found else None
        return {
            "title": self.title,
            "path": self.url,
            "where": self.found.where if self.found else None,
            "text": text,
            "at": self.at.isoformat() if self.at else None,
            "drill": self.drill,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class HitGroup:
    title: str
    hits: tuple[Hit, ...]
    more: str = ""
    """Address of a list with further matches."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchResult:
    words: str
    groups: tuple[HitGroup, ...] = ()
    remark: str = ""
    is_too_short: bool = False
    drills: bool = False

    @property
    def count(self) -> int:
        return sum(len(group.hits) for group in self.groups)

    @property
    def sentence(self) -> str:
        """Returns the result in one sentence."""
        if not self.words:
            return "What do you look for?"
        if self.is_too_short:
            return f"To search takes {SHORTEST_WORDS} letters or more, or a number."
        if not self.count:
            return f"Nothing matches “{self.words}”"
        more = any(group.more for group in self.groups)
        shown = f"{self.count}{' and more' if more else ''}"
        return f"{shown} match{'es' if self.count > 1 else ''} for “{self.words}”"


def find(words: str, rights: frozenset[Right], *, drills: bool = False) -> SearchResult:
    """Returns what matches, as far as the rights go."""
    words = " ".join(words.replace("\x00", "").split())[:LONGEST_WORDS]
    if not words or is_too_short(words):
        return SearchResult(words=words, is_too_short=bool(words), drills=drills)
    sessions, cycles, down_to = _texts(words, rights, drills=drills)
    groups = (
        HitGroup(title="Pages", hits=tuple(_pages(words, rights))),
        *(() if drills else _named(words, rights)),
        _incidents(words, cycles, drills=drills),
        _cycles(cycles, words, down_to=down_to),
        sessions,
        HitGroup(title="Settings", hits=tuple(_settings(words))[:PER_GROUP]),
    )
    return SearchResult(
        words=words,
        groups=tuple(group for group in groups if group.hits),
        remark=_progress(),
        drills=drills,
    )


def _progress() -> str:
    """Returns how far older sessions are indexed, while housekeeping is at it."""
    below = SearchProgress.objects.filter(below__gt=1).values_list("below", flat=True).first()
    if below is None:
        return ""
    return (
        f"Reports and output of sessions before #{below} are not searched yet: housekeeping "
        "indexes some every hour, and claudeops clean does at once."
    )


# Names.


def _pages(words: str, rights: frozenset[Right]) -> Iterator[Hit]:
    for title, url in pages_for(rights):
        if words.lower() in title.lower():
            yield Hit(title=title, url=url)


def _settings(words: str) -> Iterator[Hit]:
    wanted = words.upper().replace(" ", "_")
    for setting in all_settings():
        if wanted in setting.name:
            where = "from its default" if setting.source == "default" else "set"
            yield Hit(title=f"{setting.name} ({where}; claudeops config)", url="")


def _rows(rows: QuerySet[Any], fields: Iterable[str], words: str) -> list[Any]:
    wanted = [Q(**{f"{field}__icontains": words}) for field in fields]
    return list(rows.filter(reduce(or_, wanted)).order_by("pk")[: PER_GROUP + 1])


def _named(words: str, rights: frozenset[Right]) -> Iterator[HitGroup]:
    yield _group(
        "Watches",
        _rows(Watch.objects.all(), ("name", "workdir"), words),
        lambda row: (row.name, {"directory": row.workdir}),
        words,
        more=reverse("web:watches"),
    )
    yield _group(
        "Services",
        _rows(ServiceState.objects.select_related("watch"), ("service",), words),
        lambda row: (f"{row.service} of {row.watch.name}: {row.status}", {}),
        words,
        url=lambda row: reverse("web:watch", args=[row.watch_id]),
        more=reverse("web:services"),
    )
    yield _group(
        "Probes",
        _rows(Probe.objects.select_related("watch"), ("name", "target", "service"), words),
        lambda row: (
            f"{row.name} of {row.watch.name}: {row.get_state_display()}",
            {"target": row.target, "service": row.service},
        ),
        words,
        url=lambda row: reverse("web:probes", args=[row.watch_id]),
    )
    if Right.SEE_OUTPUT in rights:
        yield _group(
            "Remedies",
            _rows(Remedy.objects.select_related("watch"), ("name", "description"), words),
            lambda row: (f"{row.name} of {row.watch.name}", {"description": row.description}),
            words,
        )


def _group(
    title: str,
    rows: list[Any],
    shown: Callable[[Any], tuple[str, Mapping[str, str]]],
    words: str,
    *,
    url: Callable[[Any], str] = lambda row: str(row.get_absolute_url()),
    more: str = "",
) -> HitGroup:
    hits = []
    for row in rows[:PER_GROUP]:
        name, texts = shown(row)
        found = None if words.lower() in name.lower() else found_words(words, texts)
        hits.append(Hit(title=one_line(name, LONGEST_TITLE), url=url(row), found=found))
    return HitGroup(title=title, hits=tuple(hits), more=more if len(rows) > PER_GROUP else "")


# Incidents: those with these words, and those of the cycles whose text matches.


def _incidents(words: str, cycles: Mapping[int, tuple[Cycle, Hit]], *, drills: bool) -> HitGroup:
    rows = Incident.objects.select_related("watch")
    rows = rows.exclude(drill="") if drills else rows.filter(drill="")
    newest = Incident.objects.order_by("-pk").values("pk")[:1]
    texts = Q(title__icontains=words) | Q(cause__icontains=words) | Q(detail__icontains=words)
    lately = texts & Q(pk__gt=Subquery(newest) - INCIDENTS_LOOKED_AT)
    if (number := number_in(words)) is not None:
        lately |= Q(pk=number)
    own = {row.pk: row for row in rows.filter(lately).order_by("-pk")[: PER_GROUP + 1]}
    hits = [_incident(row, found_words(words, {"detail": row.detail})) for row in own.values()]
    if cycles:
        theirs = rows.filter(cycles__in=list(cycles)).annotate(**{SEEN_IN: F("cycles")})
        for row in theirs.order_by("-pk")[: 4 * PER_GROUP]:
            if row.pk not in own:
                own[row.pk] = row
                hits.append(_incident(row, cycles[getattr(row, SEEN_IN)][1].found))
    hits.sort(key=lambda hit: hit.at.timestamp() if hit.at else 0.0, reverse=True)
    return HitGroup(
        title="Incidents",
        hits=tuple(hits[:PER_GROUP]),
        more=reverse("web:incidents") if len(hits) > PER_GROUP else "",
    )


def _incident(row: Incident, found: FoundWords | None) -> Hit:
    return Hit(
        title=one_line(f"#{row.pk} {row.subject}: {row.title}", LONGEST_TITLE),
        url=row.get_absolute_url(),
        found=found,
        at=row.last_seen_at,
        drill=bool(row.drill),
    )


# Text of sessions and their cycles.


def _texts(
    words: str, rights: frozenset[Right], *, drills: bool
) -> tuple[HitGroup, dict[int, tuple[Cycle, Hit]], int]:
    """Returns the sessions, and the cycles with the best match of each."""
    with_output = Right.SEE_OUTPUT in rights
    chosen = Session.objects.drills() if drills else Session.objects.real()
    numbers, down_to = newest_matches(
        chosen,
        words,
        below=LARGEST_NUMBER,
        wanted=SESSIONS_SHOWN,
        looked_at=MATCHES_LOOKED_AT,
        columns=WITH_OUTPUT if with_output else WHAT_ALL_SEE,
    )
    rows = Session.objects.for_list().select_related("run_text").filter(pk__in=numbers)
    cycles: dict[int, tuple[Cycle, Hit]] = {}
    hits = []
    for session in rows.order_by("-pk"):
        text = getattr(session, "run_text", None)
        found = text_found(session, text, words, with_output=with_output)
        hit = _session(session, found)
        cycles.setdefault(session.cycle_id, (session.cycle, hit))
        if found is None or not _is_of_cycle(found):
            hits.append(hit)
    if (number := number_in(words)) is not None:
        same = Cycle.objects.select_related("watch").filter(pk=number)
        same = same.exclude(drill="") if drills else same.filter(drill="")
        for cycle in same:
            cycles[number] = (cycle, Hit(title="", url=""))
    shown = HitGroup(
        title="Sessions",
        hits=tuple(hits[:PER_GROUP]),
        more=_list("web:sessions", words, drills) if len(hits) > PER_GROUP or down_to else "",
    )
    return shown, cycles, down_to


def _cycles(cycles: Mapping[int, tuple[Cycle, Hit]], words: str, *, down_to: int) -> HitGroup:
    hits = [
        Hit(
            title=one_line(f"#{cycle.pk} {cycle.subject}: {_outcome(cycle)}", LONGEST_TITLE),
            url=cycle.get_absolute_url(),
            found=hit.found,
            at=cycle.created_at,
            drill=bool(cycle.drill),
        )
        for cycle, hit in cycles.values()
    ]
    is_more = len(hits) > PER_GROUP or down_to
    drills = any(hit.drill for hit in hits)
    return HitGroup(
        title="Cycles",
        hits=tuple(hits[:PER_GROUP]),
        more=_list("web:cycles", words, drills) if is_more else "",
    )


def _outcome(cycle: Cycle) -> str:
    return cycle.outcome_reason or cycle.get_outcome_display() or "under way"


def _list(page: str, words: str, drills: bool) -> str:
    return f"{reverse(page)}?{urlencode({'q': words} | ({'drill': 'yes'} if drills else {}))}"


def _session(session: Session, found: FoundWords | None) -> Hit:
    return Hit(
        title=f"#{session.pk} {session.cycle.subject}, Tier {session.tier}",
        url=session.get_absolute_url(),
        found=found,
        at=session.created_at,
        drill=session.is_drill,
    )


OF_CYCLE = frozenset({"reason", "watch", "request"})


def _is_of_cycle(found: FoundWords) -> bool:
    return found.where in OF_CYCLE


def text_found(
    session: Session, text: RunText | None, words: str, *, with_output: bool
) -> FoundWords | None:
    """Returns where a session has the words: first what it said, last what it only mentions."""
    cycle = session.cycle
    texts = {
        "report": text.said if text else "",
        "output": text.output if text and with_output else "",
        "decision": session.escalation_reason,
        "error": session.error,
        "request of the session": session.request,
        "reason": cycle.outcome_reason,
        "watch": cycle.subject,
        "request": cycle.prompt,
        "conversation": session.session_id,
        "directory": session.workdir,
    }
    return found_words(words, texts)


@needs(Right.SEE)
@require_safe
@vary_on_headers("HX-Request")
def search(request: HtmxRequest) -> HttpResponse:
    result = find(
        request.GET.get("q", ""), rights_of(request.user), drills=shows_drills(request.GET)
    )
    template = "_search_results.html" if wants_fragment(request) else "search.html"
    return render(request, f"web/{template}", {"result": result, "words": result.words})
