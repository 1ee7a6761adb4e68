"""Debian's chromium takes pictures of pages that a web server of our own shows.

Playwright is a dependency of development alone, so it is looked for when a picture is wanted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

CHROMIUM = Path("/usr/bin/chromium")
NO_PLAYWRIGHT = (
    "Playwright is not installed. It is a dependency of development: `make dev-install` brings it."
)
NO_CHROMIUM = f"There is no {CHROMIUM}: `make browser` installs Debian's chromium."
QUIET = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
WIDTH, HEIGHT = 1180, 1000


class NoCamera(Exception):
    """Nothing here can take a picture; the message says what to do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    file: str
    path: str
    colours: str = "light"


def take(pictures: Iterable[Picture], *, origin: str, cookie: dict[str, str], into: Path) -> None:
    with _playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(QUIET))
        for picture in pictures:
            context = browser.new_context(
                viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=picture.colours
            )
            context.add_cookies([{**cookie, "url": origin}])
            page = context.new_page()
            page.goto(origin + picture.path)
            page.screenshot(path=str(into / picture.file))
            context.close()
        browser.close()


def require_camera() -> None:
    _playwright()
    if not CHROMIUM.exists():
        raise NoCamera(NO_CHROMIUM)


def _playwright() -> Any:
    try:
        return import_module("playwright.sync_api").sync_playwright()
    except ImportError as error:
        raise NoCamera(NO_PLAYWRIGHT) from error
