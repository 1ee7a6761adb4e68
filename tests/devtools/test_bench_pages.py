"""`bench pages`: it finds every page of the URL configuration, and says what is slow."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import call_command

from escalation.management.commands import bench
from escalation.rehearsal import scratch
from escalation.rehearsal.benchmarks import page_walk, pages
from escalation.rehearsal.benchmarks.page_table import as_data, as_table
from escalation.rehearsal.benchmarks.page_walk import UnknownAddress, addresses, unknown_ways
from escalation.rehearsal.benchmarks.pages import Compared, PageFailed, Timed
from escalation.rehearsal.benchmarks.record_seed import seed
from sessions_app.models import Approval, Change, Cycle, Incident, Session
from sessions_app.reading.rollups_check import check

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
        queries=queries,
        size=size,
        by_cpu=True,
    )


def test_a_made_up_record_has_the_size_that_was_asked_for_and_right_sums():
    seed(SESSIONS)

    assert Session.objects.count() == SESSIONS
    assert check().differences == ()
    for model in (Cycle, Incident, Change, Approval):
        assert model.objects.exists()


def test_it_measures_every_page_of_the_url_configuration(fake_cli):
    """What it does not measure answers no GET, or says itself why it is not asked."""
    seed(SESSIONS)

    measured = {page.title.partition(",")[0] for page in pages.measure(rounds=2)}

    left_out = {address.name for address in addresses()} - measured - set(page_walk.NOT_ASKED)
    assert {name for name in left_out if not is_no_page(name)} == set()
    assert {"sessions_app:dashboard", "sessions_app:costs", "admin:index"} <= measured
    assert len(measured) > 50


def is_no_page(name: str) -> bool:
    """It acts, nobody may, or there is no row of which it could be a page."""
    acts = name.endswith(("logout", "_add", "_delete")) or name.startswith("escalation:")
    empty = ("success", "failure", "ormq", "loginfailure", "walls")
    return acts or any(f"_{model}_" in name for model in empty)


def test_every_way_to_ask_belongs_to_a_page():
    assert unknown_ways() == set()


def test_an_address_that_it_cannot_fill_is_named(monkeypatch):
    monkeypatch.setattr(
        page_walk, "addresses", lambda: [page_walk.Address("new", "moons/<int:pk>/")]
    )

    with pytest.raises(UnknownAddress, match="moons"):
        page_walk.pages()


def test_a_page_that_fails_fails_the_measurement(operator_client):
    broken = page_walk.Page(name="broken", way="", url="/no-such-page/")

    with pytest.raises(PageFailed, match="404"):
        pages._timed(operator_client, broken, rounds=1)


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
def test_the_aims_are_those_of_the_issue(small, large, missed):
    assert Compared(small=small, large=large).misses == missed


def test_what_misses_an_aim_is_marked():
    found = [Compared(small=timed(20), large=timed(70))]

    assert "MISSED: ratio, time" in as_table(found, 5_000, 1_000)
    assert as_data(found, 5_000, 1_000)["pages"][0]["missed"] == ["ratio", "time"]


def test_the_command_compares_two_sizes(monkeypatch, fake_cli):
    monkeypatch.setenv(scratch.MARK, "1")
    monkeypatch.setattr(bench, "SMALLER", 20)
    monkeypatch.setattr(pages.measure, "__defaults__", (2,))
    output = StringIO()

    call_command("bench", "pages", "--sessions", "40", "--json", stdout=output)

    figures = json.loads(output.getvalue())
    assert (figures["sessions"], figures["smaller"]) == (40, 20)
    assert len(figures["pages"]) > 50
