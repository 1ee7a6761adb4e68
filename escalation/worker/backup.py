"""Writes and restores backups, completely or not at all, while sessions run."""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import json
import os
import secrets
import socket
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from itertools import groupby, islice
from pathlib import Path, PurePosixPath
from typing import IO, Any, TypeAlias
from uuid import UUID

from django.apps import apps
from django.apps import apps as today
from django.apps.registry import Apps
from django.conf import settings
from django.core.management.color import no_style
from django.db import DEFAULT_DB_ALIAS, connection, connections, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import Field, JSONField, Model
from django.db.models.query import QuerySet
from django.utils import timezone

from escalation.worker.installation import carry_out
from sessions_app.models.search import before_migrate, rebuild_search_text

# Format: compressed lines of JSON, from a heading to an end with a checksum.
#
#     {"claudeops_backup": 1, …}            format, version, migrations
#     {"table": …, "columns": […]}          then a line for each row: […]
#     {"file": …, "content": …}             base64
#     {"end": {"lines": …, "sha256": …}}    of all lines before it
#
# `zcat FILE | head -1` shows the heading. A file without the last line is incomplete.

FORMAT = 1
MARK = "claudeops_backup"
QUICK = 6


BinaryStream: TypeAlias = IO[bytes] | gzip.GzipFile


class BackupUnusable(Exception):
    """The file is not a usable backup."""


@dataclass(slots=True)
class Writer:
    out: BinaryStream
    lines: int = 0
    _digest: Any = field(default_factory=hashlib.sha256)

    def write(self, value: Any) -> None:
        line = json.dumps(value, separators=(",", ":")).encode() + b"\n"
        self.out.write(line)
        self._digest.update(line)
        self.lines += 1

    def end(self) -> None:
        self.write({"end": {"lines": self.lines, "sha256": self._digest.hexdigest()}})


def compressed(file: IO[bytes]) -> gzip.GzipFile:
    return gzip.GzipFile(fileobj=file, mode="wb", compresslevel=QUICK, filename="", mtime=0)


def read_heading(path: Path) -> dict[str, Any]:
    """Returns the heading. Raises BackupUnusable if it is no backup or a newer format."""
    heading = next(_lines(path), None)
    found = _parsed(heading[0]) if heading else None
    if not isinstance(found, dict) or MARK not in found:
        raise BackupUnusable(f"{path} is not a backup of Claude Ops. Nothing was changed.")
    if not isinstance(found[MARK], int) or found[MARK] > FORMAT:
        raise BackupUnusable(
            f"{path} was made by a newer Claude Ops ({found.get('version')}). "
            "Install that version or a later one first. Nothing was changed."
        )
    return found


def read_through(path: Path) -> Iterator[Any]:
    """Yields every line after the heading. Raises BackupUnusable if the file is incomplete."""
    digest, count, has_ended = hashlib.sha256(), 0, False
    for line, number in _lines(path):
        value = _parsed(line)
        if isinstance(value, dict) and "end" in value:
            has_ended = value["end"] == {"lines": count, "sha256": digest.hexdigest()}
            break
        digest.update(line)
        count = number
        if number > 1:
            yield value
    if not has_ended:
        raise BackupUnusable(
            f"{path} is cut off or damaged after line {count}: it does not end as a backup ends. "
            "Use another backup. Nothing was changed."
        )


def _lines(path: Path) -> Iterator[tuple[bytes, int]]:
    """Yields lines with their numbers, as far as the file can be read."""
    try:
        with gzip.open(path, "rb") as file:
            yield from ((line, number) for number, line in enumerate(file, start=1))
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


# The queue's tasks are code, signed with a key that is in the backup too; whoever changes the file
# could sign their own. Queued sessions are enqueued and schedules created again when the worker
# starts. The search index is rebuilt.
QUEUE = "django_q"
SEARCH = "sessions_app.searchtext"
CHUNK = 500


def tables(apps: Apps) -> dict[str, type[Model]]:
    """Returns the models with tables that are part of a backup, by label."""
    return {label: model for label, model in _all_tables(apps).items() if not is_left_out(label)}


