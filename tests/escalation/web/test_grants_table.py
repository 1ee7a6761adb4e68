"""Grants of a watch by tier."""

from __future__ import annotations

import html

import pytest
from django.core.exceptions import ValidationError
from django.urls import reverse

from escalation.command_policy.grants import MEANING, NAMES
from escalation.web import watches
from escalation.web.watches import table_of
from tests.factories import WatchFactory

OPEN = [("docker",), ("docker", "host", "write:/srv/app"), ("host", "write:/srv/app")]


def test_every_grant_is_in_the_table_and_paths_after_them():
    rows = table_of(OPEN)

    assert [row.grant for row in rows] == [*NAMES, "write:/srv/app"]
    assert [row.meaning for row in rows] == [*MEANING.values(), "writing in /srv/app"]


def test_each_tier_is_compared_with_the_one_below():
    rows = {row.grant: row.cells for row in table_of(OPEN)}

    assert rows["host"] == ((False, ""), (True, "opened"), (True, ""))
    assert rows["docker"] == ((True, ""), (True, ""), (False, "closed"))
    assert rows["ssh"] == ((False, ""),) * 3


@pytest.mark.django_db
def test_the_form_of_the_watch_shows_the_table(operator_client, fake_cli, monkeypatch):
    monkeypatch.setattr(watches, "open_at", lambda tier, words: OPEN[tier - 1])
    url = reverse("admin:sessions_app_watch_change", args=[WatchFactory().pk])

    shown = html.unescape(operator_client.get(url).content.decode())
    added = operator_client.get(reverse("admin:sessions_app_watch_add")).content.decode()

    assert "<code>write:/srv/app</code>" in shown
    assert "open <strong>(opened here)</strong>" in shown
    assert "Grants that runs of this watch may open" in added


def test_a_watch_with_unknown_grants_is_invalid(workdir):
    with pytest.raises(ValidationError) as refused:
        WatchFactory.build(workdir=str(workdir), grants="dokcer").clean()

    assert list(refused.value.message_dict) == ["grants"]
    WatchFactory.build(workdir=str(workdir), grants="docker").clean()
