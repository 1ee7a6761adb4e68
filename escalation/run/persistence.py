"""Writing what must not be lost to a database that may be away: locked, or on a full disk."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from django.db import OperationalError

PATIENCE_SECONDS = 300.0
LOOK_SECONDS = 1.0

Result = TypeVar("Result")


def persistently(action: Callable[[], Result]) -> Result:
    """Try again until the database takes it; only after minutes the trouble is passed on."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return action()
        except OperationalError:
            if time.monotonic() > give_up:
                raise
            time.sleep(LOOK_SECONDS)
