"""The page of a watch is rendered again after a change, and costs little otherwise."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from sessions_app.models import Approval, Cycle, Session, Watch
from tests.factories import (
    ApprovalFactory,
    ChangeFactory,
    CycleFactory,
    IncidentFactory,
    SessionFactory,
    WatchFactory,
)

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}
LOGIN = 2


@pytest.fixture
def watch(tmp_path) -> Watch:
    made: Watch = WatchFactory(name="shop", workdir=str(tmp_path))
    running = SessionFactory(running=True, cycle=CycleFactory(watch=made, running=True))
    ApprovalFactory(of_a_command=True, session=running)
    return made


def version_of(client: Client, watch: Watch) -> str:
    return str(client.get(watch.get_absolute_url()).context["page"].version)


def asked_again(client: Client, watch: Watch, version: str) -> Any:
    return client.get(watch.get_absolute_url(), {"version": version}, headers=HTMX)


def test_an_unchanged_page_answers_no_content_with_few_queries(
    operator_client, watch, django_assert_num_queries
):
    version = version_of(operator_client, watch)

    with django_assert_num_queries(LOGIN + 4):
        answer = asked_again(operator_client, watch, version)

    assert (answer.status_code, answer.content) == (204, b"")


NEWS: dict[str, Callable[[Watch], object]] = {
    "a cycle begins": lambda watch: CycleFactory(watch=watch, state=Cycle.State.FINISHED),
    "a cycle ends": lambda watch: watch.cycles.get().finish("healthy", "All is well."),
    "a tier ends": lambda watch: Session.objects.update(status="completed"),
    "a tier begins": lambda watch: SessionFactory(running=True, cycle=watch.cycles.get(), tier=2),
    "an incident opens": lambda watch: IncidentFactory(watch=watch).events.create(kind="opened"),
    "an approval is answered": lambda watch: Approval.objects.update(state="rejected"),
    "something is changed": lambda watch: ChangeFactory(session=Session.objects.get()),
    "it is paused": lambda watch: Watch.objects.update(enabled=False),
    "it backs off": lambda watch: Watch.objects.update(
        backed_off_until=timezone.now() + timedelta(hours=1)
    ),
}


@pytest.mark.parametrize("news", NEWS)
def test_the_page_is_rendered_again_after_a_change(operator_client, watch, news):
    version = version_of(operator_client, watch)

    NEWS[news](watch)

    answer = asked_again(operator_client, watch, version)
    assert answer.status_code == 200
    assert version not in answer.content.decode()


def test_a_refresh_contains_the_changed_parts_and_the_counts_of_the_navigation(
    operator_client, watch
):
    IncidentFactory(watch=watch, title="web is down")

    page = asked_again(operator_client, watch, "old").content.decode()

    assert page.strip().startswith('<div id="watch-now"')
    assert "web is down" in page
    assert 'id="count-incidents" class="nav-count tone-warn" hx-swap-oob="true"' in page
    assert "Autonomy, approvals and limits" not in page


def test_the_outcome_of_a_cycle_is_announced(operator_client, watch):
    assert (
        'data-announce="shop: a cycle is running."'
        in asked_again(operator_client, watch, "").content.decode()
    )

    watch.cycles.get().finish("healthy", "All is well.")

    assert (
        'data-announce="shop: healthy."' in asked_again(operator_client, watch, "").content.decode()
    )
