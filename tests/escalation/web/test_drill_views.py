"""The endpoint that starts a drill: only for operators and only by POST."""

from __future__ import annotations

import pytest
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse
from django_q.models import OrmQ

from sessions_app.models import Cycle

# Every page names the CLI, so there is one to name.
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fake_cli")]

ADDRESS = reverse("web:start_drill")


def said(response) -> list[str]:
    return [str(message) for message in get_messages(response.wsgi_request)]


def test_it_acts_only_on_post(operator_client):
    assert operator_client.get(ADDRESS).status_code == 405
    assert not Cycle.objects.exists()


def test_an_anonymous_visitor_is_sent_to_the_login(client):
    response = client.post(ADDRESS, {"scenario": "all-healthy"})

    assert response.status_code == 302
    assert response.url.startswith(reverse("login"))
    assert not Cycle.objects.exists()


def test_a_form_from_another_site_is_refused(operator):
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(operator)

    assert strict.post(ADDRESS).status_code == 403


def test_a_drill_is_prepared_and_enqueued(operator_client, operator, settings):
    response = operator_client.post(ADDRESS, {"scenario": "all-healthy"})

    cycle = Cycle.objects.get()
    assert (cycle.drill, cycle.requested_by) == ("all-healthy", operator)
    assert cycle.workdir.startswith(str(settings.CLAUDEOPS_STATE_DIR))
    assert response.url == cycle.get_absolute_url()
    assert OrmQ.objects.count() == 1


@pytest.mark.parametrize("scenario", ["", "nonsense", "../../etc/passwd", "all-healthy.toml"])
def test_unknown_scenario_is_reported_with_the_known_ones(operator_client, scenario):
    response = operator_client.post(ADDRESS, {"scenario": scenario})

    (message,) = said(response)
    assert repr(scenario) in message
    assert "all-healthy" in message
    assert not Cycle.objects.exists()
