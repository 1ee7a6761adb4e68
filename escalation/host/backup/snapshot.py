"""Other ways to a database: one moment of it, and one that stands in its place for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connection, connections, transaction

STAGE = "stage"


@contextmanager
def snapshot() -> Iterator[None]:
    """Until the end, this thread sees this moment alone, and keeps nobody from writing."""
    true = connections[DEFAULT_DB_ALIAS]
    other = true.copy()
    if other.vendor == "sqlite":
        # Our transactions take the write lock at once; this one must not.
        other.settings_dict["OPTIONS"]["transaction_mode"] = "DEFERRED"
    connections[DEFAULT_DB_ALIAS] = other
    try:
        with transaction.atomic():
            _look_for_the_first_time()
            yield
    finally:
        other.close()
        connections[DEFAULT_DB_ALIAS] = true


def _look_for_the_first_time() -> None:
    """The moment is that of the first look."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        cursor.execute("SELECT count(*) FROM django_migrations")


@contextmanager
def standing_in(path: Path) -> Iterator[None]:
    """A new SQLite database in the place of the true one.

    In its very place, because migrations that change rows ask for no other database.
    """
    true, true_settings = connections[DEFAULT_DB_ALIAS], connections.settings[DEFAULT_DB_ALIAS]
    connections.settings[DEFAULT_DB_ALIAS] = _file_settings(path)
    del connections[DEFAULT_DB_ALIAS]
    try:
        yield
    finally:
        connections[DEFAULT_DB_ALIAS].close()
        connections.settings[DEFAULT_DB_ALIAS] = true_settings
        connections[DEFAULT_DB_ALIAS] = true


@contextmanager
def beside(path: Path) -> Iterator[str]:
    """A SQLite database that is read beside the true one: the name to ask for it."""
    connections.settings[STAGE] = _file_settings(path)
    try:
        yield STAGE
    finally:
        connections[STAGE].close()
        del connections[STAGE]
        del connections.settings[STAGE]


def _file_settings(path: Path) -> dict[str, Any]:
    stage = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path), "OPTIONS": {}}
    return deepcopy(connections[DEFAULT_DB_ALIAS].settings_dict) | stage
