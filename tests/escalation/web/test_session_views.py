"""Endpoints that act on a finished session, with a confirmation where it may change something."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.contrib.messages import get_messages
from django.urls import reverse
from django_q.models import OrmQ

from escalation.web.sessions import UNCONFIRMED
from sessions_app.models import Cycle, Session
from tests.factories import (
    CommandEventFactory,
    CycleFactory,
    IncidentFactory,
    SessionFactory,
    WatchFactory,
    user_with,
)

# Every page names the CLI, so there is one to name.
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fake_cli")]
Status, Purpose = Session.Status, Session.Purpose
EVERY_ENDPOINT = ["follow_up", "fork_session", "retry_session", "escalate_session"]
every_endpoint = pytest.mark.parametrize("name", EVERY_ENDPOINT)


def address(name: str, session: Session) -> str:
    return reverse(f"web:{name}", args=[session.pk])


def said(response) -> list[str]:
    return [str(message) for message in get_messages(response.wsgi_request)]


def created() -> Session:
    return Session.objects.get(status=Status.QUEUED)


def nothing_was_created() -> bool:
    return not Session.objects.filter(status=Status.QUEUED).exists() and not OrmQ.objects.exists()


@pytest.fixture
def failed(workdir) -> Session:
    """On a failed run of Tier 1 every operation is possible."""
    return SessionFactory(failed=True, workdir=str(workdir))


@every_endpoint
def test_an_unknown_session_is_not_found(operator_client, name):
    url = reverse(f"web:{name}", args=[987])

    assert operator_client.post(url, {"request": "Why?", "confirm": "on"}).status_code == 404


@pytest.mark.parametrize(
    ("name", "purpose", "tier"),
    [
        ("follow_up", Purpose.FOLLOW_UP, 1),
        ("fork_session", Purpose.FORK, 1),
        ("retry_session", Purpose.RETRY, 1),
        ("escalate_session", Purpose.TIER, 2),
    ],
)
def test_an_action_enqueues_a_session_and_redirects_to_it(
    operator_client, operator, failed, name, purpose, tier
):
    response = operator_client.post(address(name, failed), {"request": "Why?", "confirm": "on"})

    run = created()
    assert (run.purpose, run.tier, run.requested_by) == (purpose, tier, operator)
    assert response.url == run.get_absolute_url()
    assert said(response) == [f"Session {run.pk} is queued."]
    assert OrmQ.objects.count() == 1


@pytest.mark.parametrize("name", ["follow_up", "fork_session", "escalate_session"])
def test_the_request_reaches_the_session(operator_client, failed, name):
    operator_client.post(address(name, failed), {"request": "Is db slow?", "confirm": "on"})

    assert created().request == "Is db slow?"


@pytest.mark.parametrize(
    ("name", "tier", "needed"),
    [
        ("follow_up", 1, False),
        ("follow_up", 3, False),
        ("fork_session", 1, False),
        ("fork_session", 2, True),
        ("retry_session", 1, False),
        ("retry_session", 3, True),
        ("escalate_session", 1, True),
        ("escalate_session", 2, True),
    ],
)
def test_an_action_that_may_change_something_needs_a_confirmation(
    operator_client, name, tier, needed
):
    session = SessionFactory(failed=True, tier=tier, workdir="/tmp")

    response = operator_client.post(address(name, session), {"request": "Why?"})

    assert (said(response) == [UNCONFIRMED]) is needed
    assert nothing_was_created() is needed
    if needed:
        assert response.url == session.get_absolute_url()


@pytest.mark.parametrize("name", ["follow_up", "fork_session", "escalate_session"])
@pytest.mark.parametrize("text", ["", "  "])
def test_a_missing_text_is_refused(operator_client, failed, name, text):
    response = operator_client.post(address(name, failed), {"request": text, "confirm": "on"})

    (message,) = said(response)
    assert message.startswith("Say ")
    assert response.url == failed.get_absolute_url()
    assert nothing_was_created()


@every_endpoint
def test_a_refusal_is_shown_on_the_page_of_the_session(operator_client, name):
    busy = SessionFactory(failed=True, cycle=CycleFactory(running=True))

    response = operator_client.post(
        address(name, busy), {"request": "Why?", "confirm": "on"}, follow=True
    )

    assert response.redirect_chain[-1][0] == busy.get_absolute_url()
    assert "is still running; wait for it" in response.content.decode()
    assert nothing_was_created()


@pytest.mark.parametrize("name", ["retry_session", "escalate_session"])
@pytest.mark.parametrize("fresh", [True, False])
def test_a_fresh_conversation_can_be_requested(operator_client, failed, name, fresh):
    form = {"request": "Why?", "confirm": "on", **({"fresh": "on"} if fresh else {})}

    operator_client.post(address(name, failed), form)

    assert created().force_fresh is fresh


def test_of_two_escalations_the_second_is_refused(operator_client, failed):
    form = {"request": "Help", "confirm": "on"}
    operator_client.post(address("escalate_session", failed), form)
    Session.objects.filter(status=Status.QUEUED).update(status=Status.COMPLETED)
    failed.cycle.close_again()

    response = operator_client.post(address("escalate_session", failed), form)

    assert "escalated already" in said(response)[-1]
    assert failed.children.count() == 1


def test_the_fresh_option_of_the_overview_applies_to_every_tier(operator_client, workdir):
    watch = WatchFactory(workdir=str(workdir))

    operator_client.post(reverse("web:run_watch", args=[watch.pk]), {"fresh": "on"})

    assert watch.cycles.get().force_fresh


def test_a_drill_can_be_started_fresh_at_every_tier(operator_client):
    operator_client.post(reverse("web:start_drill"), {"scenario": "all-healthy", "fresh": "on"})

    assert Cycle.objects.get().force_fresh


@pytest.fixture
def withheld(workdir) -> Session:
    """A Tier 1 whose watch may only look."""
    return SessionFactory(workdir=str(workdir), cycle=CycleFactory(max_tier=1))


def test_an_approver_allows_a_withheld_tier_once_for_an_amount(operator_client, withheld):
    form = {"request": "", "budget": "1.25", "confirm": "on"}

    response = operator_client.post(address("allow_session", withheld), form)

    run = created()
    assert (run.tier, run.allowed_once, run.max_budget_usd) == (2, True, Decimal("1.25"))
    assert run.approvals.get().way == "page"
    assert response.url == run.get_absolute_url()


@pytest.mark.parametrize("form", [{}, {"confirm": "on", "budget": "much"}])
def test_a_tier_is_not_allowed_without_confirmation_or_with_a_wrong_amount(
    operator_client, withheld, form
):
    operator_client.post(address("allow_session", withheld), form)

    assert nothing_was_created()


def test_the_pages_of_session_cycle_and_incident_offer_to_allow_the_tier(operator_client, withheld):
    incident = IncidentFactory(watch=withheld.cycle.watch, last_cycle=withheld.cycle)
    form = f'action="{address("allow_session", withheld)}"'

    for row in (withheld, withheld.cycle, incident):
        page = operator_client.get(row.get_absolute_url()).content.decode()
        assert form in page
        assert 'max="5.00"' in page


def test_the_inbox_allows_a_withheld_tier_once_and_says_what_for(operator_client, withheld):
    asked = {"needed": True, "reason": "set pool_size to 20", "services": ["web"]}
    report = {"summary": "", "services": [], "actions_taken": [], "events": [], "escalation": asked}
    Session.objects.filter(pk=withheld.pk).update(report=report)
    IncidentFactory(watch=withheld.cycle.watch, last_cycle=withheld.cycle, detail="pool exhausted")

    page = operator_client.get(reverse("web:overview")).content.decode()
    shown = page[page.index('class="row inbox-row"') :]

    assert f'action="{address("allow_session", withheld)}"' in shown
    assert all(text in shown for text in ("pool exhausted", "set pool_size to 20", "up to $5.00"))
    form = {"request": "", "budget": "5.00", "confirm": "on"}
    operator_client.post(address("allow_session", withheld), form)
    assert created().approvals.get().state == "approved"


def test_a_denied_command_is_named_where_its_tier_can_be_allowed_once(operator_client, workdir):
    session = SessionFactory(workdir=str(workdir))
    incident = IncidentFactory(watch=session.cycle.watch, last_cycle=session.cycle)
    more = {"allowed_from": 2}
    CommandEventFactory(session=session, command="docker restart web", verdict="deny", more=more)
    form = f'action="{address("allow_session", session)}"'

    for url in (
        *(row.get_absolute_url() for row in (session, session.cycle, incident)),
        reverse("web:overview"),
    ):
        page = operator_client.get(url).content.decode()
        assert form in page
        assert "Allow Tier 2 once: docker restart web" in page
    operator_client.post(
        address("allow_session", session), {"request": "", "budget": "5.00", "confirm": "on"}
    )
    assert "docker restart web" in created().request


def test_an_operator_is_not_offered_to_allow_a_tier(client, withheld):
    client.force_login(user_with("operator"))

    IncidentFactory(watch=withheld.cycle.watch, last_cycle=withheld.cycle)

    for url in (withheld.get_absolute_url(), reverse("web:overview")):
        assert address("allow_session", withheld) not in client.get(url).content.decode()


def test_a_running_session_is_told_something_on_its_page(operator_client, operator):
    argv = ["claude", "--input-format", "stream-json"]
    session = SessionFactory(running=True, argv=argv)
    url = address("tell_session", session)

    assert f'action="{url}"' in operator_client.get(session.get_absolute_url()).content.decode()
    operator_client.post(url, {"text": "Leave db alone."})

    event = session.events.get()
    assert (event.kind, event.payload["by"]) == ("told", operator.get_username())
    page = operator_client.get(session.get_absolute_url()).content.decode()
    assert "Leave db alone." in page


def test_a_session_that_has_ended_is_not_told_anything(operator_client, failed):
    url = address("tell_session", failed)

    assert url not in operator_client.get(failed.get_absolute_url()).content.decode()
    operator_client.post(url, {"text": "Leave db alone."})
    assert not failed.events.exists()
