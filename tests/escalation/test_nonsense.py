"""Invalid addresses, parameters and forms get a clear answer, never a server error."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from tests.factories import SessionFactory, WatchFactory

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fake_cli")]

VALUES = [
    *("abc", "-1", "0", "9" * 40, "1e999", "%00", "%ff%fe", "%ed%a0%80", "..%2f..%2fetc", "%s%n"),
    *("'%22%3E%3Cscript%3E", "x" * 5000, "", "%E2%80%AE", "1&page=2"),
]
PATHS = [
    *("/static/../x", "/static/..%2f..%2fmanage.py", "/static/%00", "/static//etc/passwd", "/%ff"),
    *("/static/%ff", "/sessions/" + "9" * 40 + "/", "/sessions/-1/", "/cycles/0/", "/admin/../x"),
    *("/sessions/%00/", "/admin/sessions_app/session/%00/change/", "/admin/r/9999999999/x/"),
    *("/admin/sessions_app/session/" + "9" * 40 + "/change/", "/admin/nowhere/", "/" + "x" * 8000),
    *("/admin/django_q/success/%ff/change/", "/sessions/" + "9" * 40 + "/live/"),
]
PARAMETERS = {
    "/": ("version",),
    "/sessions/": ("page", "watch", "status", "tier", "q", "since", "kind"),
    "/costs/": ("period", "drills"),
    "/sandbox/": ("tier", "failed"),
    "/login/": ("next",),
    "/admin/login/": ("next",),
    "/admin/sessions_app/session/": (
        *("p", "o", "q", "e", "all", "_to_field", "_popup", "_facets", "status__exact"),
        *("tier__exact", "started_at__gte", "started_at__year", "started_at__day", "x__regex"),
    ),
    "/admin/sessions_app/cycle/": ("watch__id__exact", "created_at__month", "dry_run__exact"),
    "/admin/auth/user/": ("is_active__exact", "groups__id__exact", "password__startswith"),
}


@pytest.fixture
def browser(operator) -> Client:
    """One in which an error of ours is an answer, as it is for a person."""
    client = Client(raise_request_exception=False)
    client.force_login(operator)
    return client


@pytest.mark.parametrize("path", PATHS)
def test_no_address_causes_a_server_error(browser, path):
    assert browser.get(path).status_code in {302, 400, 404}


@pytest.mark.parametrize("page", PARAMETERS)
def test_no_parameter_causes_a_server_error(browser, page):
    asked = [f"{page}?{name}={value}" for name in PARAMETERS[page] for value in VALUES]

    assert [address[:90] for address in asked if browser.get(address).status_code >= 500] == []


@pytest.mark.parametrize("name", ["session", "session_events", "session_commands", "transcript"])
def test_no_parameter_of_a_session_causes_a_server_error(browser, name):
    page = reverse(f"web:{name}", args=[SessionFactory().pk])
    names = ("before", "after", "page", "agent", "verdict", "version")
    asked = [f"{page}?{parameter}={value}" for parameter in names for value in VALUES]

    assert [address[:90] for address in asked if browser.get(address).status_code >= 500] == []


@pytest.mark.parametrize("value", ["a\x00b", "x" * 20_000, "9" * 40, "-1", "NaN", "\u202e"])
def test_no_form_causes_a_server_error(browser, workdir, value):
    session = SessionFactory(failed=True)
    watch = WatchFactory(workdir=str(workdir))
    forms = [
        reverse("web:pause_all"),
        reverse("web:start_drill"),
        reverse("web:run_watch", args=[watch.pk]),
        reverse("web:follow_up", args=[session.pk]),
        reverse("web:escalate_session", args=[session.pk]),
    ]
    names = ("reason", "scenario", "prompt", "max_turns", "budget", "request", "confirm")
    form = dict.fromkeys(names, value)

    assert [url for url in forms if browser.post(url, form).status_code >= 500] == []
