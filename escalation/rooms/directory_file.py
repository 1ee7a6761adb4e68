"""Tells the CLI in which directory a command ended, by the file that it asked for."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

logger = logging.getLogger(__name__)


def write_directory(file: str, directory: str, temporary: Path) -> None:
    """Only directly in the run's temporary directory, and through no link: the CLI's room can
    write there, and we can write everywhere."""
    parent, name = os.path.split(file)
    if os.path.realpath(parent) != os.path.realpath(temporary) or name in {"", ".", ".."}:
        logger.warning("The CLI asks for a directory file outside its own place: %r", file)
        return
    try:
        place = os.open(temporary, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _write(place, name, os.fsencode(directory) + b"\n")
        finally:
            os.close(place)
    except OSError as error:
        logger.warning("The directory file %r cannot be written: %s", file, error)


def _write(place: int, name: str, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o600, dir_fd=place)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.write(descriptor, data)
    finally:
        os.close(descriptor)
