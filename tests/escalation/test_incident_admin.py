"""Incidents in the admin: shown, and acknowledged or resolved in bulk."""

from __future__ import annotations

import pytest
from django.urls import reverse

from sessions_app.models import Incident
from tests.factories import IncidentFactory, user_with

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fake_cli")]
LIST = "admin:sessions_app_incident_changelist"


def act(client, action: str, *incidents: Incident) -> str:
    form = {"action": action, "_selected_action": [row.pk for row in incidents]}
    page: str = client.post(reverse(LIST), form, follow=True).content.decode()
    return page


def test_several_incidents_are_acknowledged_and_resolved_with_the_person(client):
    ada = user_with("operator")
    client.force_login(ada)
    web, db = IncidentFactory(), IncidentFactory()

    act(client, "acknowledge", web, db)
    said = act(client, "resolve", web)

    web.refresh_from_db()
    db.refresh_from_db()
    assert (web.resolved_by, db.owner) == (ada, ada)
    assert f"Resolved: incident {web.pk}." in said


def test_resolved_incident_is_left_unchanged(operator_client):
    incident = IncidentFactory(state=Incident.State.RESOLVED)

    assert "resolved already" in act(operator_client, "resolve", incident)


def test_incidents_cannot_be_edited(operator_client):
    incident = IncidentFactory()

    page = operator_client.get(reverse("admin:sessions_app_incident_change", args=[incident.pk]))

    assert page.status_code == 200
    assert b'name="_save"' not in page.content
