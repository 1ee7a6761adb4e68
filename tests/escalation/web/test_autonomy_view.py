"""The page of the autonomy of a watch."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from sessions_app.models.autonomy import AutonomyLevel
from tests.factories import (
    CommandEventFactory,
    CycleFactory,
    SessionFactory,
    WatchFactory,
    user_with,
)

pytestmark = pytest.mark.django_db


def page_of(client, watch) -> str:
    return str(client.get(reverse("web:autonomy", args=[watch.pk])).content.decode())


@pytest.fixture
def watch():
    return WatchFactory(name="shop", max_tier=1, dry_run=True, approval="3", enabled=False)


def test_the_page_shows_the_current_level_and_all_others(operator_client, watch):
    page = page_of(operator_client, watch)

    assert "Now: look" in page
    assert page.count("in force") == 1
    assert page.count("Raise to this level") == 4
    assert all(step.meaning.replace("'", "&#x27;") in page for step in AutonomyLevel)
    assert "It does not run by itself." in page


def test_it_shows_what_more_autonomy_would_have_done(operator_client, watch):
    session = SessionFactory(cycle=CycleFactory(watch=watch))
    CommandEventFactory(
        session=session, command="docker restart web", verdict="deny", more={"allowed_from": 2}
    )

    page = page_of(operator_client, watch)

    assert "would have asked a person about 1 command" in page
    assert page.count("<code>docker restart web</code>") == 4


def test_settings_that_match_no_level_are_shown_as_set_by_hand(operator_client, watch):
    watch.max_tier = 3
    watch.save()

    page = page_of(operator_client, watch)

    assert "Now: by hand: up to Tier 3, dry run" in page
    assert "in force" not in page
    assert page.count("Set this level") == 5


def test_a_viewer_sees_no_commands_and_no_buttons(watch):
    session = SessionFactory(cycle=CycleFactory(watch=watch))
    CommandEventFactory(
        session=session, command="docker restart web", verdict="deny", more={"allowed_from": 2}
    )
    client = Client()
    client.force_login(user_with("viewer"))

    page = page_of(client, watch)

    assert "would have asked a person about 1 command" in page
    assert "docker restart" not in page
    assert "Raise trust" not in page
