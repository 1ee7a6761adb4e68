"""Reasons to stop a run while it runs: a signal to its process, or a request in the record."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from django.db import OperationalError

from escalation.agent import StopAsked
from sessions_app.models import Session

LOOK_SECONDS = 0.5

AskedToStop = Callable[[], StopAsked | None]
"""Asked about ten times a second; an answer stops the run."""


def nobody_asks() -> StopAsked | None:
    return None


class StopRequest:
    """Looks now and then whether somebody asked this run to stop."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._next_look = time.monotonic() + LOOK_SECONDS

    def asked(self) -> StopAsked | None:
        if time.monotonic() < self._next_look:
            return None
        self._next_look = time.monotonic() + LOOK_SECONDS
        try:
            rows = Session.objects.filter(pk=self._session.pk)
            cause, words = rows.values_list("stop_cause", "stop_requested").first() or ("", "")
        except OperationalError:
            return None  # the next look will tell
        return StopAsked(cause, words) if cause else None


@contextmanager
def stop_on_signals(cause: str, words: str) -> Iterator[AskedToStop]:
    """Ctrl-C and SIGTERM end the running tier cleanly, with what it has done so far kept."""
    received: list[str] = []

    def remember(number: int, frame: FrameType | None) -> None:
        received.append(signal.Signals(number).name)

    previous = {
        number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield lambda: StopAsked(cause, f"{received[0]}, {words}") if received else None
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
