"""The board: one tile for each watch, renewed by itself, honest about old data."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from sessions_app.models import WorkerHeartbeat
from tests.factories import CycleFactory, IncidentFactory, ProbeFactory, WatchFactory, user_with

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fake_cli")]
HTMX = {"HX-Request": "true"}


def tiles(client: Client) -> dict[str, tuple[str, str]]:
    found = client.get("/board/").context["tiles"]
    return {tile.card.watch.name: (tile.state, tile.tone) for tile in found}


@pytest.fixture
def viewer() -> Client:
    client = Client()
    client.force_login(user_with("viewer"))
    return client


def test_each_watch_has_a_tile_with_its_state(viewer):
    ended = {"state": "finished", "finished_at": timezone.now()}
    CycleFactory(watch=WatchFactory(name="well"), outcome="healthy", **ended)
    IncidentFactory(watch=WatchFactory(name="broken"), title="web is down", severity=3)
    ProbeFactory(watch=WatchFactory(name="probed"), name="web-http", state="down")
    WatchFactory(name="resting", enabled=False)
    CycleFactory(watch=WatchFactory(name="busy"), running=True)
    IncidentFactory(watch=None, drill="three-tiers", title="in play")

    found = tiles(viewer)

    assert found["well"] == ("healthy", "good")
    assert found["broken"] == ("critical", "bad")
    assert found["probed"] == ("probe down", "bad")
    assert found["resting"] == ("paused", "quiet")
    assert found["busy"] == ("running", "live")
    page = viewer.get("/board/").content.decode()
    assert "web is down" in page
    assert "in play" not in page


def test_it_is_sent_again_only_after_a_change_or_a_minute(viewer, monkeypatch):
    watch = WatchFactory(name="shop")
    version = viewer.get("/board/").context["version"]
    address = f"/board/?version={version}"
    frozen = timezone.now()
    monkeypatch.setattr("escalation.web.board.timezone.now", lambda: frozen)
    version = viewer.get("/board/").context["version"]
    address = f"/board/?version={version}"
    assert viewer.get(address, headers=HTMX).status_code == 204

    IncidentFactory(watch=watch, title="web is down").events.create(kind="opened")
    changed = viewer.get(address, headers=HTMX)
    assert changed.status_code == 200
    assert changed.content.decode().lstrip().startswith('<div id="board"')
    version = changed.context["version"]
    monkeypatch.setattr("escalation.web.board.timezone.now", lambda: frozen + timedelta(minutes=1))
    assert viewer.get(f"/board/?version={version}", headers=HTMX).status_code == 200


def test_a_silent_worker_is_the_first_thing_said(viewer):
    assert "No worker is running" in viewer.get("/board/").content.decode()
    WorkerHeartbeat.objects.create(host="here", pid=1)
    assert "No worker is running" not in viewer.get("/board/").content.decode()


@pytest.mark.parametrize("count", [0, 12, 40])
def test_all_watches_fit_by_their_number(count, viewer):
    for number in range(count):
        WatchFactory(name=f"watch-{number}")

    answer = viewer.get("/board/")

    assert len(answer.context["tiles"]) == count
    assert answer.context["size"] == {0: "few", 12: "some", 40: "many"}[count]
