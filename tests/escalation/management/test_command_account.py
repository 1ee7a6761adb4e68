"""`claudeops account`."""

from __future__ import annotations

import io
import json

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command

from escalation.errors import RefusalCode
from escalation.management.arguments import account_named
from sessions_app.access.roles import Right, may
from tests.escalation.refusals import command_refused
from tests.factories import user_with

pytestmark = pytest.mark.django_db


def account(*words: str) -> str:
    out = io.StringIO()
    call_command("account", *words, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def test_an_added_account_has_its_role_and_the_printed_password():
    printed = account("add", "ada", "--role", "operator")

    ada = User.objects.get(username="ada")
    assert ada.check_password(printed.split()[-1])
    assert (may(ada, Right.RUN), may(ada, Right.APPROVE)) == (True, False)


def test_a_password_from_standard_input_is_checked_and_not_printed(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("123\nfour words for ada\n"))
    with command_refused(RefusalCode.INVALID_ARGUMENTS):
        account("add", "ada", "--password-stdin")
    assert not User.objects.filter(username="ada").exists()

    printed = account("add", "ada", "--password-stdin", "--json")

    assert json.loads(printed) == {
        "name": "ada",
        "role": "viewer",
        "active": True,
        "last_seen": None,
        "last_login": None,
    }
    assert User.objects.get(username="ada").check_password("four words for ada")


def test_role_password_and_login_of_an_account_change():
    user_with("admin", username="root")
    user_with("viewer", username="ada")

    account("role", "ada", "approver")
    made = account("password", "ada").split()[-1]
    account("disable", "ada")

    ada = User.objects.get(username="ada")
    assert [group.name for group in ada.groups.all()] == ["approver"]
    assert ada.check_password(made)
    assert not ada.is_active
    account("enable", "ada")
    listed = json.loads(account("list", "--json"))
    assert [(row["name"], row["role"], row["active"]) for row in listed] == [
        ("ada", "approver", True),
        ("root", "admin", True),
    ]


def test_roles_change_where_nobody_is_an_administrator():
    user_with("viewer", username="ada")

    account("role", "ada", "approver")
    account("disable", "ada")

    assert not User.objects.get(username="ada").is_active


def test_refused_are_unknown_names_taken_names_and_the_last_administrator():
    user_with("admin", username="root")
    with command_refused(RefusalCode.NOT_FOUND):
        account("role", "nobody", "viewer")
    with command_refused(RefusalCode.RECORD_EXISTS):
        account("add", "root")
    with command_refused(RefusalCode.INVALID_ARGUMENTS):
        account("add", "two words")
    for words in (("disable", "root"), ("role", "root", "viewer")):
        with command_refused(RefusalCode.NOT_PERMITTED):
            account(*words)
    assert may(User.objects.get(username="root"), Right.MANAGE_KEYS)


def test_the_only_account_acts_without_being_named():
    only = user_with("admin", username="root-of-the-lab")
    assert account_named(None) == only

    user_with("viewer", username="ada")
    with command_refused(RefusalCode.ACCOUNT_MISSING):
        account_named(None)


def test_an_invitation_makes_an_account_and_prints_its_link():
    printed = account("invite", "ada", "--role", "operator")
    again = account("invite", "ada")

    ada = User.objects.get(username="ada")
    assert (ada.has_usable_password(), may(ada, Right.RUN)) == (False, True)
    assert "/invited/" in printed
    assert printed.split()[-1] != again.split()[-1]
