"""Wakes the thread that reads a run: what others ask it need not wait for its next tick."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator


class Bell:
    """Rung from any thread; nobody hears it while it does not hang."""

    def __init__(self) -> None:
        self._descriptor = -1
        # A number that was closed may be somebody else's file a moment later.
        self._hanging = threading.Lock()

    @contextlib.contextmanager
    def hung(self) -> Iterator[None]:
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            yield
        finally:
            with self._hanging:
                descriptor, self._descriptor = self._descriptor, -1
                os.close(descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def ring(self) -> None:
        with self._hanging:
            if self._descriptor >= 0:
                os.eventfd_write(self._descriptor, 1)

    def silence(self) -> None:
        """Once it was heard, however often it was rung."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._descriptor)
