"""Every page of the URL configuration, as addresses that can be asked for.

Nobody lists the pages: they are found, so that a new one is measured from its first day. What is
listed is how they are asked: with which filters, and which row stands for a part of an address.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from django.apps import apps
from django.db.models import Max, Model
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from sessions_app.models import (
    Approval,
    Change,
    Cycle,
    Incident,
    Session,
    Target,
    WallsProof,
    Watch,
)

# What the number in an address is of, by how the address begins.
NUMBERED: dict[str, type[Model]] = {
    "approvals": Approval,
    "changes": Change,
    "cycles": Cycle,
    "incidents": Incident,
    "sessions": Session,
    "targets": Target,
    "walls": WallsProof,
    "watches": Watch,
}
NOT_ASKED = {
    "sessions_app:session_live": "a stream without an end: `bench live` measures it",
    "escalation:approval_link": "shows a page to who was sent its signed address alone",
    "sessions_app:cycle_live": "a stream without an end, by the same reader",
    "admin:": "leads away: every other address",
    "admin:None": "leads away: every other address",
    "admin:view_on_site": "leads away",
    "admin:autocomplete": "answers a field of a form alone",
    "admin:login": "is for those who are not logged in",
}
# Further ways to ask for a page, by its name. {name: query}
WAYS: dict[str, dict[str, str]] = {
    "sessions_app:sessions": {
        "tier 1": "tier=1",
        "tier 3": "tier=3",
        "failed": "status=failed",
        "expired, of which there is none": "status=expired",
        "one watch": "watch={watch}",
        "by handoff": "continued_by=handoff",
        "retries": "purpose=retry",
        "only drills": "drill=yes",
        "without drills": "drill=no",
        "tier 2 of one watch": "tier=2&watch={watch}",
        "failed, one watch, without drills": "status=failed&watch={watch}&drill=no",
        "deep": "before={middle}",
        "deep, tier 3": "tier=3&before={middle}",
        "the oldest": "before=60",
        "search: a frequent word": "q=healthy",
        "search: a rare word": "q={session_id}",
        "search: no match": "q=xylophone",
        "search: a sentence": "q=certificate+of+the+registry",
        "search: a watch": "q=homelab",
        "search: number": "q=%23{middle}",
        "search: in tier 3": "q=database&tier=3",
    },
    "sessions_app:changes": {
        "one watch": "watch={watch}",
        "one service": "service=web",
        "edits, of which there is none": "kind=edit",
        "one watch and service": "watch={watch}&service=web",
        "a month": "since={month}-01&until={month}-20",
        "without drills": "drill=no",
        "deep": "before={middle_change}",
    },
    "sessions_app:cycles": {
        "needs a person": "outcome=needs_person",
        "one watch": "watch={watch}",
        "by schedule": "trigger=schedule",
        "under way": "outcome=active",
        "tier 3": "tier=3",
        "one model": "model=opus",
        "a model that is none": "model=none",
        "by handoff": "continued_by=handoff",
        "one service": "service=web",
        "dear": "cost=5",
        "dearer than any": "cost=5000",
        "a month": "since={month}-01&until={month}-20",
        "many at once": "outcome=fixed&watch={watch}&tier=2&trigger=schedule&cost=0.1",
        "deep": "before={middle}",
        "search: a frequent word": "q=healthy",
        "search: a rare word": "q={session_id}",
        "search: no match": "q=xylophone",
        "search: in tier 3": "q=database&tier=3",
    },
    "sessions_app:costs": {
        "7 days": "period=7",
        "90 days": "period=90",
        "all time": "period=all",
        "drills of all time": "period=all&drills=yes",
    },
    "admin:sessions_app_session_changelist": {
        "failed": "status__exact=failed",
        "tier 3": "tier__exact=3",
        "one model": "model__exact=opus",
        "by a guard": "continued_guard__exact=context",
        "by a cost basis": "cost_basis__exact=unknown",
        "one month": "on={month}",
        "one year": "on={year}",
        "page 100": "p=100",
        "search: a frequent word": "q=healthy",
        "search: a rare word": "q={session_id}",
        "search: no match": "q=xylophone",
    },
    "admin:sessions_app_cycle_changelist": {
        "needs a person": "outcome__exact=needs_person",
        "one watch": "watch__id__exact={watch}",
        "one month": "on={month}",
        "page 100": "p=100",
        "search: a frequent word": "q=healthy",
        "search: no match": "q=xylophone",
    },
    "admin:sessions_app_sessionevent_changelist": {
        "stderr": "source__exact=stderr",
        "gate": "kind__exact=gate",
        "search: session": "q={newest}",
    },
    "admin:sessions_app_conversation_changelist": {
        "expired": "state__exact=expired",
        "search: id": "q={session_id}",
    },
    "admin:sessions_app_transcript_changelist": {"search: id": "q={session_id}"},
}
ADMIN_OBJECT = re.compile(r"^admin/(?P<app>\w+)/(?P<model>\w+)/")


class UnknownAddress(Exception):
    """A part of an address stands for something that this module has not heard of."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    name: str
    way: str
    url: str

    @property
    def title(self) -> str:
        return f"{self.name}, {self.way}" if self.way else self.name

    @property
    def is_search(self) -> bool:
        return self.way.startswith("search")


