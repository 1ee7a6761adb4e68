"""Retries and lock timeouts for a database that is locked, unavailable or out of space."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from django.db import OperationalError, connection
from stamina import RetryingCaller
from stamina.instrumentation import RetryDetails, set_on_retry_hooks


@contextmanager
def timeout(seconds: int) -> Iterator[None]:
    """Limit how long statements wait for locks.

    A database that is unavailable cannot be told so, and its next connection has the usual
    timeout; that must not end the session.
    """
    with contextlib.suppress(OperationalError):
        _wait_for_locks(seconds * 1000)
    try:
        yield
    finally:
        with contextlib.suppress(OperationalError):
            _wait_as_usual()


def _wait_for_locks(milliseconds: int) -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(f"PRAGMA busy_timeout = {milliseconds}")
        else:
            # 0 would mean no limit.
            cursor.execute(f"SET lock_timeout = {max(1, milliseconds)}")


def _wait_as_usual() -> None:
    if connection.vendor == "sqlite":
        _wait_for_locks(int(connection.settings_dict["OPTIONS"].get("timeout", 5)) * 1000)
        return
    with connection.cursor() as cursor:
        cursor.execute("RESET lock_timeout")


TIMEOUT_SECONDS = 300.0
LOOK_SECONDS = 1.0

Result = TypeVar("Result")
logger = logging.getLogger(__name__)


def persistently(
    action: Callable[[], Result],
    *,
    within: float | None = None,
) -> Result:
    """Call `action` until it raises no OperationalError; give up after `within` seconds.

    The waits grow from 0.1 s to LOOK_SECONDS, with jitter, so that writers that were refused
    together do not come back together.
    """
    call = RetryingCaller(
        attempts=None,
        timeout=TIMEOUT_SECONDS if within is None else within,
        wait_initial=0.1,
        wait_max=LOOK_SECONDS,
        wait_jitter=0.1,
    )
    return call(OperationalError, action)


def _log_first_retry(details: RetryDetails) -> None:
    """Log the first retry with its error; stamina's own hook logs each one without it."""
    if details.retry_num == 1:
        logger.warning("The database is not available (%s); trying again", details.caused_by)


set_on_retry_hooks([_log_first_retry])
