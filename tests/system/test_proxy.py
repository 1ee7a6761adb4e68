"""Behind the real nginx with the sample of docs/deploy, over TLS: login, headers, live output."""

from __future__ import annotations

import http.cookiejar
import re
import shutil
import socket
import sqlite3
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.system.conftest import PROJECT, Installation, free_port, installed_in, wait_until

SAMPLE = PROJECT / "docs" / "deploy" / "nginx.conf"
FETCHED = Path(sys.prefix) / "nginx" / "usr" / "sbin" / "nginx"
PASSWORD = "correct horse battery"
RUNNING_SESSION = """
from tests.factories import CycleFactory, SessionFactory
session = SessionFactory(status="running", finished_at=None, cycle=CycleFactory(running=True))
print(session.pk)
"""


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any) -> None:
        return None


@dataclass(frozen=True)
class Site:
    installation: Installation
    secure: int
    plain: int
    context: ssl.SSLContext

    def browser(self, *more: urllib.request.BaseHandler) -> urllib.request.OpenerDirector:
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        https = urllib.request.HTTPSHandler(context=self.context)
        return urllib.request.build_opener(https, cookies, *more)

    def address(self, path: str = "/") -> str:
        return f"https://localhost:{self.secure}{path}"


def nginx_program() -> str:
    found = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin")
    program = found or (str(FETCHED) if FETCHED.exists() else "")
    assert program, "nginx is not here: run `make proxy`"
    return program


def certificate(directory: Path) -> tuple[Path, Path]:
    key, cert = directory / "privkey.pem", directory / "fullchain.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(key), "-out", str(cert)),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return key, cert


