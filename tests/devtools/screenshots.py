"""Takes screenshots of the pages of drills in a scratch installation."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from importlib import import_module
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from escalation.drills.drill import start_drill, verify_drill
from escalation.queue import leave_to_caller
from escalation.run.runner import run_to_end
from sessions_app.access.roles import Role
from sessions_app.models import Cycle, Incident, WorkerHeartbeat

# Chromium from Debian, driven by Playwright, which is a development dependency.

CHROMIUM = Path("/usr/bin/chromium")
NO_PLAYWRIGHT = (
    "Playwright is not installed. It is a dependency of development: `make dev-install` brings it."
)
NO_CHROMIUM = f"There is no {CHROMIUM}: `make browser` installs Debian's chromium."
QUIET = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
WIDTH, HEIGHT = 1180, 1000


class NoCamera(Exception):
    """No screenshot can be taken; the message says what to do."""


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


# The drills and their pages.

PLAYED = ("all-healthy", "fixed-at-tier-2", "three-tiers")


def play(say: Callable[[str], None]) -> list[Cycle]:
    """Play drills with the real CLI and sandbox; only the model is scripted."""
    return [_played(name, say) for name in PLAYED]


def pictures(cycles: list[Cycle]) -> tuple[Picture, ...]:
    incident = Incident.objects.filter(cycles=cycles[-1]).first()
    found = [
        Picture(file="screenshot.png", path="/"),
        Picture(file="docs/cycle.png", path=cycles[-1].get_absolute_url()),
        Picture(file="docs/costs.png", path=reverse("web:costs") + "?drills=yes&period=7"),
        Picture(file="docs/now-dark.png", path="/", colours="dark"),
    ]
    if incident:
        found.append(Picture(file="docs/incident.png", path=incident.get_absolute_url()))
    return tuple(found)


def _played(name: str, say: Callable[[str], None]) -> Cycle:
    say(f"Playing {name} …")
    with leave_to_caller():
        cycle = start_drill(name)
        run_to_end(cycle, lambda line: None)
        if verification := verify_drill(cycle):
            run_to_end(verification, lambda line: None)
    return cycle


STARTS_WITHIN_SECONDS = 30.0


class NoServer(Exception):
    """The web server of the scratch installation did not answer."""


def make_pictures(into: Path, say: Callable[[str], None]) -> tuple[Picture, ...]:
    """Take all screenshots in a scratch installation of the caller."""
    call_command("migrate", verbosity=0, interactive=False)
    shown = pictures(play(say))
    WorkerHeartbeat.objects.create(host=socket.gethostname(), pid=os.getpid())
    for picture in shown:
        (into / picture.file).parent.mkdir(parents=True, exist_ok=True)
    with _website() as origin:
        take(shown, origin=origin, cookie=_cookie(), into=into)
    return shown


def _cookie() -> dict[str, str]:
    """Return the login cookie of a user who may see everything."""
    user = User.objects.create(username="operator")
    user.groups.add(Group.objects.get(name=Role.ADMIN))
    client = Client()
    client.force_login(user)
    name = settings.SESSION_COOKIE_NAME
    return {"name": name, "value": client.cookies[name].value}


@contextmanager
def _website() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = [sys.executable, "-m", "escalation.worker.web_server", "127.0.0.1", str(port)]
    server = subprocess.Popen(command, cwd=settings.BASE_DIR)
    try:
        _wait_for(f"http://127.0.0.1:{port}/healthz")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def _wait_for(address: str) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(address, timeout=2):  # noqa: S310 (our own server)
                return
        except (OSError, HTTPException):
            time.sleep(0.1)
    raise NoServer(f"{address} did not answer within {STARTS_WITHIN_SECONDS:.0f} s.")
