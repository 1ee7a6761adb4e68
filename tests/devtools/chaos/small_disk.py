"""A small disk for the state directory of the scratch installation, which can be filled."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

LARGEST_BITE = 256 * 1024


def keep_full(directory: Path, seconds: float) -> None:
    """Fill the disk for some seconds."""
    filler = directory / "filler"
    handle = os.open(filler, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    give_up = time.monotonic() + seconds
    try:
        while time.monotonic() < give_up:
            _take_the_rest(handle)
            time.sleep(0.02)
    finally:
        filler.unlink()
        os.close(handle)


def _take_the_rest(handle: int) -> None:
    bite = LARGEST_BITE
    while bite:
        try:
            os.write(handle, b"\0" * bite)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            bite //= 2
