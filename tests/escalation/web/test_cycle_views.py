"""Stopping a chain from its page."""

from __future__ import annotations

import pytest
from django.contrib.messages import get_messages
from django.urls import reverse

from escalation.web.cycle import UNCONFIRMED
from sessions_app.models import Cycle, Session
from tests.factories import CycleFactory, SessionFactory

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fake_cli")]


def stop(client, cycle: Cycle, **form: str):
    return client.post(reverse("web:stop_cycle", args=[cycle.pk]), form)


def said(response) -> list[str]:
    return [str(message) for message in get_messages(response.wsgi_request)]


def test_a_running_cycle_is_stopped_only_after_a_confirmation(operator_client):
    session = SessionFactory(running=True)

    response = stop(operator_client, session.cycle)

    assert said(response) == [UNCONFIRMED]
    assert Session.objects.get(pk=session.pk).stop_cause == ""


def test_a_stop_request_records_who_asked(operator_client):
    session = SessionFactory(running=True)

    response = stop(operator_client, session.cycle, confirm="on")

    assert response.url == session.cycle.get_absolute_url()
    assert Session.objects.get(pk=session.pk).stop_requested == "operator"


def test_a_waiting_cycle_is_cancelled_without_confirmation(operator_client):
    cycle = CycleFactory(running=True, state="queued")
    session = SessionFactory(running=True, cycle=cycle, status="queued", started_at=None)

    response = stop(operator_client, cycle)

    assert said(response) == [f"Cycle {cycle.pk} was cancelled: nothing more starts."]
    assert Session.objects.get(pk=session.pk).status == Session.Status.CANCELLED
    assert Cycle.objects.get(pk=cycle.pk).stopped_by == "operator"


def test_a_finished_cycle_is_not_stopped(operator_client):
    cycle = SessionFactory().cycle

    assert "has ended already" in said(stop(operator_client, cycle, confirm="on"))[0]


def test_an_unknown_cycle_is_not_found(operator_client):
    assert operator_client.post(reverse("web:stop_cycle", args=[99])).status_code == 404
