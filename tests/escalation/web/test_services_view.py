"""The page of all services."""

from __future__ import annotations

import pytest
from django.urls import reverse

from escalation.web import services
from tests.factories import IncidentFactory, ServiceStateFactory, WatchFactory

pytestmark = pytest.mark.django_db
ADDRESS = "web:services"


def names(response) -> list[str]:
    return [line.state.name for line in response.context["list"].lines]


def test_services_in_the_worst_state_come_first(operator_client):
    for status in ("healthy", "unknown", "down", "degraded"):
        ServiceStateFactory(service=status, status=status)

    response = operator_client.get(reverse(ADDRESS))

    assert names(response) == ["down", "degraded", "unknown", "healthy"]


def test_open_incidents_are_shown_beside_their_service(operator_client):
    state = ServiceStateFactory(service="web", status="down")
    incident = IncidentFactory(watch=state.watch, cause="web")
    IncidentFactory(watch=state.watch, cause="db")
    IncidentFactory(cause="web")

    (line,) = operator_client.get(reverse(ADDRESS)).context["list"].lines

    assert line.incidents == (incident,)


def test_filters_combine_and_invalid_ones_are_ignored(operator_client):
    shop = WatchFactory()
    ServiceStateFactory(watch=shop, service="web", status="down")
    ServiceStateFactory(watch=shop, service="db")
    ServiceStateFactory(service="other", status="degraded")

    def asked(**query: object) -> list[str]:
        return names(operator_client.get(reverse(ADDRESS), query))

    assert asked(watch=shop.pk, status="down") == ["web"]
    assert asked(status="unwell") == ["web", "other"]
    assert asked(watch="nonsense", status="<b>") == ["web", "other", "db"]


def test_every_service_is_on_exactly_one_page(operator_client, monkeypatch):
    monkeypatch.setattr(services, "PER_PAGE", 2)
    for number in range(5):
        ServiceStateFactory(service="web", name=f"web {number}", status="down")
    ServiceStateFactory(service="db", status="healthy")
    seen: list[str] = []
    query: dict[str, object] = {}
    while True:
        found = operator_client.get(reverse(ADDRESS), query).context["list"]
        seen += [line.state.name for line in found.lines]
        if found.older is None:
            break
        query = {"before": found.older}

    assert sorted(seen) == ["db", "web 0", "web 1", "web 2", "web 3", "web 4"]
    assert len(seen) == 6


def test_an_empty_page_explains_services(operator_client):
    assert "No report has named a service yet" in (
        operator_client.get(reverse(ADDRESS)).content.decode()
    )


def test_an_htmx_request_gets_only_the_list(operator_client):
    page = operator_client.get(reverse(ADDRESS), headers={"HX-Request": "true"}).content.decode()

    assert page.strip().startswith('<div id="services">')
