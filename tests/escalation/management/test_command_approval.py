"""`claudeops approval`: list, show, approve and reject."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import call_command

from escalation.errors import RefusalCode
from sessions_app.models import Approval
from tests.escalation.refusals import command_refused
from tests.factories import ApprovalFactory, SessionFactory, user_with

pytestmark = pytest.mark.django_db
State = Approval.State


def said_by(*arguments: str) -> str:
    said = StringIO()
    call_command("approval", *arguments, stdout=said)
    return said.getvalue()


@pytest.fixture(autouse=True)
def grace():
    return user_with("approver", username="grace")


def test_the_list_shows_waiting_approvals():
    ApprovalFactory(of_a_command=True)
    ApprovalFactory(of_a_command=True, command="touch over", state=State.REJECTED)

    assert "docker restart web" in said_by("list")
    assert "touch over" not in said_by("list")
    assert "touch over" in said_by("list", "--all")


def test_an_empty_list_says_so():
    assert "Nothing waits for a person." in said_by("list")


def test_an_approval_is_shown_with_reason_grants_and_plan():
    approval = ApprovalFactory(of_a_command=True, why="By rule.", plan="I restart it.")

    said = said_by("show", str(approval.pk))

    assert all(words in said for words in ("docker restart web", "By rule.", "I restart it."))
    assert json.loads(said_by("show", str(approval.pk), "--json"))["grants"] == ["docker"]
    assert json.loads(said_by("list", "--json"))[0]["id"] == approval.pk


def test_what_was_said_is_a_plan_only_if_a_plan_session_made_it(operator_client):
    for status, is_plan in ((None, False), ("failed", False), ("completed", True)):
        planning = SessionFactory(purpose="plan", status=status) if status else None
        approval = ApprovalFactory(plan="Disk is full.", plan_run=planning)

        lines = said_by("show", str(approval.pk)).splitlines()
        page = operator_client.get(approval.get_absolute_url()).content.decode()

        assert any(line.startswith("Plan:") for line in lines) is is_plan
        assert ("<h2>The plan</h2>" in page) is is_plan


@pytest.mark.parametrize(
    ("verb", "state"), [("approve", State.APPROVED), ("reject", State.REJECTED)]
)
def test_an_approval_is_decided_as_an_account(verb, state, grace):
    approval = ApprovalFactory()

    said_by(verb, str(approval.pk), "--note", "Seen.", "--as", "grace")

    approval.refresh_from_db()
    assert (approval.state, approval.decided_by, approval.note) == (state, grace, "Seen.")


def test_prints_the_decision_as_json():
    said = said_by("approve", str(ApprovalFactory().pk), "--as", "grace", "--json")

    assert json.loads(said)["decided_by"] == "grace"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("approve", "NUMBER", "--as", "viewer"), RefusalCode.NOT_PERMITTED),
        (("approve", "NUMBER", "--as", "nobody-here"), RefusalCode.ACCOUNT_MISSING),
        (("reject", "NUMBER", "--as", "grace"), RefusalCode.TEXT_MISSING),
        (("approve", "999", "--as", "grace"), RefusalCode.NOT_FOUND),
        (("show", "abc"), RefusalCode.NOT_FOUND),
    ],
)
def test_an_invalid_answer_is_refused_and_the_approval_still_waits(arguments, code):
    user_with("viewer", username="viewer")
    number = str(ApprovalFactory().pk)

    with command_refused(code):
        said_by(*(number if word == "NUMBER" else word for word in arguments))

    assert Approval.objects.get().state == State.WAITING
