from __future__ import annotations

import pytest

from claudeops.env import database_from_url, sqlite_database
from escalation.run.runner import LEASE_SECONDS
from tests.tables import each_row


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("sqlite:////var/lib/claudeops/db.sqlite3", "/var/lib/claudeops/db.sqlite3"),
        ("sqlite:///db.sqlite3", "db.sqlite3"),
        ("sqlite3:////srv/a%20b.sqlite3", "/srv/a b.sqlite3"),
    ],
)
def test_sqlite_names_a_file(url, name):
    database = database_from_url(url)

    assert (database["ENGINE"], database["NAME"]) == ("django.db.backends.sqlite3", name)


def test_sqlite_is_set_up_for_several_processes():
    options = sqlite_database("/srv/db.sqlite3")["OPTIONS"]

    assert "journal_mode=WAL" in options["init_command"]
    assert options["transaction_mode"] == "IMMEDIATE"
    assert options["timeout"] >= 5


def test_two_databases_do_not_share_their_options():
    first, second = sqlite_database("/a"), sqlite_database("/b")

    first["OPTIONS"]["timeout"] = 1

    assert second["OPTIONS"]["timeout"] != 1


@pytest.mark.parametrize("scheme", ["postgres", "postgresql"])
def test_postgresql_is_read_from_its_address(scheme):
    database = database_from_url(f"{scheme}://ops:p%40ss@db.local:5433/record?sslmode=require")

    assert (
        database.items()
        >= {
            "ENGINE": "claudeops.postgresql",
            "NAME": "record",
            "USER": "ops",
            "PASSWORD": "p@ss",
            "HOST": "db.local",
            "PORT": 5433,
        }.items()
    )
    assert database["OPTIONS"]["sslmode"] == "require"


def test_the_postgresql_timeout_is_shorter_than_the_lease_of_a_session():
    options = database_from_url("postgresql://db/record")["OPTIONS"]

    assert options["tcp_user_timeout"] / 1000 < LEASE_SECONDS


def test_options_of_the_address_take_precedence():
    options = database_from_url("postgresql://db/record?connect_timeout=60")["OPTIONS"]

    assert int(options["connect_timeout"]) == 60


def test_postgresql_needs_no_more_than_a_name():
    database = database_from_url("postgresql:///record")

    assert (database["NAME"], database["HOST"], database["PORT"]) == ("record", "", "")


def test_postgresql_may_be_reached_by_a_socket():
    assert database_from_url("postgresql://%2Frun%2Fdb/record")["HOST"] == "/run/db"


@each_row(
    "url",
    ["mysql://x", "x", "/srv/db.sqlite3", "http://db/record", "mysql://db/record", "postgis://d/r"],
)
def test_any_other_address_is_refused_with_the_valid_form(url):
    with pytest.raises(ValueError, match=r"sqlite:/// or postgresql://"):
        database_from_url(url)


@each_row(
    ("url", "wanted"),
    [
        ("postgresql://db:port/record", "an address like postgresql://user"),
        ("postgresql://ops:p[ss@db/record", "special characters written as %40"),
        ("postgresql://db/", "must name a database"),
        ("sqlite://", "must name a file"),
        ("sqlite:///", "must name a file"),
        ("sqlite3:///", "must name a file"),
        ("sqlite://srv/db.sqlite3", "must name a file"),
        ("sqlite://:memory:", "must name a file"),
    ],
)
def test_an_address_that_names_no_database_is_refused(url, wanted):
    with pytest.raises(ValueError, match=wanted):
        database_from_url(url)
