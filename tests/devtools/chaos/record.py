"""Reads SQLite or PostgreSQL by SQL, without the models that are checked.

Placeholders are written as `?`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from decimal import Decimal
from typing import Any

Row = dict[str, Any]
Ask = Callable[..., list[Row]]
SQLITE = "sqlite:///"


class RecordAway(Exception):
    """It does not answer now; it may, a moment later."""


@contextmanager
def opened(address: str, *, timeout: float = 30) -> Iterator[Ask]:
    if address.startswith(SQLITE):
        with _sqlite(address.removeprefix(SQLITE), timeout) as ask:
            yield ask
    else:
        with _postgresql(address) as ask:
            yield ask


@contextmanager
def _sqlite(path: str, timeout: float) -> Iterator[Ask]:
    try:
        with closing(sqlite3.connect(path, timeout=timeout)) as record, record:
            record.row_factory = sqlite3.Row
            yield lambda query, *given: [dict(row) for row in record.execute(query, given)]
    except sqlite3.OperationalError as error:
        raise RecordAway(str(error)) from error


@contextmanager
def _postgresql(address: str) -> Iterator[Ask]:
    import psycopg  # only here: without PostgreSQL its driver need not be installed
    from psycopg.rows import dict_row

    try:
        with psycopg.connect(address, row_factory=dict_row, connect_timeout=5) as record:

            def ask(query: str, *given: Any) -> list[Row]:
                cursor = record.execute(query.replace("?", "%s").encode(), given)
                return [_plain(row) for row in cursor] if cursor.description else []

            yield ask
    except psycopg.OperationalError as error:
        raise RecordAway(str(error)) from error


def _plain(row: Row) -> Row:
    return {
        name: float(value) if isinstance(value, Decimal) else value for name, value in row.items()
    }


def value_of(json_column: Any) -> Any:
    """SQLite keeps JSON as text."""
    return json.loads(json_column) if isinstance(json_column, str) else json_column
