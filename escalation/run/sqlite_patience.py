"""How long a write waits for another writer, where that must not be long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection


@contextmanager
def patience(seconds: int) -> Iterator[None]:
    """SQLite has one writer at a time; PostgreSQL has no such lock."""
    if connection.vendor != "sqlite":
        yield
        return
    usual = int(connection.settings_dict["OPTIONS"].get("timeout", 5))
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA busy_timeout = {seconds * 1000}")
        try:
            yield
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {usual * 1000}")
