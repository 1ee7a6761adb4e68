"""Tokens of the API: form, scopes, validity and rate limit."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.utils import timezone

from sessions_app.access import tokens
from sessions_app.access.roles import Right, rights_of
from sessions_app.models import ApiToken
from sessions_app.redaction.redact import redacted
from tests.factories import SourceFactory, user_with

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 18, 12, 0, 5, tzinfo=UTC)


@pytest.fixture(autouse=True)
def fresh_batches():
    tokens.forget_batches()
    yield
    tokens.forget_batches()


def make(role="operator", scopes=("read",), **facts):
    user = facts.pop("user", None) or user_with(role)
    return tokens.create(user, facts.pop("name", "ci"), list(scopes), by=user, **facts)


def test_a_token_has_a_checksum_is_stored_as_a_hash_and_is_redacted():
    made = make()

    assert tokens.is_well_formed(made.token)
    assert not tokens.is_well_formed(made.token[:-1] + ("a" if made.token[-1] != "a" else "b"))
    assert made.token not in str(ApiToken.objects.values().get())
    assert made.token.startswith(made.row.prefix)
    assert redacted(f"using {made.token} now") == "using [redacted: claude ops token] now"


def test_a_token_may_what_both_its_scopes_and_its_owner_may():
    for role, scopes, expected in (
        ("viewer", ["read"], {Right.SEE}),
        ("operator", ["read"], {Right.SEE, Right.SEE_OUTPUT}),
        ("approver", ["approve"], {Right.APPROVE}),
        ("admin", ["configure"], {Right.CHANGE_WATCHES, Right.MANAGE_KEYS}),
    ):
        found = tokens.authenticated(make(role, scopes).token, timezone.now())
        assert found is not None
        assert rights_of(found.user) == expected, (role, scopes)


def test_a_demoted_owner_takes_the_rights_from_the_token():
    made = make("approver", ["read", "approve"])
    made.row.user.groups.clear()

    found = tokens.authenticated(made.token, timezone.now())

    assert found is not None
    assert rights_of(found.user) == frozenset()


def test_expired_revoked_and_disabled_tokens_are_not_valid():
    expired = make(expires_in=timedelta(minutes=1))
    revoked, disabled, unknown = make(), make(), tokens.new_token()
    tokens.revoke(revoked.row, by=None)
    disabled.row.user.is_active = False
    disabled.row.user.save()

    assert tokens.authenticated(expired.token, timezone.now()) is not None
    later = timezone.now() + timedelta(minutes=2)
    for token in (expired.token, revoked.token, disabled.token, unknown, "", "cops_", "x" * 999):
        assert tokens.authenticated(token, later) is None


@pytest.mark.parametrize(
    ("role", "scopes"),
    [
        ("viewer", ["run"]),
        ("operator", ["approve"]),
        ("admin", []),
        ("admin", ["everything"]),
        ("admin", ["alerts:nothing"]),
        ("viewer", ["alerts:grafana"]),
    ],
)
def test_scopes_beyond_the_owner_or_unknown_are_refused(role, scopes):
    SourceFactory(name="grafana")

    with pytest.raises(tokens.TokenRefused):
        make(role, scopes)
    assert not ApiToken.objects.exists()


def test_a_name_is_free_again_after_revocation():
    first = make()
    with pytest.raises(tokens.TokenRefused):
        make(user=first.row.user)

    tokens.revoke(first.row, by=first.row.user)

    assert make(user=first.row.user).row.pk != first.row.pk


def test_alerts_are_delivered_to_the_named_source_alone():
    SourceFactory(name="grafana")
    row = make("operator", ["alerts:grafana"]).row

    assert tokens.may_deliver(row, "grafana")
    assert not tokens.may_deliver(row, "other")
    row.user.groups.clear()
    assert not tokens.may_deliver(row, "grafana")


def test_requests_over_the_limit_wait_for_the_next_minute(settings):
    settings.CLAUDEOPS_API_RATE = 25
    row = make().row

    found = [tokens.take(row, NOW) for _ in range(26)]

    assert [one.remaining for one in found[:25]] == list(range(24, -1, -1))
    assert [one.is_exceeded for one in found] == [False] * 25 + [True]
    assert found[25].headers()["Retry-After"] == "56"
    assert not tokens.take(row, NOW + timedelta(minutes=1)).is_exceeded
    row.refresh_from_db()
    assert row.last_used_at == NOW + timedelta(minutes=1)


def test_several_processes_share_one_limit(settings):
    settings.CLAUDEOPS_API_RATE = 50
    row, taken = make().row, 0
    for _process in range(10):
        tokens.forget_batches()
        taken += sum(not tokens.take(row, NOW).is_exceeded for _ in range(10))

    assert taken <= 50


@pytest.mark.django_db(transaction=True)
def test_parallel_requests_take_no_more_than_the_limit(settings):
    settings.CLAUDEOPS_API_RATE = 30
    row, allowed = make().row, []

    def ask():
        try:
            allowed.extend(not tokens.take(row, NOW).is_exceeded for _ in range(10))
        finally:
            connection.close()

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(allowed) == 30
