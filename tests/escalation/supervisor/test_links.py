"""The approval link in a message: for one account, without a login, after its page was shown."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.core import signing
from django.test import Client
from django.utils import timezone
from django_q.models import OrmQ

from escalation.supervisor.approvals import SALT, link_for
from sessions_app.models import Approval, Session
from tests.factories import ApprovalFactory, user_with

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fake_cli")]
State = Approval.State
YES, NO = {"answer": "approve"}, {"answer": "reject", "note": "Not now."}


@pytest.fixture
def approver() -> User:
    return user_with("approver", username="grace")


@pytest.fixture
def approval() -> Approval:
    return ApprovalFactory(plan="Move the logs away.")


def test_opening_the_link_shows_a_page_and_changes_nothing(client, approval, approver):
    """As often as a mail scanner likes."""
    link = link_for(approval, approver)
    for _ in range(3):
        page = client.get(link)
        assert client.head(link).status_code == 200

    text = page.content.decode()
    assert "May Tier 3 start?" in text
    assert "Move the logs away." in text
    assert "Answer as grace" in text
    assert Approval.objects.get().state == State.WAITING
    assert not OrmQ.objects.exists()
    assert "no-store" in page["Cache-Control"]


def test_the_form_answers_as_the_account_without_a_login(client, approval, approver):
    page = client.post(link_for(approval, approver), YES)

    approval.refresh_from_db()
    assert "Approved: Tier 3 is queued." in page.content.decode()
    assert (approval.state, approval.decided_by) == (State.APPROVED, approver)
    assert OrmQ.objects.count() == 1
    assert "_auth_user_id" not in client.session, "nobody is logged in by a link"


def test_the_form_rejects_with_a_note(client, approval, approver):
    client.post(link_for(approval, approver), NO)

    approval.refresh_from_db()
    assert (approval.state, approval.note) == (State.REJECTED, "Not now.")


def test_the_link_is_valid_for_one_answer(client, approval, approver):
    link = link_for(approval, approver)
    client.post(link, YES)

    page = client.post(link, NO).content.decode()

    assert "was approved already by grace" in page
    assert Approval.objects.get().state == State.APPROVED


def test_the_link_expires_with_the_approval(client, approval, approver):
    link = link_for(approval, approver)
    Approval.objects.update(expires_at=timezone.now() - timedelta(seconds=1))

    page = client.post(link, YES).content.decode()

    assert "has expired: nobody answered in time" in page
    assert Session.objects.get().status == Session.Status.EXPIRED


@pytest.mark.parametrize("ended", [{"state": State.APPROVED}, {"expires_at": timezone.now()}])
def test_an_expired_link_does_not_show_the_request(client, approval, approver, ended):
    """It may lie in a mailbox for years, and asks for no login."""
    Approval.objects.update(**ended)

    page = client.get(link_for(approval, approver)).content.decode()

    assert "Move the logs away." not in page
    assert f"Approval {approval.pk} " in page
    assert "to see what it was about" in page


@pytest.mark.parametrize("change", [{"is_active": False}, {"groups": ()}])
def test_an_account_without_the_right_is_refused(client, approval, approver, change):
    link = link_for(approval, approver)
    if "groups" in change:
        approver.groups.clear()
    else:
        User.objects.filter(pk=approver.pk).update(**change)

    page = client.post(link, YES).content.decode()

    assert Approval.objects.get().state == State.WAITING
    assert "Approve</button>" not in page
    assert "Move the logs away." not in page


def test_a_form_from_another_site_is_refused(approval, approver):
    strict = Client(enforce_csrf_checks=True)

    assert strict.post(link_for(approval, approver), YES).status_code == 403
    assert Approval.objects.get().state == State.WAITING


@pytest.mark.parametrize("answer", [{}, {"answer": "perhaps"}])
def test_an_unknown_answer_changes_nothing(client, approval, approver, answer):
    page = client.post(link_for(approval, approver), answer).content.decode()

    assert "Nothing was answered" in page
    assert Approval.objects.get().state == State.WAITING


def forged(approval: Approval, user: User) -> list[str]:
    link = link_for(approval, user)
    token = link.rstrip("/").rpartition("/")[2]
    return [
        "x",
        token[:-2],
        f"{token}x",
        token * 5,
        signing.dumps({"approval": approval.pk, "user": user.pk}, salt="another"),
        signing.dumps({"approval": 10**6, "user": user.pk}, salt=SALT),
        signing.dumps({"approval": approval.pk, "user": 10**6}, salt=SALT),
        signing.dumps({"approval": approval.pk}, salt=SALT),
        signing.dumps([1, 2], salt=SALT),
    ]


@pytest.mark.parametrize("number", range(9))
def test_an_invalid_link_is_not_found(client, approval, approver, number):
    token = forged(approval, approver)[number]

    for response in (
        client.get(f"/approvals/link/{token}/"),
        client.post(f"/approvals/link/{token}/", YES),
    ):
        assert response.status_code == 404
        assert "There is nothing at this address" in response.content.decode()
    assert Approval.objects.get().state == State.WAITING
