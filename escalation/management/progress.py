"""What takes longer than two seconds says so, on a terminal; nothing in a pipe."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO, cast

from django.core.management.base import OutputWrapper

PATIENCE_SECONDS = 2.0
STEP_SECONDS = 0.5
ERASED = "\r\x1b[K"


@dataclass
class Waiting:
    """One line that is written over again and again, and gone at the end."""

    out: OutputWrapper
    words: str
    done: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_shown: bool = False
    _since: float = field(default_factory=time.monotonic)

    def tell(self, words: str) -> None:
        self.words = words

    def make_room(self) -> None:
        """Before anything else is written; waiting counts from anew."""
        with self._lock:
            self._since = time.monotonic()
            self._erase()

    def show_until_done(self) -> None:
        while not self.done.wait(STEP_SECONDS):
            seconds = time.monotonic() - self._since
            if seconds >= PATIENCE_SECONDS:
                with self._lock:
                    self._write(f"{ERASED}{self.words} … {seconds:.0f} s")
                    self._is_shown = True
        with self._lock:
            self._erase()

    def _erase(self) -> None:
        if self._is_shown:
            self._write(ERASED)
            self._is_shown = False

    def _write(self, text: str) -> None:
        """Past what makes foreign text plain: these words and the erasing are our own."""
        stream = cast(TextIO, self.out._out)
        stream.write(text)
        stream.flush()


@contextmanager
def waiting(out: OutputWrapper, words: str) -> Iterator[Waiting]:
    shown = Waiting(out, words)
    if not out.isatty():
        yield shown
        return
    thread = threading.Thread(target=shown.show_until_done, daemon=True)
    thread.start()
    try:
        yield shown
    finally:
        shown.done.set()
        thread.join()
