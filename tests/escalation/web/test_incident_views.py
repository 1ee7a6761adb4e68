"""Handling an incident from its page."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.conf import settings
from django.urls import reverse
from django.utils import timezone

from sessions_app.models import Incident
from tests.factories import IncidentFactory, user_with

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fake_cli")]
State = Incident.State


@pytest.fixture
def incident() -> Incident:
    incident: Incident = IncidentFactory(title="web is down")
    return incident


def act(client, incident: Incident, name: str, **data: str) -> str:
    address = reverse(f"web:{name}_incident", args=[incident.pk])
    page: str = client.post(address, data, follow=True).content.decode()
    incident.refresh_from_db()
    return page


def test_an_incident_is_acknowledged_snoozed_noted_and_resolved(
    operator_client, operator, incident
):
    assert "Acknowledged: you have it." in act(operator_client, incident, "acknowledge")
    assert incident.owner == operator

    act(operator_client, incident, "snooze", **{"for": "3d"})
    assert incident.snoozed_until is not None
    assert incident.snoozed_until - timezone.now() > timedelta(days=2, hours=23)

    assert "a &lt;b&gt; note" in act(operator_client, incident, "note", note="a <b> note")

    act(operator_client, incident, "resolve", note="mended by hand")
    assert (incident.state, incident.resolved_by) == (State.RESOLVED, operator)

    act(operator_client, incident, "reopen")
    assert incident.state == State.OPEN


def test_an_incident_is_taken_and_assigned(operator_client, operator, incident):
    ada = user_with("operator", username="ada")

    act(operator_client, incident, "take")
    assert incident.owner == operator
    act(operator_client, incident, "hand_over", to="ada")
    assert incident.owner == ada
    act(operator_client, incident, "hand_over", to="nobody")
    assert incident.owner is None


@pytest.mark.parametrize("name", ["", "nonsense", "viewer"])
def test_an_incident_is_assigned_only_to_accounts_that_may_handle_it(
    operator_client, incident, name
):
    user_with("viewer", username="viewer")

    page = act(operator_client, incident, "hand_over", to=name)

    assert "who handles incidents" in page
    assert incident.owner is None


@pytest.mark.parametrize("period", ["", "9000y", "1"])
def test_a_snooze_of_unknown_length_is_refused(operator_client, incident, period):
    page = act(operator_client, incident, "snooze", **{"for": period})

    assert "Choose for how long" in page
    assert incident.snoozed_until is None


def test_a_note_of_a_megabyte_is_refused(operator_client, incident):
    longest = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    almost = act(operator_client, incident, "note", note="x" * (longest - 100_000))
    address = reverse("web:note_incident", args=[incident.pk])
    too_much = operator_client.post(address, {"note": "x" * (longest + 1)})

    assert "A note has at most 5,000 characters" in almost
    assert too_much.status_code in (400, 413)
    assert not incident.events.exists()


def test_a_viewer_sees_the_incident_without_buttons(client, incident):
    client.force_login(user_with("viewer"))

    page = client.get(incident.get_absolute_url()).content.decode()

    assert "web is down" in page
    assert "Acknowledge" not in page
