"""The file itself: compressed lines of JSON, from a heading to an end that vouches for the rest.

    {"claudeops_backup": 1, …}            what it is, of which version, with which migrations
    {"table": …, "columns": […]}          then a line for each row: […]
    {"file": …, "content": …}             base64
    {"end": {"lines": …, "sha256": …}}    of all lines before it

`zcat FILE | head -1` tells anybody what a backup is. Without the last line it is none.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeAlias

FORMAT = 1
MARK = "claudeops_backup"
QUICK = 6


BinaryStream: TypeAlias = IO[bytes] | gzip.GzipFile


class BackupUnusable(Exception):
    """A sentence that says what is wrong with the file."""


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
    """What the file says that it is. Raises where it is no backup, or of a newer kind."""
    heading = next(_lines(path), None)
    found = _parsed(heading[0]) if heading else None
    if not isinstance(found, dict) or MARK not in found:
        raise BackupUnusable(f"{path} is no backup of Claude Ops. Nothing was changed.")
    if not isinstance(found[MARK], int) or found[MARK] > FORMAT:
        raise BackupUnusable(
            f"{path} was made by a newer Claude Ops ({found.get('version')}). "
            "Install that version or a later one first. Nothing was changed."
        )
    return found


def read_through(path: Path) -> Iterator[Any]:
    """Every line after the heading, and at the end the certainty that none is missing."""
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
    """As far as it can be read: where that is, shows whether it is whole."""
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
