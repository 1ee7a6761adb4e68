"""A PostgreSQL database of a benchmark's own, on the server that DATABASE_URL names."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote, urlunsplit

from django.db import connection


@contextmanager
def scratch_database_url() -> Iterator[str]:
    """Its address, or nothing where the installation uses SQLite. It is dropped at the end."""
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
    """From the connection's own settings: the variable may have come from a file."""
    found = connection.settings_dict
    password = quote(found["PASSWORD"], safe="")
    who = quote(found["USER"], safe="") + (f":{password}" if password else "")
    where = found["HOST"] + (f":{found['PORT']}" if found["PORT"] else "")
    return str(urlunsplit(("postgresql", f"{who}@{where}" if who else where, f"/{name}", "", "")))


def _execute(statement: str) -> None:
    """Outside of any transaction, as the server demands."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
    connection.close()
