"""A client of the web pages, by plain HTTP."""

from __future__ import annotations

import http.cookiejar
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import Any

READY_SECONDS = 60.0
LIVE_SECONDS = 20.0
NOT_ASKED = "disk"
"""The disk is small on purpose, and its health check fails."""


@dataclass(slots=True)
class Website:
    address: str
    user: str
    password: str
    _opener: urllib.request.OpenerDirector = field(init=False)

    def __post_init__(self) -> None:
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self._opener = urllib.request.build_opener(cookies)

    def log_in(self) -> None:
        page = self._get("/login/").read().decode()
        (token,) = re.findall(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
        form = {"csrfmiddlewaretoken": token, "username": self.user, "password": self.password}
        data = urllib.parse.urlencode(form).encode()
        self._opener.open(f"{self.address}/login/", data, timeout=LIVE_SECONDS).close()

    def wait_until_ready(self) -> str:
        """Wait; return the last problem, or an empty text."""
        give_up = time.monotonic() + READY_SECONDS
        while (trouble := self._trouble()) and time.monotonic() < give_up:
            time.sleep(0.2)
        return trouble

    def live_trouble(self, session: int) -> str:
        """Return the problem with the live page of a session, or an empty text."""
        try:
            with self._get(f"/sessions/{session}/live/") as stream:
                return _trouble_with(stream)
        except OSError as error:
            return f"the live page of session {session} does not answer: {error}"

    def _trouble(self) -> str:
        try:
            self._get("/readyz").close()
        except urllib.error.HTTPError as error:
            with error:
                return _failed_checks(error.read().decode(errors="replace"))
        except OSError as error:
            return f"/readyz does not answer: {error}"
        return ""

    def _get(self, path: str) -> Any:
        return self._opener.open(self.address + path, timeout=LIVE_SECONDS)


def _failed_checks(answer: str) -> str:
    failed = set(re.findall(r'"(\w+)": \{"ok": false', answer)) - {NOT_ASKED}
    if '"checks"' in answer and not failed:
        return ""
    return f"/readyz says that something is wrong: {', '.join(sorted(failed)) or answer[:200]}"


def _trouble_with(stream: Any) -> str:
    give_up = time.monotonic() + LIVE_SECONDS
    while time.monotonic() < give_up:
        line = stream.readline().decode(errors="replace")
        if line.startswith(("event: entry", "event: done")):
            return ""
        if not line:
            return "the live page ended without a word"
    return "the live page said nothing"
