"""The web server: `python -m escalation.worker.web_server HOST PORT`.

A watchdog in it reports silent workers, and sends notifications in their place.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

if TYPE_CHECKING:
    from escalation.worker.notifier import Notifier

logger = logging.getLogger(__name__)

LOOK_SECONDS = 60.0


# Models are imported late: they need Django, which the application sets up.


def look_until(stop: threading.Event) -> None:
    from escalation.worker.notifier import Notifier

    notifier = Notifier()
    look(notifier)
    while not stop.wait(LOOK_SECONDS):
        look(notifier)


def look(notifier: Notifier) -> None:
    from django.db import connection

    from escalation.worker.health import worker_was_seen
    from escalation.worker.notifier import tell_of_silent_workers

    try:
        tell_of_silent_workers()
        if not worker_was_seen():
            notifier.look()
    except Exception:
        logger.exception("Could not check the workers; retrying")
    finally:
        connection.close()


TICK_SECONDS = 1.0
INGRESS_STOP_SECONDS = 5.0
FIRST_LOOK_SECONDS = 180.0


class QuietServer(uvicorn.Server):
    """Server that waits for its stop signal. uvicorn itself checks for it ten times a second."""

    async def main_loop(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        # Tick 0 also updates the date header.
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), TICK_SECONDS)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        with contextlib.suppress(AttributeError):  # a signal before the first tick
            self._loop.call_soon_threadsafe(self._stop.set)


def configuration(host: str, port: int, application: str = "application") -> uvicorn.Config:
    # An open live view must not delay the shutdown.
    return uvicorn.Config(
        f"claudeops.asgi:{application}",
        host=host,
        port=port,
        timeout_graceful_shutdown=2,
        # `claudeops.middleware` decides whether a proxy is believed.
        proxy_headers=False,
        # Its messages use our logging, which redacts them.
        log_config=None,
        log_level="warning",
    )


def main(host: str, port: int) -> None:
    server = QuietServer(configuration(host, port))
    stop = threading.Event()
    threading.Thread(target=_run_watchdog, args=(stop,), name="watchdog", daemon=True).start()
    with _ingress(server):
        server.run()
    stop.set()
    if not server.started:
        sys.exit(3)


@contextlib.contextmanager
def _ingress(beside: uvicorn.Server) -> Iterator[None]:
    """Serves alerts at CLAUDEOPS_INGRESS, if set, in a thread and with a loop of its own."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "claudeops.settings")
    listener = ingress_listener()
    if listener is None:
        yield
        return
    server = QuietServer(configuration(listener.host, listener.port, "ingress"))

    def serve() -> None:
        while not (beside.started or beside.should_exit):  # it imports the application
            time.sleep(0.1)
        if not beside.should_exit:
            server.run()

    thread = threading.Thread(target=serve, name="ingress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = beside.should_exit = True
        thread.join(INGRESS_STOP_SECONDS)


def _run_watchdog(stop: threading.Event) -> None:
    """Waits until a worker that starts at the same time has written its first heartbeat."""
    if not stop.wait(FIRST_LOOK_SECONDS):
        look_until(stop)


HIGHEST_PORT = 65535
HOST_ERRORS = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}


@dataclass(frozen=True, slots=True)
class Listener:
    """An address to listen on, with the names of the settings that it comes from."""

    host: str
    port: int
    host_setting: str = "CLAUDEOPS_HOST"
    port_setting: str = "CLAUDEOPS_PORT"


def ingress_listener() -> Listener | None:
    from django.conf import settings

    host, _, port = settings.CLAUDEOPS_INGRESS.rpartition(":")
    if not port:
        return None
    return Listener(host.strip("[]"), int(port), "CLAUDEOPS_INGRESS", "CLAUDEOPS_INGRESS")


def why_not_bound(host: str, port: int) -> str:
    """Returns why the web server cannot listen, naming the setting; empty if all is free."""
    listeners = [Listener(host, port), ingress_listener()]
    return next((why for one in listeners if one and (why := _why_not(one))), "")


def _why_not(wanted: Listener) -> str:
    if wanted.port > HIGHEST_PORT:
        return f"{wanted.port_setting} names port {wanted.port}: the highest is {HIGHEST_PORT}."
    try:
        family, kind, protocol, _name, address = socket.getaddrinfo(
            wanted.host, wanted.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError):
        return (
            f"{wanted.host_setting} is {wanted.host!r}, which is neither an address nor a name of "
            "this host. Set it to 127.0.0.1, or to an address that `ip addr` shows."
        )
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            return _reason(wanted, error)
    return ""


def _reason(wanted: Listener, error: OSError) -> str:
    host, port = wanted.host, wanted.port
    if error.errno in HOST_ERRORS:
        return (
            f"{wanted.host_setting} is {host!r}, which is not an address of this host. "
            "Set it to 127.0.0.1, or to an address that `ip addr` shows."
        )
    if error.errno == errno.EACCES:
        return (
            f"{wanted.port_setting} is {port}, which this user may not listen on. "
            "Set it to 1024 or higher, and put a proxy in front of it."
        )
    if error.errno == errno.EADDRINUSE:
        return (
            f"Port {port} on {host} is used by another program. "
            f"Stop that one, or set {wanted.port_setting} to another number."
        )
    change = f"Change {wanted.host_setting}."
    return f"Nothing can listen on {host} port {port}: {error.strerror}. {change}"


LARGEST_BYTES = 5_000_000


def fresh_log(state: Path) -> Path:
    """Returns the log file of `up`. A large file is first moved to `up.log.1`."""
    log = state / "logs" / "up.log"
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if log.exists() and log.stat().st_size > LARGEST_BYTES:
        log.replace(log.with_name("up.log.1"))
    log.touch(mode=0o600)
    return log


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