def configuration(directory: Path, *, web: int, secure: int, plain: int) -> Path:
    """The sample as it is, with our ports, name and certificate."""
    key, cert = certificate(directory)
    sample = SAMPLE.read_text()
    for old, new in {
        "server 127.0.0.1:8000": f"server 127.0.0.1:{web}",
        "listen 80;": f"listen 127.0.0.1:{plain};",
        "listen 443 ssl": f"listen 127.0.0.1:{secure} ssl",
        "ops.example.org;": "localhost;",
        "/etc/ssl/ops.example.org/fullchain.pem": str(cert),
        "/etc/ssl/ops.example.org/privkey.pem": str(key),
    }.items():
        assert old in sample, f"the sample has no {old!r} any more"
        sample = sample.replace(old, new)
    own = "".join(
        f"{kind}_temp_path {directory}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    path = directory / "nginx.conf"
    path.write_text(
        f"daemon off; pid {directory}/nginx.pid; error_log {directory}/error.log;\n"
        f"events {{}}\nhttp {{ access_log off;\n{own}{sample}}}\n"
    )
    return path


@pytest.fixture(scope="module")
def site(first_installation: Installation, tmp_path_factory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("site")
    installation = installed_in(directory)
    shutil.copytree(first_installation.state, installation.state)
    web, secure, plain = (free_port() for _ in range(3))
    installation.environment |= {
        "CLAUDEOPS_PORT": str(web),
        "CLAUDEOPS_HTTPS": "yes",
        "CLAUDEOPS_ALLOWED_HOSTS": "localhost,127.0.0.1",
        "CLAUDEOPS_TRUSTED_ORIGINS": f"https://localhost:{secure}",
        "CLAUDEOPS_ADMIN_PASSWORD": PASSWORD,
    }
    assert installation.manage("upgrade").returncode == 0
    path = configuration(directory, web=web, secure=secure, plain=plain)
    nginx = subprocess.Popen([nginx_program(), "-c", str(path), "-e", str(directory / "start.log")])
    installation.start("web")
    known = ssl.create_default_context(cafile=str(directory / "fullchain.pem"))
    found = Site(installation, secure, plain, known)
    try:
        wait_until(lambda: answers(found), "nginx and the web server answer")
        yield found
    finally:
        nginx.terminate()
        nginx.wait(20)
        installation.stop_everything()


def answers(site: Site) -> bool:
    try:
        return site.browser().open(site.address("/healthz"), timeout=5).status == 200
    except OSError:
        return False


def logged_in(site: Site) -> tuple[urllib.request.OpenerDirector, Any]:
    browser = site.browser()
    page = browser.open(site.address("/login/"), timeout=20).read().decode()
    [token] = set(re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', page))
    form = {"csrfmiddlewaretoken": token, "username": "operator", "password": PASSWORD}
    request = urllib.request.Request(
        site.address("/login/"),
        urllib.parse.urlencode(form).encode(),
        {"Origin": site.address("")},
    )
    return browser, browser.open(request, timeout=20)


def test_login_leads_to_the_overview(site: Site):
    _browser, dashboard = logged_in(site)

    assert dashboard.status == 200
    assert dashboard.url == site.address("/")
    assert "Log out" in dashboard.read().decode()


def test_cookies_are_secure(site: Site):
    browser = site.browser(NoRedirect())
    cookies = browser.open(site.address("/login/"), timeout=20).headers.get_all("Set-Cookie")

    assert cookies
    assert all("Secure" in cookie for cookie in cookies)


def test_responses_have_the_security_headers(site: Site):
    headers = site.browser().open(site.address("/login/"), timeout=20).headers

    assert "max-age=" in headers["Strict-Transport-Security"]
    assert "default-src" in headers["Content-Security-Policy"]
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Server"] == "nginx"


def test_plain_http_redirects_to_https(site: Site):
    with pytest.raises(urllib.error.HTTPError) as answer:
        site.browser(NoRedirect()).open(f"http://localhost:{site.plain}/costs/", timeout=20)

    assert answer.value.code == 301
    assert answer.value.headers["Location"] == "https://localhost/costs/"
    answer.value.close()


def test_forwarded_headers_of_a_client_are_ignored(site: Site):
    """Taken at its word, it would be sent to https again and again."""
    forged = urllib.request.Request(
        site.address("/login/"), headers={"X-Forwarded-Proto": "http", "X-Forwarded-For": "1.2.3.4"}
    )

    assert site.browser(NoRedirect()).open(forged, timeout=20).status == 200


def test_a_large_body_is_refused_by_the_proxy(site: Site):
    asked = b"POST /login/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1500000\r\n\r\n"
    with (
        socket.create_connection(("127.0.0.1", site.secure), timeout=20) as line,
        site.context.wrap_socket(line, server_hostname="localhost") as secure,
    ):
        secure.sendall(asked)

        assert b" 413 " in secure.recv(1000)


def test_live_output_is_not_buffered(site: Site):
    """The stream stays open for minutes: buffered, nothing would come for as long."""
    made = site.installation.manage("shell", "-v0", "-c", RUNNING_SESSION)
    number = int(made.stdout.split()[-1])
    browser, _dashboard = logged_in(site)
    stream = browser.open(site.address(f"/sessions/{number}/live/"), timeout=20)
    assert stream.readline().startswith(b"retry:")

    said_at = time.monotonic()
    say(site.installation, number, "a word in between")
    while b"a word in between" not in (line := stream.readline()):
        assert line, "the stream ended before the word came"
    came_after = time.monotonic() - said_at
    stream.close()

    assert stream.headers["Content-Type"].startswith("text/event-stream")
    assert came_after < 5


def say(installation: Installation, session: int, text: str) -> None:
    record = sqlite3.connect(installation.database, timeout=20)
    with record:
        record.execute(
            "INSERT INTO sessions_app_sessionevent"
            " (session_id, sequence, source, kind, payload, created_at)"
            " VALUES (?, 1, 'supervisor', 'note', ?, datetime('now'))",
            (session, f'{{"text": "{text}", "level": "info"}}'),
        )
    record.close()
