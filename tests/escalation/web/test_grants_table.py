"""The doors of a watch, tier by tier."""

from __future__ import annotations

import html

import pytest
from django.core.exceptions import ValidationError
from django.urls import reverse

from escalation.gate.doors import MEANING, NAMES
from escalation.web import doors_table
from escalation.web.doors_table import table_of
from sessions_app.models import door_words
from sessions_app.models.door_words import problems_with_doors, read_door_words_by
from tests.factories import WatchFactory

OPEN = [("docker",), ("docker", "host", "write:/srv/app"), ("host", "write:/srv/app")]


def test_every_door_is_in_the_table_and_paths_after_them():
    rows = table_of(OPEN)

    assert [row.door for row in rows] == [*NAMES, "write:/srv/app"]
    assert [row.meaning for row in rows] == [*MEANING.values(), "writing in /srv/app"]


def test_each_tier_is_held_against_the_one_below():
    rows = {row.door: row.cells for row in table_of(OPEN)}

    assert rows["host"] == ((False, ""), (True, "opened"), (True, ""))
    assert rows["docker"] == ((True, ""), (True, ""), (False, "closed"))
    assert rows["ssh"] == ((False, ""),) * 3


@pytest.mark.django_db
def test_the_watchs_form_shows_the_table(operator_client, fake_cli, monkeypatch):
    monkeypatch.setattr(doors_table, "open_at", lambda tier, words: OPEN[tier - 1])
    url = reverse("admin:sessions_app_watch_change", args=[WatchFactory().pk])

    shown = html.unescape(operator_client.get(url).content.decode())
    added = operator_client.get(reverse("admin:sessions_app_watch_add")).content.decode()

    assert "<code>write:/srv/app</code>" in shown
    assert "open <strong>(opened here)</strong>" in shown
    assert "Doors that runs of this watch may open" in added


def test_a_watch_with_words_that_are_no_doors_is_not_valid(monkeypatch, workdir):
    monkeypatch.setattr(door_words, "_readers", [])
    read_door_words_by(lambda words: [f"`{words}` is no door"] if words == "dokcer" else [])

    with pytest.raises(ValidationError, match="`dokcer` is no door"):
        WatchFactory.build(workdir=str(workdir), doors="dokcer").clean()
    WatchFactory.build(workdir=str(workdir), doors="docker").clean()
    assert problems_with_doors("dokcer") == ["`dokcer` is no door"]
