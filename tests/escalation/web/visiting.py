"""A page in a real browser that records errors and requests."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from playwright.sync_api import Page, Request


@dataclass
class Visit:
    """A page under observation, with all that it must not do."""

    page: Page
    origin: str
    complaints: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._check_address)

    def _check_address(self, request: Request) -> None:
        if urlsplit(request.url).netloc != urlsplit(self.origin).netloc:
            self.foreign.append(request.url)

    def go(self, path: str) -> Page:
        self.page.goto(self.origin + path)
        return self.page


def wait_until(condition: Callable[[], object], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
