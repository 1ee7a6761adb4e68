"""The rate limit on the overview, and the action that lifts it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from escalation.web.overview import overview_version
from sessions_app.models import RateLimit
from tests.factories import SessionFactory, UserFactory

pytestmark = pytest.mark.django_db

DASHBOARD = "/"


@pytest.fixture
def reached() -> RateLimit:
    until = timezone.now() + timedelta(hours=3, minutes=12, seconds=30)
    windows = {"five_hour": {"share": 0.97, "resets_at": until.timestamp()}}
    return RateLimit.objects.create(
        pk=RateLimit.THE_ONE, until=until, words="<b>Stop</b>", windows=windows
    )


def test_the_overview_shows_the_time_until_the_limit_resets(operator_client, reached):
    page = operator_client.get(DASHBOARD).content.decode()

    assert "The rate limit is reached." in page
    assert "3\xa0hours, 12\xa0minutes" in page
    assert "97%" in page
    assert "<b>Stop</b>" not in page


def test_without_a_limit_the_overview_shows_nothing(operator_client):
    assert "The rate limit is reached." not in operator_client.get(DASHBOARD).content.decode()


def test_the_version_of_the_overview_changes_with_the_limit(reached):
    with_limit = overview_version()
    RateLimit.objects.all().delete()

    assert overview_version() != with_limit


def test_an_operator_lifts_the_limit(operator_client, operator, reached):
    SessionFactory(status="queued", waiting_since=timezone.now())

    response = operator_client.post(reverse("web:lift_limit"), follow=True)

    assert "Sessions started: 1." in response.content.decode()
    assert RateLimit.current().lifted_by == operator
    assert not RateLimit.current().is_holding


def test_a_viewer_may_not_lift_it(client, reached):
    client.force_login(UserFactory())

    assert "Do not wait" not in client.get(DASHBOARD).content.decode()
    assert client.post(reverse("web:lift_limit")).status_code == 403
    assert RateLimit.current().is_holding
