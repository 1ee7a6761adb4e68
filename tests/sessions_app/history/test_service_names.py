"""One spelling for one service, and never one for two."""

from __future__ import annotations

import pytest

from sessions_app.history.services import LONGEST, UNNAMED, one_spelling
from tests.tables import each_row

SAME = {
    "web-shop": ["Web Shop", "web_shop", " `web-shop` ", '"WEB  SHOP"', "web-shop.service"],
    "nginx": ["nginx.service", "Nginx", "#nginx", "'nginx'"],
    "db (eu)": [],
}


@each_row(("one", "name"), [(one, n) for one, names in SAME.items() for n in names])
def test_spellings_of_one_service(one, name):
    assert one_spelling(name) == one


@pytest.mark.parametrize(
    ("one", "other"),
    [("auth", "auth-service"), ("web-1", "web-2"), ("api/v1", "api/v2"), ("db", "db backup")],
)
def test_two_services_stay_two(one, other):
    assert one_spelling(one) != one_spelling(other)


@each_row("name", ["", "  ", "``", "#", "_"])
def test_what_has_no_name_gets_one(name):
    assert one_spelling(name) == UNNAMED


def test_long_names_are_cut_and_stay_apart():
    one, other = one_spelling("x" * 500 + "a"), one_spelling("x" * 500 + "b")

    assert len(one) == len(other) == LONGEST
    assert one != other


@pytest.mark.parametrize("name", ["web\x00", "web\ud800", "we\u202eb"])
def test_what_acts_on_its_reader_is_marked(name):
    assert one_spelling(name).isprintable()
