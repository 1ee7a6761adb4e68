"""One spelling for one service, and different ones for different services."""

from __future__ import annotations

import pytest

from sessions_app.history.services import LONGEST, UNNAMED, display_name, one_spelling
from tests.tables import each_row

SAME = {
    "web-shop": ["Web Shop", "web_shop", " `web-shop` ", '"WEB  SHOP"', "web-shop.service"],
    "nginx": [
        "nginx.service",
        "Nginx",
        "#nginx",
        "'nginx'",
        "/nginx",
        "`/nginx`",
        "/nginx.service",
    ],
    "db (eu)": [],
}


@each_row(("one", "name"), [(one, n) for one, names in SAME.items() for n in names])
def test_spellings_of_one_service_are_equal(one, name):
    assert one_spelling(name) == one


@pytest.mark.parametrize(
    ("one", "other"),
    [("auth", "auth-service"), ("web-1", "web-2"), ("api/v1", "api/v2"), ("db", "db backup")],
)
def test_names_of_different_services_differ(one, other):
    assert one_spelling(one) != one_spelling(other)


@each_row("name", ["", "  ", "``", "#", "_"])
def test_an_empty_name_gets_a_placeholder(name):
    assert one_spelling(name) == UNNAMED


@each_row(
    ("name", "shown"),
    [("/web", "web"), ("Web Shop", "Web Shop"), ("`web.service`", "web"), ("api/v1", "api/v1")],
)
def test_a_name_is_shown_without_what_the_spelling_ignores(name, shown):
    assert display_name(name) == shown


@each_row("name", ["/", " / ", ".service", "/web", "Web.service"])
def test_the_shown_name_has_the_same_spelling(name):
    assert one_spelling(display_name(name)) == one_spelling(name)


def test_long_names_are_shortened_and_stay_different():
    one, other = one_spelling("x" * 500 + "a"), one_spelling("x" * 500 + "b")

    assert len(one) == len(other) == LONGEST
    assert one != other


@pytest.mark.parametrize("name", ["web\x00", "web\ud800", "we\u202eb"])
def test_control_characters_are_marked(name):
    assert one_spelling(name).isprintable()
