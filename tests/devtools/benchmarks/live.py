"""Measures many viewers of one run: a real web server, one login and one stream per viewer."""

from __future__ import annotations

import asyncio
import importlib
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.urls import reverse

from escalation.worker.parent import Child, start_web_server, stop_children, wait_for_web
from sessions_app.models import Cycle, Session, SessionEvent
from sessions_app.models.session import EventSource, StreamKind
from tests.devtools.benchmarks.idle import HOST, free_port
from tests.devtools.benchmarks.usage import busy_seconds, with_descendants

LINES_A_SECOND = 2
CONNECT_SECONDS = 60.0
SETTLE_SECONDS = 2.0
LAST_LINE_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Live:
    viewers: int
    lines: int
    missed: int
    doubled: int
    cpu_percent: float
    threads: int
    delays_ms: list[float]

    @property
    def p50_ms(self) -> float:
        return statistics.median(self.delays_ms)

    @property
    def p95_ms(self) -> float:
        return statistics.quantiles(self.delays_ms, n=20)[-1]


@dataclass(slots=True)
class Viewer:
    """A browser with the page open; records lines and times."""

    cookie: str
    seen: list[tuple[int, float]] = field(default_factory=list)
    is_there: asyncio.Event = field(default_factory=asyncio.Event)

    async def watch(self, port: int, path: str) -> None:
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nCookie: {self.cookie}\r\n\r\n".encode()
        )
        try:
            while line := await reader.readline():
                if line.startswith(b"retry:"):
                    self.is_there.set()
                elif line.startswith(b"id: "):
                    self.seen.append((int(line[4:]), time.monotonic()))
        finally:
            writer.close()


def measure(viewers: int, seconds: float) -> Live:
    session = _running_session()
    cookies = [_logged_in() for _ in range(viewers)]
    port = free_port()
    with _web_server(port) as server:
        path = reverse("web:session_live", args=[session.pk])
        return asyncio.run(_watched(server, port, path, session, cookies, seconds))


async def _watched(
    server: Child, port: int, path: str, session: Session, cookies: list[str], seconds: float
) -> Live:
    viewers = [Viewer(cookie) for cookie in cookies]
    watching = [asyncio.ensure_future(viewer.watch(port, path)) for viewer in viewers]
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await asyncio.gather(*(viewer.is_there.wait() for viewer in viewers))
        await asyncio.sleep(SETTLE_SECONDS)
        processes = with_descendants([server.process.pid])
        before, began = busy_seconds(processes), time.monotonic()
        written = await _write_lines(session, seconds)
        await asyncio.sleep(LAST_LINE_SECONDS)
        busy, took = busy_seconds(processes) - before, time.monotonic() - began
        threads = sum(len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in processes)
    finally:
        for one in watching:
            one.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
    return _figures(viewers, written, cpu_percent=busy / took * 100, threads=threads)


async def _write_lines(session: Session, seconds: float) -> dict[int, float]:
    """Write lines at varying intervals; return their times by number."""
    written: dict[int, float] = {}
    for number in range(1, int(seconds * LINES_A_SECOND) + 1):
        await sync_to_async(_write_line)(session, number)
        written[number] = time.monotonic()
        await asyncio.sleep(1 / LINES_A_SECOND + 0.013 * (number % 7 - 3))
    return written


def _write_line(session: Session, number: int) -> None:
    text = f"Line {number}: the proxy answers, the database answers."
    payload = {"type": "assistant", "message": {"content": [{"type": "text", "text": text}]}}
    event = SessionEvent(
        session=session, source=EventSource.STREAM, kind=StreamKind.ASSISTANT, payload=payload
    )
    session.event_log.append([event])


def _figures(
    viewers: list[Viewer], written: dict[int, float], *, cpu_percent: float, threads: int
) -> Live:
    delays = [
        max(0.0, arrived - written[number]) * 1000
        for viewer in viewers
        for number, arrived in viewer.seen
    ]
    distinct = [{number for number, _arrived in viewer.seen} for viewer in viewers]
    return Live(
        viewers=len(viewers),
        lines=len(written),
        missed=sum(len(written.keys() - seen) for seen in distinct),
        doubled=sum(
            len(viewer.seen) - len(seen) for viewer, seen in zip(viewers, distinct, strict=True)
        ),
        cpu_percent=cpu_percent,
        threads=threads,
        delays_ms=delays,
    )


def _running_session() -> Session:
    cycle = Cycle.objects.create(
        drill="bench", trigger=Cycle.Trigger.MANUAL, workdir="/", state=Cycle.State.RUNNING
    )
    return Session.objects.create(cycle=cycle, tier=1, model="haiku", status=Session.Status.RUNNING)


def _logged_in() -> str:
    """Log in and return the cookie."""
    user = User.objects.filter(username="bench").first() or User.objects.create_superuser("bench")
    store = importlib.import_module(settings.SESSION_ENGINE).SessionStore()
    store[SESSION_KEY] = str(user.pk)
    store[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    store[HASH_SESSION_KEY] = user.get_session_auth_hash()
    store.create()
    return f"{settings.SESSION_COOKIE_NAME}={store.session_key}"


@contextmanager
def _web_server(port: int) -> Iterator[Child]:
    server = start_web_server(HOST, port)
    try:
        if not wait_for_web([server], HOST, port):
            raise TimeoutError("the web server did not start: its messages are above")
        yield server
    finally:
        stop_children([server])
