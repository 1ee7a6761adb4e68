"""Endpoints of watches: only for operators, only by POST, with a message about the result."""

from __future__ import annotations

import pytest
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse
from django_q.models import OrmQ

from sessions_app.models import Cycle
from tests.factories import CycleFactory, WatchFactory

# Every page names the CLI, so there is one to name.
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fake_cli")]


@pytest.fixture
def watch(workdir):
    return WatchFactory(name="shop", workdir=str(workdir))


def address(name: str, watch) -> str:
    return reverse(f"web:{name}", args=[watch.pk])


def said(response) -> list[str]:
    return [str(message) for message in get_messages(response.wsgi_request)]


EVERY_ENDPOINT = ["run_watch", "pause_watch", "unpause_watch"]


@pytest.mark.parametrize("name", EVERY_ENDPOINT)
def test_it_acts_only_on_post(operator_client, watch, name):
    assert operator_client.get(address(name, watch)).status_code == 405
    assert not Cycle.objects.exists()


@pytest.mark.parametrize("name", EVERY_ENDPOINT)
def test_an_anonymous_visitor_is_sent_to_the_login(client, watch, name):
    response = client.post(address(name, watch))

    assert response.status_code == 302
    assert response.url.startswith(reverse("login"))
    assert not Cycle.objects.exists()


@pytest.mark.parametrize("name", EVERY_ENDPOINT)
def test_a_form_from_another_site_is_refused(operator, watch, name):
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(operator)

    response = strict.post(address(name, watch))

    assert response.status_code == 403


def test_a_run_is_enqueued_and_shown(operator_client, operator, watch):
    response = operator_client.post(address("run_watch", watch), {"prompt": "  Is db slow? "})

    cycle = watch.cycles.get()
    assert (response.status_code, response.url) == (302, cycle.get_absolute_url())
    assert said(response) == [f"Cycle {cycle.pk} of shop is queued."]
    assert (cycle.trigger, cycle.requested_by) == (Cycle.Trigger.MANUAL, operator)
    assert cycle.prompt == "Is db slow?"
    assert OrmQ.objects.count() == 1


def test_a_paused_watch_can_be_run_manually(operator_client, workdir):
    watch = WatchFactory(workdir=str(workdir), enabled=False)

    operator_client.post(address("run_watch", watch))

    assert watch.cycles.count() == 1


def test_a_second_run_is_refused_with_the_active_cycle(operator_client, watch):
    active = CycleFactory(running=True, watch=watch)

    response = operator_client.post(address("run_watch", watch))

    assert said(response) == [f"Cycle {active.pk} of shop is still running; wait for it to finish."]
    assert response.url == reverse("web:overview")
    assert watch.cycles.count() == 1


@pytest.mark.parametrize("name", ["run_watch", "pause_watch", "unpause_watch"])
def test_an_unknown_watch_is_not_found(operator_client, name):
    url = reverse(f"web:{name}", args=[987])

    assert operator_client.post(url).status_code == 404


def test_a_watch_can_be_paused(operator_client, watch):
    response = operator_client.post(address("pause_watch", watch))

    watch.refresh_from_db()
    assert (watch.enabled, watch.schedule.repeats) == (False, 0)
    assert said(response) == ["The watch shop is paused: it runs only when asked."]


def test_a_watch_can_be_unpaused(operator_client, workdir):
    watch = WatchFactory(name="shop", enabled=False, interval_minutes=60)

    response = operator_client.post(address("unpause_watch", watch))

    watch.refresh_from_db()
    assert (watch.enabled, watch.schedule.repeats) == (True, -1)
    assert said(response) == ["The watch shop runs again, every hour."]


def test_an_action_redirects_to_a_page_with_its_result(operator_client, watch):
    response = operator_client.post(address("pause_watch", watch), follow=True)

    assert response.status_code == 200
    assert "is paused: it runs only when asked" in response.content.decode()
