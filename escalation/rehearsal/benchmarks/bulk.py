"""Many rows at once, past the ORM: a million sessions in minutes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any

from django.db import connection
from django.db.models import Field, JSONField, Model

BATCH = 20_000


class Table:
    """The columns of a model, and a row that is filled with its defaults."""

    def __init__(self, model: type[Model]) -> None:
        self._fields: list[Field[Any, Any]] = list(model._meta.concrete_fields)
        self._table = model._meta.db_table
        self._usual = {field.attname: _plain(field, field.get_default()) for field in self._fields}
        self._columns = ", ".join(f'"{field.column}"' for field in self._fields)

    def insert(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Each with what is not usual about it, by attribute, as the database has it."""
        names = [field.attname for field in self._fields]
        filled = (
            tuple(row[name] for name in names) for row in ({**self._usual, **own} for own in rows)
        )
        with connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                self._copy(cursor, filled)
            else:
                self._insert(cursor, filled)

    def _insert(self, cursor: Any, rows: Iterator[tuple[Any, ...]]) -> None:
        places = ", ".join(["%s"] * len(self._fields))
        statement = f'INSERT INTO "{self._table}" ({self._columns}) VALUES ({places})'  # noqa: S608
        while batch := list(islice(rows, BATCH)):
            cursor.executemany(statement, batch)

    def _copy(self, cursor: Any, rows: Iterator[tuple[Any, ...]]) -> None:
        with cursor.copy(f'COPY "{self._table}" ({self._columns}) FROM STDIN') as copy:
            for row in rows:
                copy.write_row(row)


def moment(value: datetime) -> Any:
    """A time as the database stores it."""
    return connection.ops.adapt_datetimefield_value(value)


def _plain(field: Field[Any, Any], value: Any) -> Any:
    if isinstance(field, JSONField):
        return None if value is None else json.dumps(value)
    return moment(value) if isinstance(value, datetime) else value


def reset_numbers(models: Iterable[type[Model]]) -> None:
    """Let PostgreSQL's sequences continue after rows that brought their own numbers."""
    if connection.vendor != "postgresql":
        return
    with connection.cursor() as cursor:
        for model in models:
            table = model._meta.db_table
            cursor.execute(
                f"SELECT setval(pg_get_serial_sequence('\"{table}\"', 'id'), "  # noqa: S608
                f'greatest((SELECT max(id) FROM "{table}"), 1))'
            )
