"""`claudeops token`: made and printed once, listed, revoked."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.utils import timezone

from escalation.errors import RefusalCode
from sessions_app.access import tokens
from sessions_app.models import ApiToken
from tests.escalation.refusals import command_refused
from tests.factories import user_with

pytestmark = pytest.mark.django_db


@pytest.fixture
def said(capsys):
    user_with("operator", username="ann")

    def run(*words: str) -> str:
        call_command("token", *words)
        return capsys.readouterr().out

    return run


def test_a_token_is_printed_once_and_works(said):
    out = said("create", "ci", "--scope", "read,run", "--expires", "90d", "--as", "ann", "--json")
    made = json.loads(out)

    row = tokens.authenticated(made["token"], timezone.now())
    assert row is not None
    assert (row.scope_list, row.user.username) == (["read", "run"], "ann")
    assert row.expires_at is not None
    assert timedelta(days=89) < row.expires_at - timezone.now() <= timedelta(days=90)
    listed = said("list", "--json")
    assert made["token"] not in listed
    assert [one["name"] for one in json.loads(listed)] == ["ci"]


def test_a_revoked_token_is_not_listed(said):
    token = said("create", "ci", "--scope", "read", "--as", "ann").split()[0]

    said("revoke", "ci", "--as", "ann")

    assert tokens.authenticated(token, timezone.now()) is None
    assert "token create" in said("list")


def test_wrong_scopes_times_and_names_are_refused(said):
    for words, code in (
        (("create", "ci", "--scope", "approve", "--as", "ann"), RefusalCode.INVALID_ARGUMENTS),
        (("create", "ci", "--scope", "", "--as", "ann"), RefusalCode.INVALID_ARGUMENTS),
        (
            ("create", "ci", "--scope", "read", "--expires", "soon", "--as", "ann"),
            RefusalCode.INVALID_ARGUMENTS,
        ),
        (("create", "ci", "--scope", "read", "--as", "bob"), RefusalCode.ACCOUNT_MISSING),
        (("revoke", "ci", "--as", "ann"), RefusalCode.NOT_FOUND),
    ):
        with command_refused(code):
            said(*words)
    assert not ApiToken.objects.exists()
