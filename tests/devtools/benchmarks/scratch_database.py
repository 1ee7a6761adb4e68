"""A temporary PostgreSQL database on the server of DATABASE_URL."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote, urlunsplit

from django.db import connection


@contextmanager
def scratch_database_url() -> Iterator[str]:
    """Create it and yield its address (empty for SQLite); drop it at the end."""
    if connection.vendor != "postgresql":
        yield ""
        return
    name = f"claudeops_bench_{uuid.uuid4().hex[:12]}"
    _execute(f'CREATE DATABASE "{name}"')
    try:
        yield _address_of(name)
    finally:
        _execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def _address_of(name: str) -> str:
    """Build the address from the settings of the connection."""
    found = connection.settings_dict
    password = quote(found["PASSWORD"], safe="")
    who = quote(found["USER"], safe="") + (f":{password}" if password else "")
    where = found["HOST"] + (f":{found['PORT']}" if found["PORT"] else "")
    return str(urlunsplit(("postgresql", f"{who}@{where}" if who else where, f"/{name}", "", "")))


def _execute(statement: str) -> None:
    """Execute outside of a transaction, as the server requires."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
    connection.close()
