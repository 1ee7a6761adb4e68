"""Brings a backup back: read whole first, built beside, and put into place at the end.

The rows go into a database of their own, with the tables that they had, which is then brought to
this version by its migrations. Only that result takes the place of what is there. So a backup of an
older version can be restored, one of SQLite into PostgreSQL, and whatever goes wrong before the end
changes nothing.
"""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from django.apps import apps
from django.apps.registry import Apps
from django.conf import settings
from django.core.management.color import no_style
from django.db import DEFAULT_DB_ALIAS, connection, connections, transaction

from escalation.host.backup.document import BackupUnusable, read_heading, read_through
from escalation.host.backup.migration_state import (
    Migration,
    last_of_each,
    migrate_to,
    unknown_among,
)
from escalation.host.backup.rows import columns, empty, insert, rows_of, tables
from escalation.host.backup.snapshot import beside, standing_in
from escalation.host.backup.stored_files import keep_beside, put
from escalation.host.upgrading import carry_out
from sessions_app.models.search_triggers import before_migrate, write_anew

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Heading:
    version: str
    made_at: str
    host: str
    migrations: tuple[Migration, ...]


def checked_backup(path: Path) -> Heading:
    """What the backup is, once it is sure that it is whole and that this version knows it."""
    found = read_heading(path)
    migrations = tuple((str(app), str(name)) for app, name in found["migrations"])
    if newer := unknown_among(migrations):
        raise BackupUnusable(
            f"{path} was made by a newer Claude Ops ({found['version']}; this is "
            f"{settings.CLAUDEOPS_VERSION}, which does not know {newer[0]}). Install that version "
            "or a later one first. Nothing was changed."
        )
    for _line in read_through(path):
        pass
    return Heading(found["version"], found["made_at"], found["host"], migrations)


def restore(path: Path, heading: Heading, tell: Tell) -> list[str]:
    """What a person should know afterwards, as sentences."""
    is_a_file = connection.vendor == "sqlite"
    has_tables = bool(connection.introspection.table_names())
    with _stage_file() as stage:
        with standing_in(stage):
            tell("Building the tables of the backup")
            files = _load(path, migrate_to(last_of_each(heading.migrations)), tell)
            tell("Bringing it to this version")
            carry_out()
        if not is_a_file:
            with beside(stage) as source:
                _copy_from(source, tell)
        said = [sentence for name, content in files if (sentence := put(name, content))]
        if is_a_file:
            said += _put_in_place(stage, keeping=has_tables)
    return said


def _load(path: Path, old: Apps, tell: Tell) -> list[tuple[str, bytes]]:
    """The rows into their tables; the files, which are small, come back."""
    models = tables(old)
    files: list[tuple[str, bytes]] = []
    label, names = "", list[str]()
    with transaction.atomic(), connection.constraint_checks_disabled():
        empty(models.values(), DEFAULT_DB_ALIAS)
        for is_row, lines in groupby(read_through(path), lambda line: isinstance(line, list)):
            if is_row:
                insert(models[label], names, lines, DEFAULT_DB_ALIAS)
                continue
            for line in lines:
                if "file" in line:
                    files.append((line["file"], base64.b64decode(line["content"])))
                else:
                    label, names = line["table"], line["columns"]
                    tell(f"Reading {label.partition('.')[2]}")
        connection.check_constraints()
    return files


def _copy_from(source: str, tell: Tell) -> None:
    """Into a database that is reached by its address: in one transaction, or not at all."""
    carry_out()
    models = tables(apps)
    with transaction.atomic():
        before_migrate(DEFAULT_DB_ALIAS)  # the words to search are written at the end, at once
        empty(models.values(), DEFAULT_DB_ALIAS)
        for label, model in models.items():
            tell(f"Writing {label.partition('.')[2]}")
            insert(model, columns(model), rows_of(model, source), DEFAULT_DB_ALIAS)
        with connection.cursor() as cursor:
            for statement in connection.ops.sequence_reset_sql(no_style(), list(models.values())):
                cursor.execute(statement)
        write_anew()


def _put_in_place(stage: Path, *, keeping: bool) -> list[str]:
    """By renaming; what was there stays beside it, unless it was empty."""
    target = Path(connection.settings_dict["NAME"])
    connections.close_all()
    said = []
    if keeping:
        said.append(f"The database that was here is kept as {keep_beside(target)}.")
    for ending in ("-wal", "-shm"):
        target.with_name(target.name + ending).unlink(missing_ok=True)
    os.replace(stage, target)
    return said


@contextmanager
def _stage_file() -> Iterator[Path]:
    state = Path(settings.CLAUDEOPS_STATE_DIR)
    stage = state / f"claudeops.sqlite3.restoring-{secrets.token_hex(4)}"
    os.close(os.open(stage, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        yield stage
    finally:
        for ending in ("", "-journal", "-wal", "-shm"):
            stage.with_name(stage.name + ending).unlink(missing_ok=True)
