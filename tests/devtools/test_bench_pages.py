"""`bench pages`: finds every page of the URL configuration and reports slow ones."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import call_command

from escalation.drills import scratch
from escalation.web import urls
from sessions_app.costs.rollups import check
from sessions_app.models import Approval, Change, Cycle, Incident, Session
from tests.devtools.benchmarks import pages, silent
from tests.devtools.benchmarks.pages import (
    WAYS,
    Compared,
    PageFailed,
    Timed,
    UnknownAddress,
    addresses,
    as_data,
    as_table,
)
from tests.devtools.benchmarks.record import seed
from tests.devtools.management.commands import bench

# What was made up is vacuumed, which PostgreSQL does outside of transactions alone.
pytestmark = pytest.mark.django_db(transaction=True)

SESSIONS = 120


def timed(median_ms: float, *, queries: int = 5, size: int = 100, is_search: bool = False) -> Timed:
    return Timed(
        title="a page",
        url="/",
        is_search=is_search,
        median_ms=median_ms,
        p95_ms=median_ms,
        cpu_ms=median_ms,
        cpu_p95_ms=median_ms,
        queries=queries,
        size=size,
        by_cpu=True,
    )


def test_a_generated_database_has_the_requested_size_and_right_sums():
    told: list[str] = []

    seed(SESSIONS, told.append)

    assert Session.objects.count() == SESSIONS
    assert told
    assert check().differences == ()
    for model in (Cycle, Incident, Change, Approval):
        assert model.objects.exists()


@pytest.mark.prove
def test_it_measures_every_page_of_the_url_configuration(fake_cli):
    """What it does not measure answers no GET, or says itself why it is not asked."""
    seed(SESSIONS)
    told: list[str] = []

    found = pages.measure(rounds=2, tell=told.append)

    measured = {page.title.partition(",")[0] for page in found}
    left_out = {address.name for address in addresses()} - measured - set(pages.NOT_ASKED)
    assert {name for name in left_out if not is_no_page(name)} == set()
    assert {"web:overview", "web:costs", "admin:index"} <= measured
    assert len(measured) > 50
    assert len(told) >= len(found)


def is_no_page(name: str) -> bool:
    """It acts, nobody may, or there is no row of which it could be a page."""
    acting = {"web:moved", *(f"web:{action.name}" for action in urls.actions)}
    acts = name in acting or name.endswith(("logout", "_add", "_delete"))
    empty = ("success", "failure", "ormq", "loginfailure", "sandbox")
    return acts or any(f"_{model}_" in name for model in empty)


def test_every_query_belongs_to_a_page():
    assert set(WAYS) <= {address.name for address in addresses()}


def test_an_address_without_values_is_reported(monkeypatch):
    monkeypatch.setattr(pages, "addresses", lambda: [pages.PageRoute("new", "moons/<int:pk>/")])

    with pytest.raises(UnknownAddress, match="moons"):
        pages.pages()


def test_a_page_that_fails_fails_the_measurement(operator_client):
    broken = pages.MeasuredPage(name="broken", way="", url="/no-such-page/")

    with pytest.raises(PageFailed, match="404"):
        pages.measure_page(operator_client, broken, rounds=1)


@pytest.mark.parametrize(
    ("small", "large", "missed"),
    [
        (timed(20), timed(29), ()),
        (timed(20), timed(31), ("ratio",)),
        (timed(1), timed(3), ()),  # the machine's own unrest
        (timed(20), timed(31, size=200), ()),  # it shows more
        (timed(50), timed(61), ("time",)),
        (timed(20), timed(21, queries=13), ("queries",)),
        (timed(20, is_search=True), timed(149, is_search=True), ()),
        (timed(20, is_search=True), timed(151, is_search=True), ("time",)),
    ],
)
def test_targets_depend_on_the_kind_of_page(small, large, missed):
    assert Compared(small=small, large=large).misses == missed


def test_a_missed_target_is_marked():
    found = [Compared(small=timed(20), large=timed(70))]

    assert "MISSED: ratio, time" in as_table(found, 5_000, 1_000)
    assert as_data(found, 5_000, 1_000)["pages"][0]["missed"] == ["ratio", "time"]


@pytest.mark.prove
def test_the_command_compares_two_sizes(monkeypatch, fake_cli):
    monkeypatch.setenv(scratch.MARK, "1")
    monkeypatch.setattr(bench, "SMALLER", 20)
    monkeypatch.setattr(pages.measure, "__defaults__", (2, silent))
    output = StringIO()

    call_command("bench", "pages", "--sessions", "40", "--json", stdout=output)

    figures = json.loads(output.getvalue())
    assert (figures["sessions"], figures["smaller"]) == (40, 20)
    assert len(figures["pages"]) > 50
