"""Every page makes a fixed number of queries, however much data there is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from escalation.web.overview import overview_version
from sessions_app.access.roles import note_added
from sessions_app.models import Approval, ProbeProposal, Remedy, SandboxProof, Session, Watch
from tests.factories import (
    ApiTokenFactory,
    ApprovalFactory,
    ChangeFactory,
    CommandEventFactory,
    CycleFactory,
    IncidentFactory,
    MessageFactory,
    NotificationFactory,
    RemedyFactory,
    RemedyRunFactory,
    SandboxProofFactory,
    ServiceStateFactory,
    SessionEventFactory,
    SessionFactory,
    SourceFactory,
    UserFactory,
    WatchFactory,
    three_tier_chain,
    user_with,
)

pytestmark = pytest.mark.django_db

LOGIN = 2  # who is this: the web session and the user

# One more query must be a decision, not an accident.
GLANCE = 1  # is it paused, was a worker seen, and how much wants a person?
BUDGETS = 2  # what is spent by watch: as it was reported, and as it is guessed
# How large the database is: a server is asked for it, a file is looked at.
DATABASE_SIZE = int(connection.vendor == "postgresql")
MOST = 12
EXPECTED = {
    "overview": LOGIN + GLANCE + 6 + BUDGETS,
    "start": LOGIN + GLANCE + 2,
    "incidents": LOGIN + GLANCE + 7,
    "incident": LOGIN + GLANCE + 8,
    "sessions": LOGIN + GLANCE + 2,
    "session": LOGIN + GLANCE + 7,
    "cycle": LOGIN + GLANCE + 5,
    "cycle_events": LOGIN + GLANCE + 3,
    "session_commands": LOGIN + GLANCE + 2,
    "sandbox": LOGIN + GLANCE + 3,
    "health": LOGIN + GLANCE + 7 + DATABASE_SIZE,
    "autonomy": LOGIN + GLANCE + 4,
    "watches": LOGIN + GLANCE + 4,
    "watch": LOGIN + GLANCE + 8,
    "watch_remedies": LOGIN + GLANCE + 4,
    "remedy": LOGIN + GLANCE + 5,
    "probes": LOGIN + GLANCE + 8,
    "search": LOGIN + GLANCE,
    "board": LOGIN + GLANCE + 8,
    "services": LOGIN + GLANCE + 3,
    "events": LOGIN + GLANCE + 3,
    "accounts": LOGIN + GLANCE + 2,
    "channels": LOGIN + GLANCE + 4,
    "sources": LOGIN + GLANCE + 3,
    "tokens": LOGIN + GLANCE + 3,
    "approvals": LOGIN + GLANCE + 3,
    "approval": LOGIN + GLANCE + 3,
    "costs": LOGIN + GLANCE + 6 + BUDGETS,
    "changes": LOGIN + GLANCE + 2,
    "cycles": LOGIN + GLANCE + 4,
    "session_events": LOGIN + GLANCE + 2,
    "admin": LOGIN + 7,
}


def add_data() -> Session:
    sessions = three_tier_chain()
    Session.objects.filter(parent_session__isnull=False).update(continued_by="resume")
    three_tier_chain(drill=True)
    CycleFactory(running=True)
    for number in range(5):
        SessionEventFactory(session=sessions[2], sequence=number)
    for number in (8, 9):
        CommandEventFactory(session=sessions[2], sequence=number)
    incident = IncidentFactory()
    incident.cycles.add(sessions[2].cycle)
    incident.events.create(kind="opened", cycle=sessions[2].cycle)
    ChangeFactory(session=sessions[2])
    IncidentFactory(last_cycle=sessions[2].cycle)
    IncidentFactory(state="resolved", resolved_as="agent", resolved_at=timezone.now())
    for kind in SandboxProof.Kind:
        SandboxProofFactory(kind=kind)
    MessageFactory().channel.watches.add(WatchFactory())
    ApprovalFactory(of_a_command=True)
    ApprovalFactory(state=Approval.State.REJECTED)
    ServiceStateFactory(watch=sessions[2].cycle.watch)
    RemedyRunFactory(remedy=RemedyFactory(watch=sessions[2].cycle.watch))
    ProbeProposal.objects.create(
        watch=sessions[2].cycle.watch,
        session=sessions[2],
        **{"key": "a", "service": "web", "kind": "tcp", "target": "127.0.0.1:9"},
    )
    NotificationFactory(incident=None)
    SourceFactory()
    ApiTokenFactory(user=User.objects.latest("pk"))
    note_added(UserFactory(), WatchFactory())
    return sessions[2]


def address(name: str, session: Session) -> str:
    if name == "admin":
        return reverse("admin:sessions_app_session_changelist")
    if name == "incident":
        return reverse("web:incident", args=[session.cycle.incidents.get().pk])
    if name == "remedy":
        return Remedy.objects.get(watch=session.cycle.watch_id).get_absolute_url()
    if name in {"autonomy", "probes", "watch", "watch_remedies"}:
        return reverse(f"web:{name}", args=[session.cycle.watch_id])
    if name == "approval":
        return Approval.objects.latest("pk").get_absolute_url()
    if name in ("cycle", "cycle_events"):
        return reverse(f"web:{name}", args=[session.cycle_id])
    args = [session.pk] if name.startswith("session") and name != "sessions" else []
    return reverse(f"web:{name}", args=args)


def count_queries(call: Callable[[], object]) -> int:
    with CaptureQueriesContext(
        connection,
    ) as queries:
        call()
    return len(queries)


def queries_of_pages(client: Client, session: Session, names: Iterable[str]) -> dict[str, int]:
    urls = {name: address(name, session) for name in names}
    return {name: count_queries(partial(client.get, url)) for name, url in urls.items()}


def test_pages_need_as_many_queries_with_much_data_as_with_little(operator_client):
    session = add_data()
    some = queries_of_pages(operator_client, session, EXPECTED)
    for _ in range(4):
        add_data()

    assert some == EXPECTED
    assert queries_of_pages(operator_client, session, EXPECTED) == EXPECTED
    assert max(EXPECTED.values()) <= MOST


def test_an_account_with_a_role_needs_one_more_query(client):
    client.force_login(user_with("admin"))
    one_more = {name: number + 1 for name, number in EXPECTED.items()}

    assert queries_of_pages(client, add_data(), EXPECTED) == one_more
    assert max(one_more.values()) <= MOST


def test_limits_of_watches_need_no_further_query(operator_client):
    session, names = add_data(), ("overview", "costs", "watch")
    Watch.objects.update(budget_day_usd=5)

    found = queries_of_pages(operator_client, session, names)

    assert found == {name: EXPECTED[name] for name in names}


def test_an_unchanged_overview_needs_few_short_queries(operator_client):
    add_data()
    parameters, htmx = {"version": overview_version()}, {"HX-Request": "true"}

    def poll() -> object:
        return operator_client.get(reverse("web:overview"), parameters, headers=htmx)

    assert count_queries(poll) == LOGIN + 6


def test_a_running_chain_needs_few_queries(operator_client):
    cycle = CycleFactory(running=True)
    first = SessionFactory(escalated=True, cycle=cycle)
    running = SessionFactory(running=True, cycle=cycle, tier=2, parent_session=first)
    ApprovalFactory(of_a_command=True, session=running)
    SessionEventFactory(session=running)
    ChangeFactory(session=running)
    IncidentFactory().cycles.add(cycle)

    assert count_queries(lambda: operator_client.get(cycle.get_absolute_url())) <= MOST
