"""Tells at once when a client hangs up, while its thread waits for somebody else.

A run that is stopped leaves an answer half-way: the model would go on talking, for money, until its
next word could not be delivered. One thread watches for all requests.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

# Not told of data: a client may already send its next request.
_GONE = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR


class HangUpWatch:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[int, Callable[[], None]] = {}
        self._epoll = select.epoll()
        self._end = os.eventfd(0, os.EFD_CLOEXEC)
        self._epoll.register(self._end, select.EPOLLIN)
        self._thread = threading.Thread(target=self._watch, name="hang-ups", daemon=True)
        self._thread.start()

    @contextmanager
    def calling(self, on_hang_up: Callable[[], None], client: socket.socket) -> Iterator[None]:
        """Inside, `on_hang_up` is called (by the watch's thread) when the client goes away."""
        descriptor = client.fileno()
        with self._lock:
            self._calls[descriptor] = on_hang_up
            self._epoll.register(descriptor, _GONE | select.EPOLLONESHOT)
        try:
            yield
        finally:
            with self._lock, suppress(OSError, ValueError):
                self._calls.pop(descriptor, None)
                self._epoll.unregister(descriptor)

    def close(self) -> None:
        os.eventfd_write(self._end, 1)
        self._thread.join()
        with self._lock:
            self._epoll.close()
            os.close(self._end)

    def _watch(self) -> None:
        while True:
            for descriptor, _event in self._epoll.poll():
                if descriptor == self._end:
                    return
                with self._lock:
                    if call := self._calls.pop(descriptor, None):
                        call()
