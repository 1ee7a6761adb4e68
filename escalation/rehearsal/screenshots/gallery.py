"""One session of taking pictures: a worker's beat, a login, a web server, the camera."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.test import Client

from escalation.rehearsal.screenshots.camera import Picture, take
from escalation.rehearsal.screenshots.subjects import pictures, play
from sessions_app.access.roles import Role
from sessions_app.models import WorkerBeat

STARTS_WITHIN_SECONDS = 30.0


class NoServer(Exception):
    """The web server of the scratch installation did not answer."""


def make_pictures(into: Path, say: Callable[[str], None]) -> tuple[Picture, ...]:
    """In a scratch installation, which the caller has made."""
    call_command("migrate", verbosity=0, interactive=False)
    shown = pictures(play(say))
    WorkerBeat.objects.create(host=socket.gethostname(), pid=os.getpid())
    for picture in shown:
        (into / picture.file).parent.mkdir(parents=True, exist_ok=True)
    with _website() as origin:
        take(shown, origin=origin, cookie=_cookie(), into=into)
    return shown


def _cookie() -> dict[str, str]:
    """Of somebody who may see all that is on the pictures."""
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
    command = [sys.executable, "-m", "escalation.host.web_server", "127.0.0.1", str(port)]
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
