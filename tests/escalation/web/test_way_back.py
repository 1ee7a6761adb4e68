from __future__ import annotations

import pytest
from django.urls import reverse

from tests.factories import IncidentFactory, WatchFactory

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fake_cli")]


@pytest.mark.parametrize("name", ["acknowledge_incident", "snooze_incident", "resolve_incident"])
def test_an_action_on_the_overview_redirects_to_the_overview(operator_client, name):
    incident = IncidentFactory()

    response = operator_client.post(
        reverse(f"web:{name}", args=[incident.pk]), {"back": "overview", "for": "1h"}
    )

    assert response.url == reverse("web:overview")


@pytest.mark.parametrize("back", ["", "https://example.org/", "//example.org", "watches"])
def test_an_unknown_page_redirects_to_the_incident(operator_client, back):
    incident = IncidentFactory()

    response = operator_client.post(
        reverse("web:acknowledge_incident", args=[incident.pk]), {"back": back}
    )

    assert response.url == incident.get_absolute_url()


def test_a_cycle_started_in_the_guide_redirects_to_the_guide(operator_client, workdir):
    watch = WatchFactory(workdir=str(workdir))

    response = operator_client.post(reverse("web:run_watch", args=[watch.pk]), {"back": "start"})

    assert watch.cycles.count() == 1
    assert response.url == reverse("web:start")
