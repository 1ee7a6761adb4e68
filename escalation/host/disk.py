"""How much room the record takes, and how much is left."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from django.conf import settings
from django.db import connection

MOST_FILES = 20_000
SQLITE_FILES = ("", "-wal", "-shm")


@dataclass(frozen=True, kw_only=True, slots=True)
class Disk:
    state_directory: str
    state_bytes: int
    is_cut: bool
    """There are more files than were looked at."""
    database_bytes: int | None
    """None where the database does not say."""
    free_bytes: int | None
    total_bytes: int | None


def disk_now() -> Disk:
    state = Path(settings.CLAUDEOPS_STATE_DIR)
    sizes = list(islice(_sizes(state), MOST_FILES))
    usage = shutil.disk_usage(state) if state.is_dir() else None
    return Disk(
        state_directory=str(state),
        state_bytes=sum(sizes),
        is_cut=len(sizes) == MOST_FILES,
        database_bytes=_database_bytes(),
        free_bytes=usage.free if usage else None,
        total_bytes=usage.total if usage else None,
    )


def _sizes(directory: Path) -> Iterator[int]:
    """Of files, as they are met; what goes meanwhile counts nothing."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from _sizes(Path(entry.path))
                else:
                    yield entry.stat(follow_symlinks=False).st_size
    except OSError:
        return


def _database_bytes() -> int | None:
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_database_size(current_database())")
            return int(cursor.fetchone()[0])
    name = str(connection.settings_dict["NAME"])
    files = [Path(name + ending) for ending in SQLITE_FILES]
    return sum(file.stat().st_size for file in files if file.is_file()) or None
