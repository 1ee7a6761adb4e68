"""How long the pages take, by the size of the record: asked in this process, through the real URL
configuration and middleware, by somebody who is logged in and may see everything."""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from escalation.rehearsal.benchmarks.page_walk import Page, pages
from escalation.rehearsal.benchmarks.usage import busy_seconds

ROUNDS = 20
LONGEST_SECONDS = 3.0
"""For one page: a slow one is asked less often."""
RATIO_AIM, QUERIES_AIM, PAGE_AIM_MS, SEARCH_AIM_MS = 1.5, 12, 60, 150
LARGER_ANSWER = 1.15
SMALLEST_STEP_MS = 3.0
"""By so little a page may always be slower: less than that is the machine's own unrest."""
ANSWERS = {HTTPStatus.OK, HTTPStatus.FOUND}
NO_PAGE = {HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.FORBIDDEN}
"""What only acts, and what nobody may, such as to add to the past."""


LOCAL = {"", "localhost", "127.0.0.1", "::1"}


class PageFailed(Exception):
    """A page did not answer as a page does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timed:
    title: str
    url: str
    is_search: bool
    median_ms: float
    p95_ms: float
    cpu_ms: float
    """Of this process, and of PostgreSQL's for this connection where it is on this machine."""
    queries: int
    size: int
    """Of the answer, in bytes."""
    by_cpu: bool
    """All work was seen, so its processor time is the page's, however busy the machine is. For a
    database on another machine the clock counts."""

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
        """Fewer rows were there to be shown in the smaller record, so the ratio says nothing."""
        return self.large.size > self.small.size * LARGER_ANSWER

    @property
    def misses(self) -> tuple[str, ...]:
        """Which aims the page misses, in words."""
        large, search = self.large, self.large.is_search
        slower_by = large.judged_ms - self.small.judged_ms
        is_slower = self.ratio > RATIO_AIM and slower_by > SMALLEST_STEP_MS
        missed = {
            "ratio": is_slower and not search and not self.shows_more,
            "queries": large.queries > QUERIES_AIM,
            "time": large.judged_ms > (SEARCH_AIM_MS if search else PAGE_AIM_MS),
        }
        return tuple(name for name, is_missed in missed.items() if is_missed)


def measure(rounds: int = ROUNDS) -> list[Timed]:
    # What only acts refuses to be read, which would be told each time.
    logging.getLogger("django.request").setLevel(logging.ERROR)
    client = _client()
    timed = (_timed(client, page, rounds) for page in pages())
    return [found for found in timed if found]


def compared(small: Iterable[Timed], large: Iterable[Timed]) -> list[Compared]:
    """Pages that are there in both records: a row may be missing in the smaller one."""
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


def _timed(client: Client, page: Page, rounds: int) -> Timed | None:
    """None: it is no page."""
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
        p95_ms=statistics.quantiles(times, n=20)[-1],
        cpu_ms=statistics.median(busy),
        queries=asked,
        size=size,
        by_cpu=connection.vendor == "sqlite" or bool(_server_process()),
    )


def _worked() -> float:
    return time.process_time() + busy_seconds(_server_process())


def _server_process() -> list[int]:
    """PostgreSQL's own for this connection, if it can be seen from here."""
    if connection.vendor != "postgresql" or connection.settings_dict["HOST"] not in LOCAL:
        return []
    connection.ensure_connection()
    return [connection.connection.info.backend_pid]


def _ask(client: Client, url: str) -> tuple[int, int]:
    response = client.get(url, secure=settings.CLAUDEOPS_HTTPS)
    return response.status_code, len(response.content)
