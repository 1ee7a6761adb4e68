"""The parent of web server and worker: `python -m escalation.host.parent DESCRIPTOR`.

`claudeops up` turns into it once everything is set up: what only waits need not hold Django. What
it shall do comes through a pipe, because everybody can read the arguments of a process, and the
screen may show a password.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from escalation.host.children import (
    PROJECT,
    Child,
    first_to_end,
    start_web_server,
    start_worker,
    stop_children,
    wait_for_web,
)

COULD_NOT = 2
LAST_LINES = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Orders:
    host: str
    port: int
    screen: list[str]
    """What is shown once the web server answers."""
    log: str = ""
    """A file for what web server and worker say; nothing: on the screen, below."""


def become_parent(orders: Orders) -> NoReturn:
    """Replace this process."""
    reading, writing = os.pipe()
    os.write(writing, json.dumps(asdict(orders)).encode())
    os.close(writing)
    os.set_inheritable(reading, True)
    os.chdir(PROJECT)
    sys.stdout.flush()
    command = [sys.executable, "-m", "escalation.host.parent", str(reading)]
    os.execv(sys.executable, command)  # noqa: S606 (our own interpreter)


def main(orders: Orders) -> None:
    stop_asked = _listen_for_stop()
    log = Path(orders.log) if orders.log else None
    children = [start_web_server(orders.host, orders.port, log)]
    trouble = ""
    try:
        # The worker waits for that: two that start at once keep the person waiting for longer.
        if wait_for_web(children, orders.host, orders.port, lambda: bool(stop_asked)):
            _say(*orders.screen)
        children.append(start_worker(log))
        trouble = _watch_over(children, stop_asked)
    finally:
        _say("Stopping the web server and the worker …")
        stop_children(children)
    if trouble:
        _say(trouble, *_last_lines(log))
        sys.exit(COULD_NOT)
    _say("Stopped. Start it again to continue where this was.")


def _watch_over(children: list[Child], stop_asked: list[int]) -> str:
    """Start again what dies, and nothing else with it; the sentence says why that has ended."""
    while ended := first_to_end(children, lambda: bool(stop_asked)):
        code = ended.process.returncode
        if not ended.start_again():
            return f"The {ended.name} ends as soon as it is started (code {code}). Its last words:"
        clock = time.strftime("%H:%M:%S")
        _say(f"{clock} The {ended.name} died (code {code}) and was started again.")
    return ""


def _last_lines(log: Path | None) -> list[str]:
    if log is None:
        return ["(above)"]
    try:
        return log.read_text(errors="replace").splitlines()[-LAST_LINES:]
    except OSError as error:
        return [str(error)]


def _say(*sentences: str) -> None:
    """At once, also into a pipe: the person waits for the address. Nobody may be left to read."""
    with contextlib.suppress(OSError):
        print(*sentences, sep="\n", flush=True)


def _listen_for_stop() -> list[int]:
    received: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        received.append(number)

    # The last is a terminal that was closed: it must not leave the children behind.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, remember)
    return received


if __name__ == "__main__":
    with os.fdopen(int(sys.argv[1])) as pipe:
        ORDERS = Orders(**json.load(pipe))
    main(ORDERS)
