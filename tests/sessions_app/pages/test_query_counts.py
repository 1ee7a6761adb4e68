"""Every page costs a fixed number of queries: with much data as many as with some."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from sessions_app.models import Session
from sessions_app.pages.dashboard import dashboard_version
from tests.factories import CycleFactory, SessionEventFactory, three_tier_chain

pytestmark = pytest.mark.django_db

LOGIN = 2  # who is this: the web session and the user

# One more query must be a decision, not an accident.
BANNERS = 2  # is it paused, and was a worker seen?
EXPECTED = {
    "dashboard": LOGIN + BANNERS + 10,
    "sessions": LOGIN + BANNERS + 3,
    "session": LOGIN + BANNERS + 5,
    "costs": LOGIN + BANNERS + 6,
    "session_events": LOGIN + BANNERS + 2,
    "admin": LOGIN + 6,
}


def add_data() -> Session:
    sessions = three_tier_chain()
    Session.objects.filter(parent_session__isnull=False).update(continued_by="resume")
    three_tier_chain(drill=True)
    CycleFactory(running=True)
    for number in range(5):
        SessionEventFactory(session=sessions[2], sequence=number)
    return sessions[2]


def address(name: str, session: Session) -> str:
    if name == "admin":
        return reverse("admin:sessions_app_session_changelist")
    args = [session.pk] if name.startswith("session") and name != "sessions" else []
    return reverse(f"sessions_app:{name}", args=args)


def count_queries(call: Callable[[], object]) -> int:
    with CaptureQueriesContext(
        connection,
    ) as queries:
        call()
    return len(queries)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_page_costs_as_many_queries_with_much_data_as_with_some(operator_client, name):
    url = address(name, add_data())
    some = count_queries(lambda: operator_client.get(url))
    for _ in range(4):
        add_data()

    much = count_queries(lambda: operator_client.get(url))

    assert some == much == EXPECTED[name]


def test_an_unchanged_dashboard_costs_three_short_queries(operator_client):
    add_data()
    parameters, htmx = {"version": dashboard_version()}, {"HX-Request": "true"}

    def poll() -> object:
        return operator_client.get(reverse("sessions_app:dashboard"), parameters, headers=htmx)

    assert count_queries(poll) == LOGIN + 3
