"""Every endpoint that acts: by POST, from our own forms, and only for those who may."""

from __future__ import annotations

import html
import re

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from django_q.models import OrmQ

from escalation.host.pause import pause
from escalation.rehearsal.urls import urlpatterns as drills
from escalation.web.permission import NEEDED, REFUSED, may_act
from escalation.web.urls import urlpatterns
from sessions_app.models import Cycle, PauseSwitch, Session, Watch
from tests.factories import CycleFactory, SessionFactory, UserFactory, WatchFactory

# Every page names the CLI, so there is one to name.
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fake_cli")]

ONLY_SHOWING = {"healthz", "readyz"}
# Read from the addresses themselves: an endpoint that is added is tried here too.
ENDPOINTS = [str(route.name) for route in [*urlpatterns, *drills] if route.name not in ONLY_SHOWING]
every_endpoint = pytest.mark.parametrize("name", ENDPOINTS)
FORM = {"request": "Why?", "confirm": "on", "scenario": "all-healthy", "reason": "fire"}


@pytest.fixture
def subject(workdir) -> dict[str, int]:
    """The numbers that addresses need: a watch that can run, a run that can be gone on from."""
    watch = WatchFactory(name="shop", workdir=str(workdir))
    failed = SessionFactory(failed=True, workdir=str(workdir), cycle=CycleFactory(watch=watch))
    return {"watches": watch.pk, "sessions": failed.pk}


def address(name: str, subject: dict[str, int]) -> str:
    route = next(str(route.pattern) for route in [*urlpatterns, *drills] if route.name == name)
    numbers = [number for kind, number in subject.items() if route.startswith(f"{kind}/")]
    return reverse(f"escalation:{name}", args=numbers)


def everything() -> list[object]:
    """All that an endpoint could have changed."""
    return [
        list(Watch.objects.values()),
        list(Cycle.objects.values()),
        list(Session.objects.values()),
        list(PauseSwitch.objects.values()),
        OrmQ.objects.count(),
    ]


def a_client(*permissions: str, **user: object) -> Client:
    account = UserFactory(**user)
    names = [permission.split(".")[1] for permission in permissions]
    account.user_permissions.set(Permission.objects.filter(codename__in=names))
    client = Client()
    client.force_login(account)
    return client


def test_the_endpoints_are_found():
    assert {"run_watch", "pause_watch", "pause_all", "start_drill", "stop_session"} <= set(
        ENDPOINTS
    )
    assert {"follow_up", "fork_session", "retry_session", "escalate_session"} <= set(ENDPOINTS)


@every_endpoint
def test_a_stranger_is_sent_to_the_login(client, subject, name):
    before = everything()

    response = client.post(address(name, subject), FORM)

    assert response.status_code == 302
    assert response.url.startswith(reverse("login"))
    assert everything() == before


@every_endpoint
def test_it_acts_only_on_post(operator_client, subject, name):
    before = everything()

    assert operator_client.get(address(name, subject), FORM).status_code == 405
    assert everything() == before


@every_endpoint
def test_a_form_from_another_site_is_refused(operator, subject, name):
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(operator)
    before = everything()

    assert strict.post(address(name, subject), FORM).status_code == 403
    assert everything() == before


@every_endpoint
@pytest.mark.parametrize("staff", [False, True])
def test_an_ordinary_account_is_told_that_it_may_not(subject, name, staff):
    before = everything()

    response = a_client(is_staff=staff).post(address(name, subject), FORM)

    assert response.status_code == 403
    assert REFUSED in html.unescape(response.content.decode())
    assert everything() == before


@every_endpoint
def test_an_account_with_the_permissions_may(subject, name):
    response = a_client(*NEEDED).post(address(name, subject), FORM)

    assert response.status_code == 302


@pytest.mark.parametrize("alone", NEEDED)
def test_one_permission_alone_is_not_enough(alone):
    user = UserFactory()
    user.user_permissions.set(Permission.objects.filter(codename=alone.split(".")[1]))

    assert not may_act(User.objects.get(pk=user.pk))


def test_an_account_that_was_switched_off_may_not():
    assert not may_act(UserFactory(is_superuser=True, is_active=False))


def pages(client: Client, subject: dict[str, int]) -> str:
    running = SessionFactory(running=True)
    addresses = [
        reverse("sessions_app:dashboard"),
        reverse("sessions_app:session", args=[subject["sessions"]]),
        reverse("sessions_app:session", args=[running.pk]),
    ]
    return "".join(client.get(url).content.decode() for url in addresses)


def forms_in(text: str) -> int:
    return text.count('method="post"') - text.count(f'action="{reverse("logout")}"')


def test_who_may_not_act_is_offered_no_form(subject):
    WatchFactory(enabled=False)

    assert forms_in(pages(a_client(), subject)) == 0


def test_who_may_not_act_cannot_lift_a_pause(subject):
    pause("new disks")

    shown = pages(a_client(), subject)

    assert "Paused: no new tier starts." in shown
    assert forms_in(shown) == 0


def test_who_may_act_is_offered_every_form(subject):
    WatchFactory(enabled=False)
    shown = pages(a_client(*NEEDED), subject)
    pause("x")

    shown += pages(a_client(*NEEDED), subject)

    offered = {re.sub(r"\d+", "N", action) for action in re.findall(r'action="([^"]+)"', shown)}
    assert {re.sub(r"\d+", "N", address(name, subject)) for name in ENDPOINTS} <= offered
