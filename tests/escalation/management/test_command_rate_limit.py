"""Tests of `claudeops rate_limit`."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.utils import timezone

from sessions_app.models import RateLimit
from tests.factories import SessionFactory, WatchFactory

pytestmark = pytest.mark.django_db


def command(*arguments: str) -> str:
    said = StringIO()
    call_command(*arguments, stdout=said)
    return said.getvalue().strip()


@pytest.fixture
def reached() -> RateLimit:
    until = timezone.now() + timedelta(hours=1)
    windows = {"five_hour": {"share": 0.97, "resets_at": until.timestamp()}}
    return RateLimit.objects.create(
        pk=RateLimit.THE_ONE, until=until, kind="five_hour", words="Stop.", windows=windows
    )


def test_reports_that_no_session_waits():
    assert command("rate_limit") == "No session waits for the rate limit."


def test_reports_until_when_sessions_wait_and_how_much_is_used(reached):
    said = command("rate_limit")

    assert said.startswith("The rate limit is reached (five-hour window); sessions wait until ")
    assert "The API said: Stop." in said
    assert "97% of the five-hour window is used" in said


def test_lifting_wakes_waiting_sessions(reached):
    SessionFactory(status="queued", waiting_since=timezone.now())

    said = command("rate_limit", "--lift")

    assert said.endswith(": 1.")
    assert not RateLimit.current().is_holding


def test_a_waiting_session_shows_the_rate_limit(reached):
    session = SessionFactory(status="queued")

    assert "the rate limit is reached" in command("session", "show", str(session.pk))


def test_a_watch_shows_the_rate_limit(reached):
    WatchFactory(name="shop")

    assert "the rate limit is reached" in command("watch", "show", "shop")


def test_prints_the_state_as_json(reached):
    said = json.loads(command("rate_limit", "--json"))

    assert (said["holding"], said["words"]) == (True, "Stop.")
    assert said["windows"]["five_hour"]["share"] == 0.97
