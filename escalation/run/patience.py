"""How long a write waits for another writer, where that must not be long."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import OperationalError, connection


@contextmanager
def patience(seconds: int) -> Iterator[None]:
    """SQLite has one writer at a time; in PostgreSQL somebody may hold a lock on a table.

    A database that is away takes no word about that, and its new connection begins as usual: the
    run must not end over it.
    """
    with contextlib.suppress(OperationalError):
        _wait_for_locks(seconds * 1000)
    try:
        yield
    finally:
        with contextlib.suppress(OperationalError):
            _wait_as_usual()


def _wait_for_locks(milliseconds: int) -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(f"PRAGMA busy_timeout = {milliseconds}")
        else:
            # Here 0 would mean without end.
            cursor.execute(f"SET lock_timeout = {max(1, milliseconds)}")


def _wait_as_usual() -> None:
    if connection.vendor == "sqlite":
        _wait_for_locks(int(connection.settings_dict["OPTIONS"].get("timeout", 5)) * 1000)
        return
    with connection.cursor() as cursor:
        cursor.execute("RESET lock_timeout")
