"""`bench api`: finds every reading operation in the schema and reports slow ones."""

from __future__ import annotations

import json
from collections import defaultdict
from io import StringIO

import pytest
from django.core.management import call_command

from escalation.api.docs import schema
from escalation.drills import scratch
from tests.devtools.benchmarks import api, silent
from tests.devtools.benchmarks.pages import MeasuredPage, PageFailed, Timed
from tests.devtools.benchmarks.record import seed

# What was made up is vacuumed, which PostgreSQL does outside of transactions alone.
pytestmark = pytest.mark.django_db(transaction=True)

SESSIONS = 120
WITH_HISTORY = {"list_watches"}
"""Lists that read something of each item along an index, which no single query does."""


def timed(cpu_p95_ms: float, *, queries: int = 5) -> Timed:
    return Timed(
        title="a list",
        url="/",
        is_search=False,
        median_ms=cpu_p95_ms,
        p95_ms=cpu_p95_ms,
        cpu_ms=cpu_p95_ms,
        cpu_p95_ms=cpu_p95_ms,
        queries=queries,
        size=100,
        by_cpu=True,
    )


def reading_operations() -> set[str]:
    return {
        methods["get"]["operationId"] for methods in schema()["paths"].values() if "get" in methods
    }


@pytest.mark.timeout(300)
def test_it_measures_every_reading_operation_and_its_queries_do_not_grow_with_the_page(fake_cli):
    seed(SESSIONS)
    told: list[str] = []

    found = api.measure(rounds=2, tell=told.append)

    queries: dict[str, dict[str, int]] = defaultdict(dict)
    for one in found:
        name, _comma, way = one.title.partition(", ")
        queries[name][way] = one.queries
    assert set(queries) == reading_operations() - set(api.LEFT_OUT)
    assert len(told) == len(found)
    # The first request of a batch also counts it for the rate limit.
    growing = {
        name
        for name, ways in queries.items()
        if "the largest page" in ways and ways["the largest page"] > ways["a page of one"] + 3
    }
    assert growing <= WITH_HISTORY


def test_combined_filters_belong_to_an_operation():
    assert {*api.COMBINED, *api.GROWING, *api.LEFT_OUT} <= reading_operations()


def test_an_operation_that_fails_fails_the_measurement(monkeypatch):
    seed(20)
    broken = MeasuredPage(name="broken", way="", url="/api/v1/no-such-thing")
    monkeypatch.setattr(api, "requests", lambda: [broken])

    with pytest.raises(PageFailed, match="404"):
        api.measure(rounds=2)


def test_a_missed_target_is_marked():
    assert api.misses(timed(60, queries=15)) == ()
    assert api.misses(timed(61, queries=16)) == ("queries", "time")

    found = [timed(20), timed(61)]

    assert "MISSED: time" in api.as_table(found, 1_000)
    assert [one["missed"] for one in api.as_data(found, 1_000)["requests"]] == [[], ["time"]]


@pytest.mark.prove
def test_the_command_reports_as_json(monkeypatch, fake_cli):
    monkeypatch.setenv(scratch.MARK, "1")
    monkeypatch.setattr(api.measure, "__defaults__", (2, silent))
    output = StringIO()

    call_command("bench", "api", "--sessions", "40", "--json", stdout=output)

    figures = json.loads(output.getvalue())
    assert figures["sessions"] == 40
    assert len(figures["requests"]) > 50
