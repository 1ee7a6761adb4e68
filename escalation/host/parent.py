"""The parent of web server and worker: `python -m escalation.host.parent HOST PORT SENTENCE…`.

`manage.py up` turns into it once everything is set up: what only waits need not hold Django.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

from escalation.host.children import (
    PROJECT,
    start_web_server,
    start_worker,
    stop_children,
    wait_for_web,
    watch_over,
)


def become_parent(host: str, port: int, announcement: list[str]) -> NoReturn:
    """Replace this process. The announcement is made once the web server answers."""
    os.chdir(PROJECT)
    command = [sys.executable, "-m", "escalation.host.parent", host, str(port), *announcement]
    sys.stdout.flush()
    os.execv(sys.executable, command)  # noqa: S606 (our own interpreter)


def main(host: str, port: int, announcement: list[str]) -> None:
    stop_asked = _listen_for_stop()
    children = [start_web_server(host, port), start_worker()]
    try:
        if wait_for_web(children, host, port):
            _say(*announcement)
        trouble = watch_over(children, lambda: bool(stop_asked))
    finally:
        _say("Stopping the web server and the worker …")
        stop_children(children)
    if trouble:
        sys.exit(f"{trouble} Its messages are above.")
    _say("Stopped. `make up` continues where this was.")


def _say(*sentences: str) -> None:
    """At once, also into a pipe: the person waits for the address."""
    print(*sentences, sep="\n", flush=True)


def _listen_for_stop() -> list[int]:
    received: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        received.append(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, remember)
    return received


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