def is_left_out(label: str) -> bool:
    return label.startswith(f"{QUEUE}.") or label == SEARCH


def queue_tables(apps: Apps) -> list[type[Model]]:
    return [model for label, model in _all_tables(apps).items() if label.startswith(f"{QUEUE}.")]


def _all_tables(apps: Apps) -> dict[str, type[Model]]:
    return {
        model._meta.label_lower: model
        for model in apps.get_models(include_auto_created=True)
        if model._meta.managed and not model._meta.proxy
    }


def columns(model: type[Model]) -> list[str]:
    return [field.attname for field in model._meta.concrete_fields]


def rows_of(model: type[Model], alias: str) -> Iterator[list[Any]]:
    """Yields rows as JSON values, in the order of their keys."""
    found = model._base_manager.using(alias).order_by("pk")
    for row in found.iterator(chunk_size=CHUNK):
        yield [_plain(field, row) for field in model._meta.concrete_fields]


def insert(model: type[Model], names: list[str], rows: Iterable[list[Any]], alias: str) -> None:
    """Inserts rows unchanged: without defaults, automatic times or signals."""
    fields = [field for field in model._meta.concrete_fields if field.attname in names]
    positions = [names.index(field.attname) for field in fields]
    operations = connections[alias].ops
    waiting = iter(rows)
    while chunk := [_row(model, fields, positions, row) for row in islice(waiting, CHUNK)]:
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
    """Returns a JSON value. Times keep their microseconds."""
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
    model: type[Model], fields: list[Field[Any, Any]], positions: list[int], row: list[Any]
) -> Model:
    values = {
        field.attname: None if _refers_to_left_out(field) else field.to_python(row[position])
        for field, position in zip(fields, positions, strict=True)
    }
    return model(**values)


def _refers_to_left_out(field: Field[Any, Any]) -> bool:
    """Returns whether a field, like the schedule of a watch, refers to a table that is not here."""
    related = field.related_model
    return isinstance(related, type) and is_left_out(related._meta.label_lower)


STAGE = "stage"


@contextmanager
def snapshot() -> Iterator[None]:
    """Opens a read-only view of this moment that blocks no writer."""
    true = connections[DEFAULT_DB_ALIAS]
    other = true.copy()
    if other.vendor == "sqlite":
        # Other transactions take the write lock at their beginning; this one must not.
        other.settings_dict["OPTIONS"]["transaction_mode"] = "DEFERRED"
    connections[DEFAULT_DB_ALIAS] = other
    try:
        with transaction.atomic():
            _fix_snapshot()
            yield
    finally:
        other.close()
        connections[DEFAULT_DB_ALIAS] = true