@dataclass(frozen=True, slots=True)
class Address:
    name: str
    route: str


def addresses(
    resolver: URLResolver | None = None, prefix: str = "", space: str = ""
) -> Iterator[Address]:
    for pattern in (resolver or get_resolver()).url_patterns:
        route = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            inner = pattern.namespace or space.rstrip(":")
            yield from addresses(pattern, route, f"{inner}:" if inner else "")
        elif isinstance(pattern, URLPattern):
            yield Address(f"{space}{pattern.name or ''}", route)


def pages() -> list[Page]:
    """All that may answer: what only acts says so when it is asked."""
    places = _places()
    found = []
    for address in addresses():
        if address.name in NOT_ASKED:
            continue
        url = _filled(address.route)
        if url is None:
            continue
        found.append(Page(name=address.name, way="", url=url))
        for way, query in WAYS.get(address.name, {}).items():
            asked = f"{url}?{query.format(**places)}"
            found.append(Page(name=address.name, way=way, url=asked))
    return found


def _filled(route: str) -> str | None:
    """The route as an address. None: no row is there that it could stand for."""
    if "(?P<app_label>" in route:
        return reverse("admin:app_list", args=["sessions_app"])
    if "<" in route:
        number = _newest(_model_of(route))
        if number is None:
            return None
        route = re.sub(r"<(?:int:pk|path:object_id|id)>", str(number), route)
    if set("<>^$()") & set(route):
        raise UnknownAddress(f"{route}: say in page_walk what its parts stand for")
    return f"/{route}"


def _model_of(route: str) -> type[Model]:
    if found := ADMIN_OBJECT.match(route):
        return apps.get_model(found["app"], found["model"])
    beginning = route.partition("/")[0]
    if beginning not in NUMBERED:
        raise UnknownAddress(f"{route}: say in page_walk, NUMBERED, of what its number is")
    return NUMBERED[beginning]


def _newest(model: type[Model]) -> object:
    newest = model._default_manager.order_by("-pk").values_list("pk", flat=True).first()
    if model is Session and newest:
        # In the midst of a chain, whose page has most to show.
        chained = Session.objects.filter(tier=2).order_by("-pk").values_list("pk", flat=True)
        return chained.first() or newest
    return newest


def _places() -> dict[str, object]:
    newest = Session.objects.order_by("-pk").first()
    watch = Watch.objects.order_by("pk").first()
    return {
        "newest": newest.pk if newest else 1,
        "middle": newest.pk // 2 if newest else 1,
        "middle_change": (Change.objects.aggregate(newest=Max("pk"))["newest"] or 2) // 2,
        "session_id": newest.session_id if newest else "none",
        "watch": watch.pk if watch else 1,
        "month": f"{newest.created_at:%Y-%m}" if newest else "2026-01",
        "year": f"{newest.created_at:%Y}" if newest else "2026",
    }


def unknown_ways() -> set[str]:
    """Names in the table of ways that no address has."""
    return set(WAYS) - {address.name for address in addresses()}
