"""Measures every page by the size of the database, in this process, as an administrator."""

from __future__ import annotations

import logging
import re
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Any

from django.apps import apps
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Max, Model
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from sessions_app.models import (
    ApiToken,
    Approval,
    Change,
    Channel,
    Cycle,
    Incident,
    Probe,
    Remedy,
    SandboxProof,
    Session,
    Source,
    Watch,
)
from tests.devtools.benchmarks import Tell, silent
from tests.devtools.benchmarks.usage import busy_seconds

# Pages are found in the URL configuration, so that a new one is measured at once. Listed are only
# filters and the rows for the parts of an address.

# The model of the number in an address, by the beginning of the address.
NUMBERED: dict[str, type[Model]] = {
    "accounts": User,
    "approvals": Approval,
    "changes": Change,
    "cycles": Cycle,
    "incidents": Incident,
    "sessions": Session,
    "channels": Channel,
    "probes": Probe,
    "remedies": Remedy,
    "sandbox": SandboxProof,
    "sources": Source,
    "tokens": ApiToken,
    "watches": Watch,
}
NOT_ASKED = {
    "invited": "is for those who were sent its address alone",
    "web:session_live": "a stream without an end: `bench live` measures it",
    "web:approval_link": "shows a page to who was sent its signed address alone",
    "web:approval_button": "takes signed buttons of notifications alone",
    "web:cycle_live": "a stream without an end, by the same reader",
    "web:deliver": "takes alerts of other systems alone",
    "web:deliver_below": "takes alerts of other systems alone",
    "web:enqueue": "takes alerts of other systems alone",
    "web:heartbeat": "takes heartbeats alone",
    "web:heartbeat_part": "takes heartbeats alone",
    "web:moved": "redirects addresses of earlier versions",
    "admin:": "leads away: every other address",
    "admin:None": "leads away: every other address",
    "admin:view_on_site": "leads away",
    "admin:autocomplete": "answers a field of a form alone",
    "admin:login": "is for those who are not logged in",
}
# Further queries by page name.
WAYS: dict[str, dict[str, str]] = {
    "web:sessions": {
        "tier 1": "tier=1",
        "tier 3": "tier=3",
        "failed": "status=failed",
        "expired, of which there is none": "status=expired",
        "one watch": "watch={watch}",
        "by handoff": "continued_by=handoff",
        "retries": "purpose=retry",
        "only drills": "drill=yes",
        "tier 2 of one watch": "tier=2&watch={watch}",
        "failed and one watch": "status=failed&watch={watch}",
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
    "web:search": {
        "a frequent word": "q=healthy",
        "a word of drills": "q=healthy&drill=yes",
        "no match": "q=xylophone",
        "a service": "q=database",
        "number": "q=%23{middle}",
    },
    "web:changes": {
        "one watch": "watch={watch}",
        "one service": "service=web",
        "edits, of which there is none": "kind=edit",
        "one watch and service": "watch={watch}&service=web",
        "a month": "since={month}-01&until={month}-20",
        "only drills": "drill=yes",
        "deep": "before={middle_change}",
    },
    "web:cycles": {
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
    "web:costs": {
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
        "command": "kind__exact=command",
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
    """No value is known for a part of an address."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredPage:
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
class PageRoute:
    name: str
    route: str


def addresses(
    resolver: URLResolver | None = None, prefix: str = "", space: str = ""
) -> Iterator[PageRoute]:
    for pattern in (resolver or get_resolver()).url_patterns:
        route = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            inner = pattern.namespace or space.rstrip(":")
            yield from addresses(pattern, route, f"{inner}:" if inner else "")
        elif isinstance(pattern, URLPattern):
            yield PageRoute(f"{space}{pattern.name or ''}", route)


def pages() -> list[MeasuredPage]:
    """Return all routes; those that only act refuse GET."""
    places = parts_of_queries()
    found = []
    for address in addresses():
        if address.name in NOT_ASKED or address.name.startswith(("api:", "mcp:")):
            continue
        url = _filled(address.route)
        if url is None:
            continue
        found.append(MeasuredPage(name=address.name, way="", url=url))
        for way, query in WAYS.get(address.name, {}).items():
            asked = f"{url}?{query.format(**places)}"
            found.append(MeasuredPage(name=address.name, way=way, url=asked))
    return found


def _filled(route: str) -> str | None:
    """Return an address for a route; None if no row exists for it."""
    if "(?P<app_label>" in route:
        return reverse("admin:app_list", args=["sessions_app"])
    if "<" in route:
        number = newest_number(_model_of(route))
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


def newest_number(model: type[Model]) -> Any:
    newest = model._default_manager.order_by("-pk").values_list("pk", flat=True).first()
    if model is Session and newest:
        # In the middle of a chain, whose page is largest.
        chained = Session.objects.filter(tier=2).order_by("-pk").values_list("pk", flat=True)
        return chained.first() or newest
    return newest


def parts_of_queries() -> dict[str, object]:
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


ROUNDS = 20
LONGEST_SECONDS = 3.0
"""For one page: a slow one is requested less often."""
RATIO_AIM, QUERIES_AIM, PAGE_AIM_MS, SEARCH_AIM_MS = 1.5, 12, 60, 150
LARGER_ANSWER = 1.15
SMALLEST_STEP_MS = 3.0
"""Smaller differences are noise."""
ANSWERS = {HTTPStatus.OK, HTTPStatus.FOUND}
NO_PAGE = {HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.FORBIDDEN}
"""Status codes of routes that are not pages."""


LOCAL = {"", "localhost", "127.0.0.1", "::1"}


class PageFailed(Exception):
    """A page answered with an error."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timed:
    title: str
    url: str
    is_search: bool
    median_ms: float
    p95_ms: float
    cpu_ms: float
    """Median of the processor time of this process and of a local PostgreSQL backend."""
    cpu_p95_ms: float
    queries: int
    size: int
    """The size of the answer in bytes."""
    by_cpu: bool
    """Whether all processor time is known; with a remote database the clock is used."""

    @property
    def judged_ms(self) -> float:
        return self.cpu_ms if self.by_cpu else self.median_ms


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    small: Timed
    large: Timed

    @property
    def ratio(self) -> float:
        return self.large.judged_ms / self.small.judged_ms

    @property
    def shows_more(self) -> bool:
        """Whether the smaller database had fewer rows to show, so the ratio means nothing."""
        return self.large.size > self.small.size * LARGER_ANSWER

    @property
    def misses(self) -> tuple[str, ...]:
        """Return the aims that the page misses."""
        large, search = self.large, self.large.is_search
        slower_by = large.judged_ms - self.small.judged_ms
        is_slower = self.ratio > RATIO_AIM and slower_by > SMALLEST_STEP_MS
        missed = {
            "ratio": is_slower and not search and not self.shows_more,
            "queries": large.queries > QUERIES_AIM,
            "time": large.judged_ms > (SEARCH_AIM_MS if search else PAGE_AIM_MS),
        }
        return tuple(name for name, is_missed in missed.items() if is_missed)


def measure(rounds: int = ROUNDS, tell: Tell = silent) -> list[Timed]:
    # Routes that only act refuse GET, which would be logged each time.
    logging.getLogger("django.request").setLevel(logging.ERROR)
    client = _client()
    measured = []
    walked = list(pages())
    for number, page in enumerate(walked, 1):
        tell(f"Measuring page {number} of {len(walked)}: {page.title}")
        if timed := measure_page(client, page, rounds):
            measured.append(timed)
    return measured


def compared(small: Iterable[Timed], large: Iterable[Timed]) -> list[Compared]:
    """Compare pages that exist in both databases."""
    by_title = {timed.title: timed for timed in small}
    return [
        Compared(small=by_title[timed.title], large=timed)
        for timed in large
        if timed.title in by_title
    ]


def _client() -> Client:
    operator = User.objects.filter(is_superuser=True).first() or User.objects.create_superuser(
        "bench"
    )
    client = Client(HTTP_HOST="127.0.0.1", raise_request_exception=True)
    client.force_login(operator)
    return client


def measure_page(client: Client, page: MeasuredPage, rounds: int) -> Timed | None:
    """Measure a page; None if it is not a page."""
    with CaptureQueriesContext(connection) as queries:
        status, size = _ask(client, page.url)
    if status in NO_PAGE:
        return None
    if status not in ANSWERS:
        raise PageFailed(f"{page.title}: {page.url} answered with {status}")
    asked = len(queries)
    times: list[float] = []
    busy: list[float] = []
    while len(times) < rounds and (sum(times) < LONGEST_SECONDS * 1000 or len(times) < 2):
        began, worked = time.perf_counter(), _worked()
        _ask(client, page.url)
        times.append((time.perf_counter() - began) * 1000)
        busy.append((_worked() - worked) * 1000)
    return Timed(
        title=page.title,
        url=page.url,
        is_search=page.is_search,
        median_ms=statistics.median(times),
        p95_ms=statistics.quantiles(times, n=20, method="inclusive")[-1],
        cpu_ms=statistics.median(busy),
        cpu_p95_ms=statistics.quantiles(busy, n=20, method="inclusive")[-1],
        queries=asked,
        size=size,
        by_cpu=connection.vendor == "sqlite" or bool(_server_process()),
    )


def _worked() -> float:
    return time.process_time() + busy_seconds(_server_process())


def _server_process() -> list[int]:
    """Return the processor time of the PostgreSQL backend, if it is local."""
    if connection.vendor != "postgresql" or connection.settings_dict["HOST"] not in LOCAL:
        return []
    connection.ensure_connection()
    return [connection.connection.info.backend_pid]


def _ask(client: Client, url: str) -> tuple[int, int]:
    response = client.get(url, secure=settings.CLAUDEOPS_HTTPS)
    return response.status_code, len(response.content)


# Output.

HEAD = f"{'median':>8} {'p95':>8} {'cpu':>8} {'queries':>8} {'ratio':>7}  page"


def as_table(found: Sequence[Compared], sessions: int, smaller: int) -> str:
    missed = sum(bool(one.misses) for one in found)
    judged = "processor" if found and found[0].large.by_cpu else "clock"
    return "\n".join(
        [
            f"{sessions:,} sessions, in milliseconds; ratio to the same at {smaller:,}; "
            f"judged by the {judged}",
            HEAD,
            *(_line(one) for one in found),
            f"{len(found)} pages; {missed or 'none'} missed an aim (at most {RATIO_AIM} ×, "
            f"{QUERIES_AIM} queries, {PAGE_AIM_MS} ms; a search {SEARCH_AIM_MS} ms)",
            "+ after a ratio: the smaller record had fewer rows to show.",
        ]
    )


def _line(one: Compared) -> str:
    large = one.large
    more = "+" if one.shows_more else " "
    missed = f"  MISSED: {', '.join(one.misses)}" if one.misses else ""
    return (
        f"{large.median_ms:8.1f} {large.p95_ms:8.1f} {large.cpu_ms:8.1f} {large.queries:8d} "
        f"{one.ratio:6.2f}{more}  {large.title}{missed}"
    )


def as_data(found: Sequence[Compared], sessions: int, smaller: int) -> dict[str, Any]:
    return {
        "sessions": sessions,
        "smaller": smaller,
        "pages": [
            {
                **asdict(one.large),
                "ratio": one.ratio,
                "shows_more": one.shows_more,
                "missed": list(one.misses),
            }
            for one in found
        ],
    }
