"""Tests of the layers around Django: security headers and body limit."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.files.uploadedfile import SimpleUploadedFile

from claudeops.asgi import application, ingress
from claudeops.middleware import (
    security_headers,
    with_answer_headers,
    with_body_limit,
    with_client_address,
)
from escalation.alerts import sources
from escalation.alerts.deliveries import refusals
from escalation.worker.web_server import configuration
from sessions_app.models import LoginFailure, RefusedDeliveries, Source

pytestmark = pytest.mark.django_db(transaction=True)
ROOT = Path(__file__).resolve().parents[2]
FORM = (b"content-type", b"application/x-www-form-urlencoded")


def asked(app: Any, path: str, *headers: tuple[bytes, bytes], chunks: tuple[bytes, ...] = ()):
    """Status, headers and how many of the chunks were read."""
    sent: list[Any] = []
    waiting = list(chunks or (b"",))

    async def receive() -> dict[str, Any]:
        if not waiting:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": waiting.pop(0), "more_body": bool(waiting)}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "client": ("127.0.0.1", 40000),
        **{"type": "http", "path": path, "raw_path": path.encode(), "query_string": b""},
        **{"method": "POST" if chunks else "GET", "headers": [(b"host", b"localhost"), *headers]},
        **{"http_version": "1.1", "scheme": "http", "server": ("localhost", 80)},
    }
    async_to_sync(app)(scope, receive, send)
    given = {name.lower(): value for name, value in sent[0]["headers"]}
    return sent[0]["status"], given, len(chunks) - len(waiting)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/healthz", 200),
        ("/", 302),
        ("/nowhere", 404),
        ("/static/web/claudeops.css", 200),
        ("/static/../manage.py", 404),
        ("/admin/", 302),
    ],
)
def test_every_answer_has_the_security_headers(path, status, settings):
    settings.CLAUDEOPS_CLAUDE_BIN = "/nonexistent/claude"

    found, headers, _read = asked(application, path)

    assert found == status
    assert [name for name in security_headers() if name not in headers] == []


def test_headers_of_a_response_are_kept():
    async def strict(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"X-Frame-Options", b"SAMEORIGIN")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    _status, headers, _read = asked(with_answer_headers(strict), "/")

    assert headers[b"x-frame-options"] == b"SAMEORIGIN"


def address_of_a_failed_login(app: Any, *headers: tuple[bytes, bytes]) -> str:
    """Return the address under which a login with a forwarded address is counted."""
    token = "a" * 32
    form = f"csrfmiddlewaretoken={token}&username=ada&password=wrong".encode()
    cookie = (b"cookie", f"{settings.CSRF_COOKIE_NAME}={token}".encode())
    forwarded = (b"x-forwarded-for", b"10.9.9.9")
    length = (b"content-length", str(len(form)).encode())
    asked(app, "/login/", FORM, length, cookie, forwarded, *headers, chunks=(form,))
    return LoginFailure.objects.get().address


def test_forwarded_address_is_not_believed_without_a_proxy():
    """uvicorn believes it from loopback, so each attempt could have another address."""
    config = configuration("127.0.0.1", 0)
    config.load()

    assert address_of_a_failed_login(config.loaded_app) == "127.0.0.1"


def test_forwarded_address_is_believed_behind_the_proxy_of_the_settings(settings):
    settings.CLAUDEOPS_HTTPS = True
    app = with_client_address(get_asgi_application())

    assert address_of_a_failed_login(app) == "10.9.9.9"


def test_forwarded_address_of_another_host_is_not_believed(settings):
    settings.CLAUDEOPS_HTTPS = True

    async def from_elsewhere(scope: Any, receive: Any, send: Any) -> None:
        app = with_client_address(get_asgi_application())
        await app({**scope, "client": ("10.0.0.7", 40000)}, receive, send)

    assert address_of_a_failed_login(from_elsewhere) == "10.0.0.7"


def test_a_body_with_a_too_large_content_length_is_not_read():
    length = str(settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1).encode()

    status, headers, read = asked(
        application, "/login/", FORM, (b"content-length", length), chunks=(b"x",) * 3
    )

    assert (status, read) == (413, 0)
    assert b"content-security-policy" in headers


def test_an_endless_body_is_refused():
    chunk = b"x" * (settings.DATA_UPLOAD_MAX_MEMORY_SIZE // 4)

    status, _headers, read = asked(application, "/login/", FORM, chunks=(chunk,) * 100)

    assert (status, read) == (413, 5)


@pytest.fixture
def nothing_refused_before() -> None:
    """The counter is of the process, and other tests leave in it what was not yet stored."""
    refusals._counts.clear()


def delivered(*headers: tuple[bytes, bytes], chunks: tuple[bytes, ...]) -> tuple[int, int]:
    token = sources.add(Source(name="mine", kind="generic"), with_secret=False).token
    status, _headers, read = asked(ingress, f"/in/{token}", *headers, chunks=chunks)
    refusals.flush()
    return status, read


@pytest.mark.usefixtures("nothing_refused_before")
def test_a_delivery_with_a_too_large_content_length_is_counted_and_not_read():
    length = str(settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1).encode()

    assert delivered((b"content-length", length), chunks=(b"x",) * 3) == (413, 0)
    assert RefusedDeliveries.objects.get().reason == RefusedDeliveries.Reason.TOO_LARGE


@pytest.mark.usefixtures("nothing_refused_before")
def test_an_endless_delivery_is_counted_and_refused():
    chunk = b"x" * (settings.DATA_UPLOAD_MAX_MEMORY_SIZE // 4)

    assert delivered(chunks=(chunk,) * 100) == (413, 5)
    assert RefusedDeliveries.objects.get().reason == RefusedDeliveries.Reason.TOO_LARGE


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        *((path, b"text/plain; charset=utf-8") for path in ("/", "/login/", "/admin/", "/healthz")),
        ("/static/web/claudeops.css", b"text/plain; charset=utf-8"),
        ("/in/unknown", b"application/json"),
    ],
)
def test_the_listener_of_alerts_serves_nothing_else(path, kind):
    status, headers, _read = asked(ingress, path, chunks=(b"{}",))

    assert (status, headers[b"content-type"]) == (404, kind)


@pytest.mark.parametrize("length", [b"abc", b"-1", b"9" * 100])
def test_an_invalid_content_length_is_refused(length):
    async def reached(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError

    status, _headers, _read = asked(with_body_limit(reached), "/", (b"content-length", length))

    assert status == 413


def test_an_uploaded_file_is_refused(client):
    response = client.post("/login/", {"username": SimpleUploadedFile("a.txt", b"x")})

    assert response.status_code == 400


SWITCHED = (
    *("SESSION_COOKIE_SECURE", "CSRF_COOKIE_SECURE", "SECURE_SSL_REDIRECT"),
    *("SECURE_HSTS_SECONDS", "SECURE_PROXY_SSL_HEADER"),
)


def run(*words: str, https: str, state: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CLAUDEOPS_HTTPS": https, "CLAUDEOPS_STATE_DIR": str(state)}
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("value", "expected"), [("yes", True), ("no", False)])
def test_https_sets_secure_cookies_redirect_and_hsts(tmp_path, value, expected):
    code = (
        "import json; from claudeops import settings; "
        f"print(json.dumps([bool(getattr(settings, name)) for name in {SWITCHED}]))"
    )

    said = run("-c", code, https=value, state=tmp_path)

    assert json.loads(said.stdout) == [expected] * len(SWITCHED)


@pytest.mark.parametrize(("value", "is_clean"), [("yes", True), ("no", False)])
def test_with_https_the_deployment_check_of_django_passes(tmp_path, value, is_clean):
    """Our own checks may still have something to say about this machine."""
    done = run("manage.py", "check", "--deploy", https=value, state=tmp_path)

    assert done.returncode == 0, done.stderr
    assert ("(security." not in done.stderr) is is_clean
