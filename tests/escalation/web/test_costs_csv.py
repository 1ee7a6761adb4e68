"""Costs as a CSV file; a spreadsheet must not run a name as a formula."""

from __future__ import annotations

import csv
from decimal import Decimal

import pytest
from django.urls import reverse

from escalation.web.costs import harmless
from tests.factories import CycleFactory, SessionFactory, WatchFactory

pytestmark = pytest.mark.django_db


def rows_of(response) -> list[dict[str, str]]:
    return list(csv.DictReader(response.content.decode().splitlines()))


def test_the_page_links_to_a_file_with_the_same_filters(operator_client):
    SessionFactory(drill=True)
    url = reverse("web:costs")

    page = operator_client.get(url, {"period": "7", "drills": "yes"}).content.decode()

    assert 'href="?period=7&amp;drills=yes&amp;format=csv"' in page


def test_each_row_has_a_day_a_watch_a_tier_and_a_model(operator_client):
    cycle = CycleFactory(watch=WatchFactory(name="shop"), watch_name="shop")
    SessionFactory(cycle=cycle, cost_usd=Decimal("0.0300000001"))

    response = operator_client.get(reverse("web:costs"), {"format": "csv"})

    (row,) = rows_of(response)
    assert response["Content-Type"] == "text/csv; charset=utf-8"
    assert response["Content-Disposition"] == 'attachment; filename="costs-30.csv"'
    assert (row["watch"], row["tier"], row["model"]) == ("shop", "1", "haiku")
    assert (row["runs"], row["cost_usd"]) == ("1", "0.0300000001")


def test_drills_are_in_a_file_of_their_own(operator_client):
    SessionFactory(drill=True)
    url = reverse("web:costs")

    real = rows_of(operator_client.get(url, {"format": "csv"}))
    drills = rows_of(operator_client.get(url, {"format": "csv", "drills": "yes", "period": "all"}))

    assert real == []
    assert [row["drill"] for row in drills] == ["disk-full"]


@pytest.mark.parametrize(
    "name", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "|calc", "\x1b[31m=1", " =1"]
)
def test_a_name_that_looks_like_a_formula_is_quoted(name):
    assert harmless(name).startswith("'")


@pytest.mark.parametrize("name", ["shop", "web-1", "a=b", ""])
def test_an_ordinary_name_is_unchanged(name):
    assert harmless(name) == name


def test_a_hostile_name_breaks_no_row(operator_client):
    cycle = CycleFactory(watch_name='=cmd|"/c calc"!A1,\r\nx')
    SessionFactory(cycle=cycle)

    (row,) = rows_of(operator_client.get(reverse("web:costs"), {"format": "csv"}))

    assert row["watch"].startswith("'=cmd|")
    assert row["runs"] == "1"
