"""The page of changes: from the record, with results and how to reverse them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from escalation.web import changes
from escalation.web.changes import changes_of_cycle
from sessions_app.history.incidents import changes_of
from sessions_app.models import Change
from tests.factories import (
    ChangeFactory,
    CycleFactory,
    IncidentFactory,
    SessionFactory,
    WatchFactory,
    user_with,
)

pytestmark = pytest.mark.django_db
URL = "/changes/"


def edit(**facts: object) -> Change:
    found: Change = ChangeFactory(
        **{
            "kind": "edit",
            "service": "",
            "action": "edit /srv/a.conf",
            "command": "Edit /srv/a.conf",
            "path": "/srv/a.conf",
            "diff": "@@ -1 +1 @@\n-a\n+<b>",
            "exit_code": None,
            **facts,
        }
    )
    return found


def shown(client: Client, **query: Any) -> list[int]:
    response = client.get(URL, query)
    assert response.status_code == 200
    return [row.change.pk for row in response.context["list"].rows]


def test_a_command_is_shown_with_watch_tier_result_and_reversal(operator_client):
    change = ChangeFactory(action="docker stop web", exit_code=0, kind="other")

    page = operator_client.get(URL).content.decode()

    assert "docker stop web" in page
    assert f"{change.watch.name}, Tier 2" in page
    assert "exit code 0" in page
    assert "<code>docker start web</code>" in page
    assert change.session.get_absolute_url() in page


def test_a_failed_command_is_marked(operator_client):
    ChangeFactory(exit_code=3)

    assert "failed, exit code 3" in operator_client.get(URL).content.decode()


def test_an_edit_is_shown_as_a_diff_and_escaped(operator_client):
    edit()

    page = operator_client.get(URL).content.decode()

    assert '<span class="diff-removed">-a' in page
    assert '<span class="diff-added">+&lt;b&gt;' in page
    assert "patch -R" in page


def test_a_viewer_sees_changes_without_command_and_diff(client):
    edit()
    ChangeFactory(command="docker restart web # with more")
    client.force_login(user_with("viewer"))

    page = client.get(URL).content.decode()

    assert "edit /srv/a.conf" in page
    assert "diff-added" not in page
    assert "with more" not in page


def test_filters_combine_and_invalid_ones_are_ignored(operator_client):
    web = ChangeFactory()
    db = ChangeFactory(service="db", session=web.session)
    changed = edit(session=web.session)
    other = ChangeFactory()

    assert shown(operator_client) == [other.pk, changed.pk, db.pk, web.pk]
    assert shown(operator_client, watch=web.watch_id) == [changed.pk, db.pk, web.pk]
    assert shown(operator_client, watch=web.watch_id, service="Web") == [web.pk]
    assert shown(operator_client, kind="edit") == [changed.pk]
    assert shown(operator_client, kind="nonsense", watch="x", since="soon") == [
        *(other.pk, changed.pk, db.pk, web.pk)
    ]


def test_changes_are_filtered_by_day(operator_client):
    now = timezone.now()
    old = ChangeFactory(at=now - timedelta(days=9))
    mid = ChangeFactory(at=now - timedelta(days=4))
    new = ChangeFactory(at=now)
    days = {n: timezone.localdate(now - timedelta(days=n)).isoformat() for n in (9, 5, 3, 0)}

    assert shown(operator_client, since=days[5], until=days[3]) == [mid.pk]
    assert shown(operator_client, since=days[5]) == [new.pk, mid.pk]
    assert shown(operator_client, until=days[5]) == [old.pk]
    assert shown(operator_client, since=days[0]) == [new.pk]
    assert shown(operator_client, until="9999-12-31") == [new.pk, mid.pk, old.pk]


def test_drills_can_be_excluded(operator_client):
    real = ChangeFactory()
    drill = ChangeFactory(session=SessionFactory(drill=True, tier=2))

    assert shown(operator_client, drill="no") == [real.pk]
    assert shown(operator_client, drill="yes") == [drill.pk]


@pytest.mark.parametrize("query", ["", "&service=web", "&service=web&kind=restart"])
def test_every_change_is_on_exactly_one_page(operator_client, monkeypatch, query):
    monkeypatch.setattr(changes, "PER_PAGE", 2)
    made = [ChangeFactory().pk for _ in range(5)]
    seen, before = [], ""
    for _ in range(4):
        response = operator_client.get(f"{URL}?{before}{query}")
        listed = response.context["list"]
        seen += [row.change.pk for row in listed.rows]
        if listed.page.older is None:
            break
        before = f"before={listed.page.older}"

    assert seen == made[::-1]


def test_a_rare_match_is_found_page_by_page(operator_client, monkeypatch):
    monkeypatch.setattr(changes, "LOOKED_AT", 3)
    rare = ChangeFactory(service="rare")
    ChangeFactory.create_batch(6)

    page = operator_client.get(URL, {"service": "rare", "kind": "restart"})
    listed = page.context["list"]
    further = operator_client.get(
        URL, {"service": "rare", "kind": "restart", "before": listed.page.older}
    )

    assert (listed.rows, "Looked down to" in page.content.decode()) == ((), True)
    assert [row.change for row in further.context["list"].rows] == [rare]


def test_an_empty_list_explains_changes(operator_client):
    assert "Nothing was changed yet." in operator_client.get(URL).content.decode()
    empty = operator_client.get(URL, {"kind": "edit"}).content.decode()
    assert "No change matches these filters." in empty


def test_an_htmx_request_gets_only_the_list(operator_client):
    page = operator_client.get(URL, headers={"HX-Request": "true"}).content.decode()

    assert page.strip().startswith('<div id="change-list">')


def test_a_cycle_and_its_incident_have_the_same_changes():
    watch = WatchFactory()
    session = SessionFactory(tier=2, cycle=CycleFactory(watch=watch))
    incident = IncidentFactory()
    incident.cycles.add(session.cycle)
    first, second = ChangeFactory(session=session), ChangeFactory(session=session)
    ChangeFactory()

    of_cycle = [row.change for row in changes_of_cycle(session.cycle_id)]
    of_incident = list(changes_of(incident))

    assert of_cycle == of_incident == [first, second]


def test_the_page_of_an_incident_shows_its_changes(operator_client):
    change = ChangeFactory(action="docker stop web")
    incident = IncidentFactory()
    incident.cycles.add(change.session.cycle)

    page = operator_client.get(incident.get_absolute_url()).content.decode()

    assert "docker stop web" in page
    assert "docker start web" in page
