"""The web server: `python -m escalation.host.web_server HOST PORT`.

uvicorn as it is wakes ten times a second to see whether it shall stop. This one is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from types import FrameType

import uvicorn

TICK_SECONDS = 1.0
FIRST_LOOK_SECONDS = 180.0


class QuietServer(uvicorn.Server):
    async def main_loop(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        # Zero is the tick that also sets the date of the answers.
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), TICK_SECONDS)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        with contextlib.suppress(AttributeError):  # a signal before the first tick
            self._loop.call_soon_threadsafe(self._stop.set)


def main(host: str, port: int) -> None:
    # An open live view must not keep the server from stopping.
    config = uvicorn.Config(
        "claudeops.asgi:application",
        host=host,
        port=port,
        timeout_graceful_shutdown=2,
        # Its messages go where ours go, and are masked there.
        log_config=None,
        log_level="warning",
    )
    server = QuietServer(config)
    stop = threading.Event()
    threading.Thread(target=_look_out, args=(stop,), name="lookout", daemon=True).start()
    server.run()
    stop.set()
    if not server.started:
        sys.exit(3)


def _look_out(stop: threading.Event) -> None:
    """A worker that starts together with this process gets its time to show itself."""
    if stop.wait(FIRST_LOOK_SECONDS):
        return
    # Only now: it needs Django, which comes with the application.
    from escalation.host.lookout import look_until

    look_until(stop)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
