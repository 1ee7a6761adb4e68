"""The page of API tokens: displayed once, own ones only, revoked at once."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from sessions_app.access import tokens
from sessions_app.models import ApiToken
from tests.factories import ApiTokenFactory, SourceFactory, user_with

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fake_cli")]


def logged_in(role: str) -> Client:
    client = Client()
    client.force_login(user_with(role))
    return client


def test_a_new_token_is_shown_once_and_can_be_revoked():
    client = logged_in("operator")
    answer = client.post(
        reverse("web:add_token"), {"name": "ci", "scopes": ["read", "run"], "expires": "90"}
    )
    [token] = set(re.findall(r"cops_[A-Za-z0-9]{38}", answer.content.decode()))
    row = ApiToken.objects.get()

    assert answer["Cache-Control"] == "no-store"
    assert row.expires_at is not None
    assert tokens.authenticated(token, timezone.now()) == row
    assert token not in client.get(reverse("web:tokens")).content.decode()

    revoke = reverse("web:revoke_token", args=[row.pk])
    client.post(revoke)
    assert tokens.authenticated(token, timezone.now()) == row
    client.post(revoke, {"confirm": "on"})
    assert tokens.authenticated(token, timezone.now()) is None


def test_the_form_offers_what_the_account_may_and_refuses_the_rest():
    SourceFactory(name="grafana")
    client = logged_in("viewer")

    page = client.get(reverse("web:tokens"))
    refused = client.post(reverse("web:add_token"), {"name": "ci", "scopes": ["approve"]})

    assert [value for value, _ in page.context["form"].fields["scopes"].choices] == ["read"]
    assert refused.status_code == 422
    assert not ApiToken.objects.exists()


def test_only_administrators_see_and_revoke_tokens_of_others():
    row = ApiTokenFactory(name="of-ann")
    revoke = reverse("web:revoke_token", args=[row.pk])
    other, admin = logged_in("approver"), logged_in("admin")

    assert "of-ann" not in other.get(reverse("web:tokens")).content.decode()
    assert other.post(revoke, {"confirm": "on"}).status_code == 404
    assert "of-ann" in admin.get(reverse("web:tokens")).content.decode()
    admin.post(revoke, {"confirm": "on"})
    row.refresh_from_db()
    assert row.revoked_at is not None
