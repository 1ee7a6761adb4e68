"""`claudeops limit`: whether tiers wait for the account, and not waiting any more."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.utils import timezone

from sessions_app.models import AccountClock
from tests.factories import SessionFactory, WatchFactory

pytestmark = pytest.mark.django_db


def command(*arguments: str) -> str:
    said = StringIO()
    call_command(*arguments, stdout=said)
    return said.getvalue().strip()


@pytest.fixture
def reached() -> AccountClock:
    until = timezone.now() + timedelta(hours=1)
    windows = {"five_hour": {"share": 0.97, "resets_at": until.timestamp()}}
    return AccountClock.objects.create(
        pk=AccountClock.THE_ONE, until=until, kind="five_hour", words="Stop.", windows=windows
    )


def test_an_account_with_room_holds_nobody():
    assert command("limit") == "No tier waits for the account's limit."


def test_it_tells_until_when_tiers_wait_and_how_much_is_used(reached):
    said = command("limit")

    assert said.startswith("The account's limit is reached (five-hour window); it waits until ")
    assert "The API said: Stop." in said
    assert "97% of the account's five-hour window is used" in said


def test_lifting_it_calls_those_who_wait(reached):
    SessionFactory(status="queued", waiting_since=timezone.now())

    said = command("limit", "--lift")

    assert said.endswith("Sessions that were called: 1.")
    assert not AccountClock.current().is_holding


def test_a_waiting_session_says_why(reached):
    session = SessionFactory(status="queued")

    assert "the account's limit is reached" in command("session", "show", str(session.pk))


def test_a_watch_says_why_its_rounds_wait(reached):
    WatchFactory(name="shop")

    assert "the account's limit is reached" in command("watch", "show", "shop")


def test_how_things_stand_as_json(reached):
    said = json.loads(command("limit", "--json"))

    assert (said["holding"], said["words"]) == (True, "Stop.")
    assert said["windows"]["five_hour"]["share"] == 0.97
