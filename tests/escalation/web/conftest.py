"""A real browser, and the pages served by the real ASGI server.

Live output needs async streaming, so uvicorn runs in a thread on the test database.
"""

from __future__ import annotations

import gc
import socket
import threading
import warnings
from collections.abc import Iterator

import pytest
import uvicorn
from django.conf import settings
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, sync_playwright

from tests.escalation.web.visiting import Visit, wait_until
from tests.factories import UserFactory

CHROMIUM = "/usr/bin/chromium"
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def _allow_database_beside_playwright() -> Iterator[None]:
    """Playwright keeps an event loop in this thread, which Django takes for an async view."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        yield


@pytest.fixture(scope="module")
def browser(_allow_database_beside_playwright) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


class Server:
    """The real ASGI server in a thread. Its port stays its own, so that it can be started again."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.origin = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        config = uvicorn.Config(
            "claudeops.asgi:application",
            lifespan="off",
            ws="none",
            log_level="error",
            timeout_graceful_shutdown=1,
        )
        server = self._server = uvicorn.Server(config)
        sockets = [self._listener.dup()]
        thread = threading.Thread(target=server.run, kwargs={"sockets": sockets}, daemon=True)
        self._thread = thread
        thread.start()
        wait_until(lambda: server.started)

    def stop(self) -> None:
        assert self._server is not None
        assert self._thread is not None
        self._server.should_exit = True
        self._thread.join(timeout=10)
        with warnings.catch_warnings():
            # Requests that were cut off leave their files to whoever collects the garbage.
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()

    def close(self) -> None:
        self.stop()
        self._listener.close()

    def visitor(self, browser: Browser) -> BrowserContext:
        """A browser in which an operator is logged in."""
        client = Client()
        client.force_login(UserFactory(is_staff=True, is_superuser=True))
        context = browser.new_context()
        cookie = client.cookies[settings.SESSION_COOKIE_NAME].value
        name = settings.SESSION_COOKIE_NAME
        context.add_cookies([{"name": name, "value": cookie, "url": self.origin}])
        return context


@pytest.fixture
def server(transactional_db) -> Iterator[Server]:
    server = Server()
    server.start()
    yield server
    server.close()


@pytest.fixture
def origin(server: Server) -> str:
    return server.origin


@pytest.fixture
def context(browser: Browser, server: Server) -> Iterator[BrowserContext]:
    context = server.visitor(browser)
    yield context
    context.close()


@pytest.fixture
def visit(context: BrowserContext, origin: str) -> Iterator[Visit]:
    visit = Visit(context.new_page(), origin)
    yield visit
    assert visit.complaints == []
    assert visit.foreign == []
