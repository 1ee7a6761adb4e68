"""WhiteNoise answers for static files before Django is asked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.staticfiles import finders

from claudeops.middleware import with_static_files

CSS = "/static/web/claudeops.css"


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


async def django(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 418, "headers": []})
    await send({"type": "http.response.body", "body": b"Django"})


async def no_request() -> dict[str, Any]:
    return {"type": "http.request"}


async def no_answer(message: Any) -> None:
    raise AssertionError(message)


def asked(application: Any, path: str, method: str = "GET", **headers: str) -> Answer:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "path": path, "method": method, "headers": raw}
    async_to_sync(application)(scope, no_request, send)
    start, body = sent
    given = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], given, body["body"])


@pytest.fixture
def ask():
    """Ask the application for a path, and give back what it sends."""
    return partial(asked, with_static_files(django))


@pytest.fixture
def own_css(settings, tmp_path) -> Path:
    """A file of the operator's own that goes before one of ours."""
    settings.STATICFILES_DIRS = [tmp_path]
    path = tmp_path / "web" / "claudeops.css"
    path.parent.mkdir()
    path.write_text("first {}")
    return path


@pytest.mark.parametrize(
    "name",
    [
        "web/claudeops.css",
        "web/claudeops.js",
        "django_htmx/htmx-2.min.js",
        "admin/css/base.css",
    ],
)
def test_a_file_of_any_application_is_served_as_it_is(ask, name):
    answer = ask(f"/static/{name}")

    found = finders.find(name)
    assert found is not None
    assert (answer.status, answer.body) == (200, Path(found).read_bytes())
    assert answer.headers["content-length"] == str(len(answer.body))


@pytest.mark.parametrize(
    "path", ["/", "/static/", "/static/none.css", "/static/../manage.py", "/static/web"]
)
def test_other_requests_are_passed_to_django(ask, path):
    assert ask(path).body == b"Django"


def test_other_scopes_are_passed_to_django():
    seen = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    async_to_sync(with_static_files(application))({"type": "lifespan"}, no_request, no_answer)

    assert seen == ["lifespan"]


def test_a_file_is_cached_for_a_minute(ask):
    assert ask(CSS).headers["cache-control"] == "max-age=60, public"


def test_an_unchanged_file_is_not_sent_again(ask):
    tag = ask(CSS).headers["etag"]

    again = ask(CSS, if_none_match=tag)

    assert (again.status, again.body) == (304, b"")


def test_a_range_request_gets_its_range(ask):
    whole = ask(CSS).body

    part = ask(CSS, range="bytes=10-19")

    assert (part.status, part.body) == (206, whole[10:20])


def test_a_head_request_gets_only_the_headers(ask):
    answer = ask(CSS, "HEAD")

    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers["content-length"]) > 0


def test_write_methods_are_refused(ask):
    assert ask(CSS, "POST").status == 405


def test_no_browser_guesses_the_type_and_no_other_site_may_read(ask):
    headers = ask(CSS).headers

    assert headers["content-type"].startswith("text/css")
    assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize("debug", [True, False])
def test_the_first_directory_with_a_file_takes_precedence(own_css, settings, debug):
    settings.DEBUG = debug

    assert asked(with_static_files(django), CSS).body == b"first {}"


def test_with_debug_a_changed_file_is_served_at_once(own_css, settings):
    settings.DEBUG = True
    application = with_static_files(django)
    asked(application, CSS)

    own_css.write_text("second, longer {}")

    assert asked(application, CSS).body == b"second, longer {}"
