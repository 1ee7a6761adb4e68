"""Every page shows a banner when there was no worker heartbeat for two minutes."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from sessions_app.models import WorkerHeartbeat
from tests.factories import SessionFactory

pytestmark = pytest.mark.django_db

BANNER = "No worker has been seen for two minutes"


def seen(**ago: float) -> None:
    WorkerHeartbeat.objects.create(host="here", pid=1, seen_at=timezone.now() - timedelta(**ago))


@pytest.fixture(params=["overview", "sessions", "costs", "session"])
def page(request, operator_client, fake_cli):
    """Asks for a page, each in turn."""
    arguments = [SessionFactory().pk] if request.param == "session" else []
    url = reverse(f"web:{request.param}", args=arguments)
    return lambda: operator_client.get(url).content.decode()


def test_without_a_worker_every_page_shows_a_banner(page):
    assert BANNER in page()


def test_a_worker_without_heartbeat_is_reported_on_every_page(page):
    seen(seconds=121)

    assert BANNER in page()


def test_a_worker_with_a_recent_heartbeat_shows_no_banner(page):
    seen(seconds=110)

    assert BANNER not in page()


def test_the_banner_says_what_to_do(operator_client, fake_cli):
    page = operator_client.get(reverse("web:overview")).content.decode()

    assert "claudeops up" in page
    assert "claudeops worker" in page


def test_an_anonymous_visitor_sees_no_banner(client, fake_cli):
    assert BANNER not in client.get(reverse("login")).content.decode()
