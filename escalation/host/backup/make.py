"""Writes a backup: all or nothing, for its owner alone, while runs go on."""

from __future__ import annotations

import base64
import contextlib
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connection
from django.db.migrations.recorder import MigrationRecorder
from django.utils import timezone

from escalation.host.backup.document import FORMAT, MARK, BinaryStream, Writer, compressed
from escalation.host.backup.migration_state import apps_of
from escalation.host.backup.rows import columns, rows_of, tables
from escalation.host.backup.snapshot import snapshot
from escalation.host.backup.stored_files import stored_files

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Made:
    path: Path
    rows: int
    files: int
    size: int


def make_backup(path: Path, tell: Tell) -> Made:
    """Raises OSError where the disk does not take it; then nothing is left of it."""
    with _draft_of(path) as draft, draft.open("wb") as file:
        os.fchmod(file.fileno(), 0o600)
        with compressed(file) as out:
            rows, files = _write_all(out, tell)
        file.flush()
        os.fsync(file.fileno())
        # A name that came into being meanwhile is not written over.
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
    # Afterwards: what the record of that moment speaks of is then surely among them.
    for stored in stored_files():
        with contextlib.suppress(FileNotFoundError):  # taken in by a run meanwhile
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