def _fix_snapshot() -> None:
    """Runs the first query, which fixes the snapshot."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        cursor.execute("SELECT count(*) FROM django_migrations")


@contextmanager
def replacing_database(path: Path) -> Iterator[None]:
    """Uses a new SQLite database as the default one: data migrations use no other."""
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
    """Opens a SQLite database beside the default one. Yields its alias."""
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


# Files outside of the database that cannot be made again: keys, spooled events, handoffs, archived
# transcripts, settings.

ENV, ARCHIVE = "env", "archive"
IN_STATE = ("secret_key", "encryption_key", "spool", "handoffs")
FROM_BACKUP = ".from-backup"


@dataclass(frozen=True, slots=True)
class StoredFile:
    name: str
    """The name in the backup: `secret_key`, `spool/17.jsonl`, `archive/…`, `env`."""
    path: Path


def stored_files() -> Iterator[StoredFile]:
    state = Path(settings.CLAUDEOPS_STATE_DIR)
    for name in IN_STATE:
        yield from _below(name, state / name)
    if archive := settings.CLAUDEOPS_ARCHIVE_DIR:
        yield from _below(ARCHIVE, Path(archive))
    yield from _below(ENV, Path(settings.CLAUDEOPS_ENV_FILE))


def path_of(name: str) -> Path | None:
    """Returns the path of a file of a backup; None if it has none here."""
    first, *rest = PurePosixPath(name).parts or ("",)
    if ".." in rest or first == "/":
        return None
    if first == ENV and not rest:
        return Path(settings.CLAUDEOPS_ENV_FILE)
    if first == ARCHIVE and rest:
        directory = settings.CLAUDEOPS_ARCHIVE_DIR
        return Path(directory).joinpath(*rest) if directory else None
    return Path(settings.CLAUDEOPS_STATE_DIR).joinpath(first, *rest) if first in IN_STATE else None


def put(name: str, content: bytes) -> str:
    """Writes a file. Returns a message for the operator, or nothing."""
    path = path_of(name)
    if path is None:
        return f"{name} was left out: set CLAUDEOPS_ARCHIVE_DIR first."
    if path.exists() and path.read_bytes() == content:
        return ""
    said = ""
    if name == ENV and (path.exists() or not _can_be_made(path)):
        # The state directory: the one of the settings may belong to another user.
        path = Path(settings.CLAUDEOPS_STATE_DIR) / (path.name + FROM_BACKUP)
        said = f"The settings in use stay as they are; those of the backup are in {path}."
    elif path.exists():
        keep_beside(path)
    _write(path, content)
    return said


def put_all(files: Iterable[tuple[str, bytes]]) -> list[str]:
    """Writes files. Returns messages for the operator."""
    return [sentence for name, content in files if (sentence := put(name, content))]


def _can_be_made(path: Path) -> bool:
    """Tests whether this user may make a file, and the directories that are missing for it."""
    nearest = next(one for one in path.parents if one.exists())
    return os.access(nearest, os.W_OK | os.X_OK)


def keep_beside(path: Path) -> Path:
    """Renames a file, so that a restore deletes nothing."""
    when = timezone.localtime().strftime("%Y%m%d-%H%M%S-%f")
    kept = path.with_name(f"{path.name}.before-restore-{when}")
    os.replace(path, kept)
    return kept


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(path.name + ".draft")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    draft.replace(path)


def _below(name: str, path: Path) -> Iterator[StoredFile]:
    if path.is_symlink():
        return
    if path.is_file():
        yield StoredFile(name, path)
    elif path.is_dir():
        for entry in _entries(path):
            yield from _below(f"{name}/{entry.name}", entry)


def _entries(directory: Path) -> list[Path]:
    """Returns the entries, or none if the directory has vanished."""
    try:
        return sorted(directory.iterdir())
    except FileNotFoundError:
        return []


Migration = tuple[str, str]


def unknown_among(migrations: Iterable[Migration]) -> list[str]:
    """Returns the migrations that only a newer version has."""
    known = MigrationLoader(None).disk_migrations
    return [f"{app}.{name}" for app, name in migrations if (app, name) not in known]


def last_of_each(migrations: Iterable[Migration]) -> list[Migration]:
    """Returns the last applied migration of each app."""
    graph, applied = MigrationLoader(None).graph, set(migrations)
    return [
        node
        for node in sorted(applied)
        if not any(
            child.key in applied and child.key[0] == node[0]
            for child in graph.node_map[node].children
        )
    ]


def apps_of(alias: str) -> Apps:
    """Returns the models of this database, which may be those of an older version."""
    executor = MigrationExecutor(connections[alias])
    if not executor.migration_plan(executor.loader.graph.leaf_nodes()):
        return today
    applied = executor.loader.applied_migrations
    return executor.loader.project_state(last_of_each(applied)).apps


def migrate_to(targets: list[Migration]) -> Apps:
    """Migrates an empty database. Returns its models."""
    return MigrationExecutor(connection).migrate(targets).apps


Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Made:
    path: Path
    rows: int
    files: int
    size: int


def make_backup(path: Path, tell: Tell) -> Made:
    """Writes a backup. Leaves no file behind if it raises OSError."""
    with _draft_of(path) as draft, draft.open("wb") as file:
        os.fchmod(file.fileno(), 0o600)
        with compressed(file) as out:
            rows, files = _write_all(out, tell)
        file.flush()
        os.fsync(file.fileno())
        # A file of that name that was created meanwhile is not overwritten.
        os.link(draft, path)
    return Made(path, rows, files, path.stat().st_size)


def _write_all(out: BinaryStream, tell: Tell) -> tuple[int, int]:
    writer = Writer(out)
    rows = files = 0
    with snapshot():
        writer.write(_heading())
        for label, model in tables(apps_of(DEFAULT_DB_ALIAS)).items():
            writer.write({"table": label, "columns": columns(model)})
            for row in rows_of(model, DEFAULT_DB_ALIAS):
                writer.write(row)
                rows += 1
            tell(f"Copying the record: {rows:,} rows, {label.partition('.')[2]}")
    # After the snapshot: every file that it refers to exists now.
    for stored in stored_files():
        with contextlib.suppress(FileNotFoundError):  # read by a session meanwhile
            content = base64.b64encode(stored.path.read_bytes()).decode()
            writer.write({"file": stored.name, "content": content})
            files += 1
    writer.end()
    return rows, files


def _heading() -> dict[str, Any]:
    return {
        MARK: FORMAT,
        "version": settings.CLAUDEOPS_VERSION,
        "made_at": timezone.now().isoformat(),
        "host": socket.gethostname(),
        "database": connection.vendor,
        "migrations": sorted(MigrationRecorder(connection).applied_migrations()),
    }


@contextlib.contextmanager
def _draft_of(path: Path) -> Iterator[Path]:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        yield draft
    finally:
        draft.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Heading:
    version: str
    made_at: str
    host: str
    migrations: tuple[Migration, ...]


def checked_backup(path: Path) -> Heading:
    """Returns the heading of a complete backup that this version can restore."""
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
    """Restores a backup. Returns messages for the operator.

    The rows are loaded into a separate database with their own tables, which is then migrated to
    this version. Only the result replaces the database, so that an error before changes nothing.
    """
    is_a_file = connection.vendor == "sqlite"
    has_tables = bool(connection.introspection.table_names())
    with _stage_file() as stage:
        with replacing_database(stage):
            tell("Building the tables of the backup")
            files = _load(path, migrate_to(last_of_each(heading.migrations)), tell)
            tell("Bringing it to this version")
            carry_out()
        if not is_a_file:
            with beside(stage) as source:
                return _copy_from(source, files, tell)
        return put_all(files) + _put_in_place(stage, keeping=has_tables)


def _load(path: Path, old: Apps, tell: Tell) -> list[tuple[str, bytes]]:
    """Loads the rows into their tables. Returns the files, which are small."""
    models = tables(old)
    files: list[tuple[str, bytes]] = []
    label, names = "", list[str]()
    with transaction.atomic(), connection.constraint_checks_disabled():
        empty([*models.values(), *queue_tables(old)], DEFAULT_DB_ALIAS)
        for is_row, lines in groupby(read_through(path), lambda line: isinstance(line, list)):
            if is_row:
                # Backups of earlier versions contain the queue.
                if not is_left_out(label):
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


def _copy_from(source: str, files: list[tuple[str, bytes]], tell: Tell) -> list[str]:
    """Copies all rows into PostgreSQL and writes the files, in one transaction.

    A file that cannot be written takes the rows back.
    """
    carry_out()
    models = tables(apps)
    with transaction.atomic():
        before_migrate(DEFAULT_DB_ALIAS)  # the search index is built at the end
        empty([*models.values(), *queue_tables(apps)], DEFAULT_DB_ALIAS)
        for label, model in models.items():
            tell(f"Writing {label.partition('.')[2]}")
            insert(model, columns(model), rows_of(model, source), DEFAULT_DB_ALIAS)
        with connection.cursor() as cursor:
            for statement in connection.ops.sequence_reset_sql(no_style(), list(models.values())):
                cursor.execute(statement)
        rebuild_search_text()
        return put_all(files)


def _put_in_place(stage: Path, *, keeping: bool) -> list[str]:
    """Replaces the database file. The old one is kept, unless it was empty."""
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
