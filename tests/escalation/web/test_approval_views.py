"""The pages of approvals and their actions."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django_q.models import OrmQ

from sessions_app.models import Approval
from tests.factories import ApprovalFactory, IncidentFactory, user_with

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fake_cli")]
State = Approval.State


def client_of(role: str) -> Client:
    client = Client()
    client.force_login(user_with(role))
    return client


def page_of(client: Client, approval: Approval) -> str:
    return client.get(approval.get_absolute_url()).content.decode()


def test_the_page_shows_command_reason_plan_and_incident():
    approval = ApprovalFactory(
        of_a_command=True, why="Because of the rule.", plan="I restart it.", cwd="/srv/shop"
    )
    incident = IncidentFactory(title="web is down")
    incident.cycles.add(approval.session.cycle)

    page = page_of(client_of("approver"), approval)

    shown = ("docker restart web", "Because of the rule.", "I restart it.", "/srv/shop", "docker")
    assert all(words in page for words in (*shown, "web is down", "Time left"))
    assert f"Session #{approval.session_id}" in page


def test_hostile_text_in_a_command_is_escaped():
    approval = ApprovalFactory(of_a_command=True, command="echo '<script>alert(1)</script>'")

    page = page_of(client_of("approver"), approval)

    assert "<script>alert" not in page


def test_an_operator_sees_the_approval_without_a_form():
    page = page_of(client_of("operator"), ApprovalFactory())

    assert "takes the role approver" in page
    assert "Reject" not in page


def test_waiting_approvals_are_listed_before_answered_ones():
    ApprovalFactory(of_a_command=True, command="touch waits")
    ApprovalFactory(of_a_command=True, command="touch over", state=State.REJECTED)

    page = client_of("operator").get(reverse("web:approvals")).content.decode()

    assert page.index("touch waits") < page.index("touch over")


def test_an_empty_page_explains_approvals():
    page = client_of("operator").get(reverse("web:approvals")).content.decode()

    assert "Nothing waits." in page
    assert "Nobody has been asked yet." in page


@pytest.mark.parametrize(("role", "is_shown"), [("viewer", False), ("operator", True)])
def test_the_overview_shows_waiting_commands_only_to_roles_that_may_see_output(role, is_shown):
    ApprovalFactory(of_a_command=True)

    page = client_of(role).get("/").content.decode()

    assert "may a command of Tier 2 run?" in page
    assert 'id="count-approvals"' in page or not is_shown
    assert ("docker restart web" in page) is is_shown


@pytest.mark.parametrize("kind", ["tier", "command"])
def test_the_page_of_the_session_says_that_it_waits_for_approval(kind):
    approval = ApprovalFactory(of_a_command=kind == "command")

    page = client_of("operator").get(approval.session.get_absolute_url()).content.decode()

    assert "It waits for a person." in page
    assert approval.get_absolute_url() in page


def test_approving_enqueues_the_tier():
    approval = ApprovalFactory()
    url = reverse("web:approve", args=[approval.pk])

    page = client_of("approver").post(url, {"note": "Go."}, follow=True).content.decode()

    assert "Approved: Tier 3 is queued." in page
    assert OrmQ.objects.count() == 1


def test_rejecting_without_a_note_is_refused():
    approval = ApprovalFactory()
    url = reverse("web:reject", args=[approval.pk])

    page = client_of("approver").post(url, follow=True).content.decode()

    assert "Give a reason for the rejection" in page
    assert Approval.objects.get().state == State.WAITING


def test_a_late_answer_is_refused():
    approval = ApprovalFactory(expires_at=timezone.now() - timedelta(seconds=1))
    url = reverse("web:approve", args=[approval.pk])

    page = client_of("approver").post(url, follow=True).content.decode()

    assert "has expired: nobody answered in time" in page
    assert not OrmQ.objects.exists()


@pytest.mark.parametrize("length", [2_000, 999_000])
def test_a_note_that_is_too_long_is_refused(length):
    approval = ApprovalFactory()
    url = reverse("web:approve", args=[approval.pk])

    page = client_of("approver").post(url, {"note": "x" * length}, follow=True).content.decode()

    assert "A note has at most 1000 characters" in page
    assert Approval.objects.get().state == State.WAITING


@pytest.mark.parametrize("action", ["approve", "reject"])
def test_the_admin_lets_an_approver_answer(action):
    approval = ApprovalFactory()
    form = {"action": action, "_selected_action": [approval.pk], "note": "Seen."}
    url = reverse("admin:sessions_app_approval_changelist")

    page = client_of("approver").post(url, form, follow=True).content.decode()

    approval.refresh_from_db()
    assert approval.get_state_display() in page
    assert approval.state in {State.APPROVED, State.REJECTED}


def test_the_admin_lets_no_operator_answer():
    approval = ApprovalFactory()
    form = {"action": "approve", "_selected_action": [approval.pk]}

    client_of("operator").post(reverse("admin:sessions_app_approval_changelist"), form)

    assert Approval.objects.get().state == State.WAITING
