"""Another program that holds a lock on the database of the test."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from django.db import connection

WRITTEN = "sessions_app_sessionevent, sessions"


def locked_database() -> AbstractContextManager[Any]:
    """Until the end of the block nobody else can write; reading goes on."""
    return _locked_sqlite() if connection.vendor == "sqlite" else _locked_postgresql()


@contextmanager
def _locked_sqlite() -> Iterator[None]:
    other = sqlite3.connect(
        connection.settings_dict["NAME"], isolation_level=None, check_same_thread=False
    )
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


@contextmanager
def _locked_postgresql() -> Iterator[None]:
    other = connection.copy()
    other.set_autocommit(False)
    try:
        with other.cursor() as cursor:
            cursor.execute(f"LOCK TABLE {WRITTEN} IN EXCLUSIVE MODE")
        yield
        other.rollback()
    finally:
        other.close()
