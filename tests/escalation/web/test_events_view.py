"""The page of events: incidents, notifications and changes in one list."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from escalation.web import events
from sessions_app.access.roles import note_added, note_changed
from sessions_app.models import IncidentEvent, Notification
from sessions_app.models.notification import NO_INCIDENT_EVENT
from tests.factories import (
    ApprovalFactory,
    IncidentFactory,
    NotificationFactory,
    UserFactory,
    WatchFactory,
    user_with,
)

pytestmark = pytest.mark.django_db
ADDRESS = "web:events"


def titles(client: Client, query: str = "") -> list[str]:
    page = client.get(f"{reverse(ADDRESS)}?{query}").context["page"]
    return [event.title for event in page.events]


def as_role(role: str) -> Client:
    client = Client()
    client.force_login(user_with(role))
    return client


def test_incidents_notifications_and_changes_are_one_list_newest_first(operator_client, operator):
    now = timezone.now()
    watch = WatchFactory(name="shop")
    incident = IncidentFactory(watch=watch, title="web is down")
    incident.events.create(kind="opened", at=now - timedelta(minutes=3))
    NotificationFactory(incident=None, title="The budget is spent", at=now - timedelta(minutes=2))
    note_changed(operator, watch, "Paused.")

    assert titles(operator_client) == [
        "watch shop",
        "The budget is spent",
        "shop: web is down",
    ]


def test_an_incident_is_listed_once_and_not_for_every_cycle(operator_client):
    notification = NotificationFactory()
    notification.incident.events.create(kind="opened")
    notification.incident.events.create(kind="seen")

    assert len(titles(operator_client)) == 1


def test_each_event_shows_its_actor_and_links_to_its_page(operator_client):
    ada = UserFactory(username="ada")
    incident = IncidentFactory()
    incident.events.create(kind="acknowledged", by=ada)
    watch = WatchFactory(name="shop")
    note_changed(ada, watch, "Paused.")

    page = operator_client.get(reverse(ADDRESS)).content.decode()

    assert page.count("by ada") == 2
    assert f'href="{incident.get_absolute_url()}"' in page
    assert f'href="{watch.get_absolute_url()}"' in page
    assert "Paused." in page


def test_every_event_is_on_exactly_one_page(operator_client, operator, monkeypatch):
    monkeypatch.setattr(events, "PER_PAGE", 3)
    now, incident = timezone.now(), IncidentFactory()
    for number in range(5):
        at = now - timedelta(minutes=number)
        incident.events.create(kind="noted", at=at)
        NotificationFactory(incident=None, title=f"word {number}", at=at)
        note_added(operator, WatchFactory(name=f"made {number}"))
    seen: list[tuple[str, int]] = []
    query = ""
    while True:
        page = operator_client.get(f"{reverse(ADDRESS)}?{query}").context["page"]
        seen += [(event.source, event.number) for event in page.events]
        query = page.older
        if not query:
            break

    assert len(seen) == len(set(seen)) == 15


def test_changes_of_accounts_are_shown_only_to_accounts_that_manage_keys():
    ada = UserFactory(username="ada")
    note_added(ada, UserFactory(username="eve"))
    note_added(ada, WatchFactory(name="shop"))

    assert titles(as_role("viewer")) == ["watch shop"]
    assert "user eve" in titles(as_role("admin"))


def test_a_waiting_command_is_shown_only_to_roles_that_may_see_output():
    approval = ApprovalFactory(of_a_command=True)
    NotificationFactory(
        kind=Notification.Kind.APPROVAL_WANTED,
        approval=approval,
        title="shop: may `docker restart web` run?",
        text="The plan.",
    )

    assert "docker restart" in titles(as_role("operator"))[0]
    viewer = as_role("viewer").get(reverse(ADDRESS)).content.decode()
    assert "docker restart" not in viewer
    assert "The plan." not in viewer
    assert "Approval needed" in viewer


@pytest.mark.parametrize("query", ["story=-1", "word=x", "act=99999999999999999999", "story=0"])
def test_an_invalid_position_shows_the_first_page(operator_client, query):
    NotificationFactory(incident=None, title="told")

    assert titles(operator_client, query) == ["told"]


def test_an_empty_page_says_that_nothing_has_happened(operator_client):
    LogEntry.objects.all().delete()

    assert "Nothing has happened yet" in operator_client.get(reverse(ADDRESS)).content.decode()


@pytest.mark.parametrize(
    ("rows", "index"),
    [
        (IncidentEvent.objects.exclude(kind="seen"), "incidentevent_told"),
        (Notification.objects.filter(NO_INCIDENT_EVENT), "notification_alone"),
    ],
)
def test_each_list_is_read_by_its_index(rows, index):
    """A year of cycles that saw the same problem must not stand before the events."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:  # an empty table is read whole, whatever index it has
            cursor.execute("SET LOCAL enable_seqscan = off")

    assert index in rows.order_by("-pk")[:51].explain()
