"""What an installation keeps outside the database and cannot make anew.

Both keys, events and handoffs that wait on disk, archived transcripts, the settings' file. The
rest of the state directory is made again when it is needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from django.conf import settings
from django.utils import timezone

ENV, ARCHIVE = "env", "archive"
IN_STATE = ("secret_key", "encryption_key", "spool", "handoffs")
FROM_BACKUP = ".from-backup"


@dataclass(frozen=True, slots=True)
class StoredFile:
    name: str
    """By what a backup calls it: `secret_key`, `spool/17.jsonl`, `archive/…`, `env`."""
    path: Path


def stored_files() -> Iterator[StoredFile]:
    state = Path(settings.CLAUDEOPS_STATE_DIR)
    for name in IN_STATE:
        yield from _below(name, state / name)
    if archive := settings.CLAUDEOPS_ARCHIVE_DIR:
        yield from _below(ARCHIVE, Path(archive))
    yield from _below(ENV, Path(settings.CLAUDEOPS_ENV_FILE))


def place_of(name: str) -> Path | None:
    """Where a file of a backup belongs here; None for one that has no place."""
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
    """Write a file where it belongs; a sentence where somebody should know about it."""
    path = place_of(name)
    if path is None:
        return f"{name} has no place here and was left out: set CLAUDEOPS_ARCHIVE_DIR first."
    if path.exists() and path.read_bytes() == content:
        return ""
    said = ""
    if name == ENV and path.exists():
        path = path.with_name(path.name + FROM_BACKUP)
        said = f"Your settings stay as they are; those of the backup are in {path}."
    elif path.exists():
        keep_beside(path)
    _write(path, content)
    return said


def keep_beside(path: Path) -> Path:
    """Under a name that says since when it is not in use; nothing is ever lost by a restore."""
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
        for entry in sorted(path.iterdir()):
            yield from _below(f"{name}/{entry.name}", entry)
