"""Rows of a table as plain JSON values, and back: the same from SQLite and from PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date, datetime, time
from decimal import Decimal
from itertools import islice
from typing import Any
from uuid import UUID

from django.apps.registry import Apps
from django.db import connections
from django.db.models import Field, JSONField, Model
from django.db.models.query import QuerySet

# What the queue has done: our own record tells it better. Words to search: they only repeat it.
LEFT_OUT = {"django_q.task", "sessions_app.searchtext"}
CHUNK = 500


def tables(apps: Apps) -> dict[str, type[Model]]:
    """Every table with rows of its own, by the label of its model."""
    return {
        model._meta.label_lower: model
        for model in apps.get_models(include_auto_created=True)
        if model._meta.managed and not model._meta.proxy
        if model._meta.label_lower not in LEFT_OUT
    }


def columns(model: type[Model]) -> list[str]:
    return [field.attname for field in model._meta.concrete_fields]


def rows_of(model: type[Model], alias: str) -> Iterator[list[Any]]:
    """In the order of their keys, a few at a time."""
    found = model._base_manager.using(alias).order_by("pk")
    for row in found.iterator(chunk_size=CHUNK):
        yield [_plain(field, row) for field in model._meta.concrete_fields]


def insert(model: type[Model], names: list[str], rows: Iterable[list[Any]], alias: str) -> None:
    """As they were: no default, no time of today and no signal changes a row on its way."""
    fields = [field for field in model._meta.concrete_fields if field.attname in names]
    places = [names.index(field.attname) for field in fields]
    operations = connections[alias].ops
    waiting = iter(rows)
    while chunk := [_row(model, fields, places, row) for row in islice(waiting, CHUNK)]:
        size = max(1, operations.bulk_batch_size(fields, chunk))
        for start in range(0, len(chunk), size):
            QuerySet(model, using=alias)._insert(  # type: ignore[attr-defined]  # knows `raw`
                chunk[start : start + size], fields=fields, using=alias, raw=True
            )


def empty(models: Iterable[type[Model]], alias: str) -> None:
    connection = connections[alias]
    with connection.cursor() as cursor:
        for model in models:
            cursor.execute(f"DELETE FROM {connection.ops.quote_name(model._meta.db_table)}")  # noqa: S608


def _plain(field: Field[Any, Any], row: Model) -> Any:
    """Times keep every digit, which Django's own JSON does not."""
    value = field.value_from_object(row)
    if value is None or isinstance(field, JSONField):
        return value
    if not type(field).__module__.startswith("django."):
        return field.value_to_string(row)
    match value:
        case bool() | int() | float() | str():
            return value
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal() | UUID():
            return str(value)
    return field.value_to_string(row)


def _row(
    model: type[Model], fields: list[Field[Any, Any]], places: list[int], row: list[Any]
) -> Model:
    values = {
        field.attname: field.to_python(row[place])
        for field, place in zip(fields, places, strict=True)
    }
    return model(**values)
