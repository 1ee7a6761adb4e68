"""Actions on a session in the admin, with their text."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.urls import reverse
from django_q.models import OrmQ

from sessions_app.models import Approval, Session
from tests.factories import CycleFactory, SessionFactory, user_with

# Every page names the CLI, so there is one to name.
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fake_cli")]
LIST = "admin:sessions_app_session_changelist"
Status, Purpose = Session.Status, Session.Purpose


def act(client, action: str, *sessions: Session, text: str = "Why?") -> str:
    form = {"action": action, "_selected_action": [row.pk for row in sessions], "request": text}
    return client.post(reverse(LIST), form, follow=True).content.decode()


def queued() -> list[Session]:
    return list(Session.objects.filter(status=Status.QUEUED))


@pytest.mark.parametrize(
    ("action", "purpose", "request_text"),
    [
        ("follow_up", Purpose.FOLLOW_UP, "Why?"),
        ("fork", Purpose.FORK, "Why?"),
        ("retry", Purpose.RETRY, ""),
        ("escalate", Purpose.TIER, "Why?"),
    ],
)
def test_an_action_enqueues_a_session_with_its_text(
    operator_client, operator, action, purpose, request_text
):
    session = SessionFactory(failed=True)

    page = act(operator_client, action, session)

    (run,) = queued()
    assert (run.purpose, run.request, run.requested_by) == (purpose, request_text, operator)
    assert f"Session {run.pk} is queued." in page
    assert OrmQ.objects.count() == 1


def test_an_action_applies_to_each_chosen_session(operator_client):
    fine, busy = SessionFactory(), SessionFactory(cycle=CycleFactory(running=True))

    page = act(operator_client, "follow_up", fine, busy)

    assert [run.parent_session for run in queued()] == [fine]
    assert "is still running; wait for it" in page


@pytest.mark.parametrize("action", ["follow_up", "fork", "escalate"])
def test_action_without_text_is_refused(operator_client, action):
    page = act(operator_client, action, SessionFactory(), text="")

    assert "Say " in page
    assert queued() == []


def test_list_has_a_field_for_the_text(operator_client):
    SessionFactory()

    page = operator_client.get(reverse(LIST)).content.decode()

    assert 'name="request"' in page


def test_sessions_cannot_be_changed(operator_client):
    session = SessionFactory()
    url = reverse("admin:sessions_app_session_change", args=[session.pk])

    assert operator_client.post(url, {"status": "failed"}).status_code == 403
    assert "delete_selected" not in operator_client.get(reverse(LIST)).content.decode()


def test_an_account_without_rights_cannot_act(client):
    session = SessionFactory()
    client.force_login(user_with("", is_staff=True))

    act(client, "follow_up", session)

    assert queued() == []


@pytest.mark.parametrize("action", ["follow_up", "fork", "retry", "escalate", "stop", "expire"])
def test_a_viewer_cannot_start_anything(client, action):
    session = SessionFactory(failed=True, tier=2)
    reader = user_with("viewer", is_staff=True)
    allowed = Permission.objects.filter(codename="view_session")
    reader.user_permissions.set(allowed)
    client.force_login(reader)

    act(client, action, session)

    assert queued() == []


def test_a_running_session_is_asked_to_stop(operator_client, operator):
    session = SessionFactory(running=True)

    page = act(operator_client, "stop", session)

    session.refresh_from_db()
    assert (session.stop_cause, session.stop_requested) == ("person", operator.username)
    assert f"Session {session.pk} is being stopped." in page


def test_a_finished_session_cannot_be_stopped(operator_client):
    session = SessionFactory()

    assert f"Session {session.pk} is not running." in act(operator_client, "stop", session)


@pytest.mark.parametrize("status", [Status.QUEUED, Status.INTERRUPTED])
def test_unfinished_session_can_be_expired(operator_client, operator, status):
    session = SessionFactory(cycle=CycleFactory(running=True), status=status, finished_at=None)

    page = act(operator_client, "expire", session)

    session.refresh_from_db()
    assert session.status == Status.EXPIRED
    assert f"Session {session.pk} has expired." in page


def test_expiring_a_queued_session_ends_its_cycle(operator_client, operator):
    session = SessionFactory(cycle=CycleFactory(running=True), status=Status.QUEUED)

    act(operator_client, "expire", session)

    session.cycle.refresh_from_db()
    assert session.cycle.outcome_reason == f"expired by {operator.username}"


def test_completed_session_cannot_be_expired(operator_client):
    session = SessionFactory()

    page = act(operator_client, "expire", session)

    assert "only a queued or interrupted session can expire" in page
    session.refresh_from_db()
    assert session.status == Status.COMPLETED


@pytest.mark.parametrize(
    ("action", "status", "said"),
    [
        ("stop", Status.RUNNING, "Asked to stop."),
        ("expire", Status.INTERRUPTED, "Expired."),
        ("retry", Status.FAILED, "retry: session"),
    ],
)
def test_action_of_an_operator_is_logged(operator_client, operator, action, status, said):
    running = status == Status.RUNNING
    session = SessionFactory(status=status, cycle=CycleFactory(running=running))

    act(operator_client, action, session)

    entry = LogEntry.objects.get()
    assert (entry.user, entry.object_id) == (operator, str(session.pk))
    assert entry.change_message.startswith(said)


def test_refused_action_is_not_logged(operator_client):
    act(operator_client, "expire", SessionFactory())

    assert not LogEntry.objects.exists()


def test_a_withheld_tier_is_allowed_once_for_an_amount(operator_client, operator):
    withheld = SessionFactory(cycle=CycleFactory(max_tier=1))
    form = {"action": "allow_once", "_selected_action": [withheld.pk], "budget": "0.75"}

    operator_client.post(reverse(LIST), form)

    (run,) = queued()
    approval = Approval.objects.get()
    assert (run.tier, run.allowed_once, approval.session) == (2, True, run)
    assert (approval.budget_usd, approval.decided_by) == (Decimal("0.75"), operator)
    assert approval.way == "admin"
    operator_client.post(reverse(LIST), form)
    assert len(queued()) == 1
