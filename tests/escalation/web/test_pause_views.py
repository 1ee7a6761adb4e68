"""The pause switch on the pages: who may use it, its effect, and the banner."""

from __future__ import annotations

import pytest
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse
from django_q.models import OrmQ

from escalation.worker.schedules import pause
from sessions_app.models import PauseSwitch, Session
from tests.factories import SessionFactory

pytestmark = pytest.mark.django_db

PAUSE, UNPAUSE = reverse("web:pause_all"), reverse("web:unpause_all")
HOSTILE = "<script>alert(1)</script>"


def said(response) -> list[str]:
    return [str(message) for message in get_messages(response.wsgi_request)]


def dashboard(client: Client) -> str:
    return client.get(reverse("web:overview")).content.decode()


@pytest.mark.parametrize("url", [PAUSE, UNPAUSE])
def test_a_get_request_is_refused(operator_client, url):
    assert operator_client.get(url).status_code == 405
    assert not PauseSwitch.is_on()


@pytest.mark.parametrize("url", [PAUSE, UNPAUSE])
def test_an_anonymous_visitor_is_sent_to_the_login(client, url):
    pause("x")

    assert client.post(url).url.startswith(reverse("login"))
    assert PauseSwitch.is_on()


@pytest.mark.parametrize("url", [PAUSE, UNPAUSE])
def test_a_form_from_another_site_is_refused(operator, url):
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(operator)

    assert strict.post(url).status_code == 403


def test_the_operator_can_pause(operator_client, operator):
    response = operator_client.post(PAUSE, {"reason": "  new disks  "})

    switch = PauseSwitch.current()
    assert (switch.paused, switch.reason, switch.changed_by) == (True, "new disks", operator)
    assert response.url == reverse("web:overview")
    assert said(response) == ["Paused: no new tier starts. 0 running tiers were asked to stop."]


def test_a_pause_without_a_reason_is_recorded_as_manual(operator_client):
    operator_client.post(PAUSE, {"reason": "   "})

    assert PauseSwitch.current().reason == "by hand"


def test_running_tiers_continue_unless_the_box_is_ticked(operator_client):
    session = SessionFactory(running=True)

    operator_client.post(PAUSE, {"reason": "x"})

    session.refresh_from_db()
    assert session.stop_requested == ""


def test_with_the_box_ticked_running_tiers_are_asked_to_stop(operator_client):
    session = SessionFactory(running=True)

    response = operator_client.post(PAUSE, {"reason": "fire", "stop_running": "on"})

    session.refresh_from_db()
    assert "fire" in session.stop_requested
    assert "1 running tiers" in said(response)[0]


def test_the_operator_can_unpause(operator_client):
    SessionFactory(status=Session.Status.QUEUED)
    pause("x")

    response = operator_client.post(UNPAUSE)

    assert not PauseSwitch.is_on()
    assert said(response) == ["Running again. Sessions that were waiting: 1."]
    assert OrmQ.objects.count() == 1


def test_every_page_shows_who_paused_and_why(operator_client, operator, fake_cli):
    pause("new disks", by=operator)

    for name in ("overview", "sessions", "costs"):
        page = operator_client.get(reverse(f"web:{name}")).content.decode()
        assert "Paused: no new tier starts." in page
        assert "new disks (operator)" in " ".join(page.split())
        assert UNPAUSE in page


def test_a_hostile_reason_is_escaped(operator_client, fake_cli):
    pause(HOSTILE)

    assert HOSTILE not in dashboard(operator_client)


def test_a_running_installation_offers_to_pause(operator_client, fake_cli):
    page = dashboard(operator_client)

    assert PAUSE in page
    assert "Paused:" not in page


def test_a_paused_installation_offers_only_to_unpause(operator_client, fake_cli):
    pause("x")

    page = dashboard(operator_client)

    assert UNPAUSE in page
    assert f'action="{PAUSE}"' not in page
