"""Pages of remedies: declare, change, accept, run and remove."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.urls import reverse

from sessions_app.models import Remedy, RemedyRun
from tests.factories import (
    CycleFactory,
    IncidentFactory,
    RemedyFactory,
    RemedyRunFactory,
    ServiceStateFactory,
    SessionFactory,
    WatchFactory,
    user_with,
)

pytestmark = pytest.mark.django_db
FILLED = {
    "name": "restart",
    "description": "Restarts it.",
    "words": "docker restart {service}",
    "parameters": "service: service",
    "kind": "restart",
    "tier": "2",
    "grants": "docker",
    "seconds": "60",
    "enabled": "on",
}


@pytest.fixture
def watch(tmp_path: Path):
    workdir = tmp_path / "shop"
    workdir.mkdir()
    watch = WatchFactory(workdir=str(workdir))
    ServiceStateFactory(watch=watch, service="web", name="web")
    return watch


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "fix.sh"
    file.write_text("#!/bin/sh\necho fixed\n")
    return file


def post(client, act, *arguments, **data):
    return client.post(reverse(f"web:{act}", args=arguments), data, follow=True)


def text_of(page) -> str:
    return page.content.decode()


def test_a_remedy_is_added_and_changed(operator_client, watch):
    page = post(operator_client, "add_remedy", watch.pk, **FILLED)

    row = Remedy.objects.get()
    assert row.command == ["docker", "restart", "{service}"]
    assert page.redirect_chain == [(f"/remedies/{row.pk}/", 302)]
    post(operator_client, "edit_remedy", row.pk, **{**FILLED, "seconds": "30"})
    row.refresh_from_db()
    assert (row.seconds, row.command) == (30, ["docker", "restart", "{service}"])
    assert "restart SERVICE" in text_of(operator_client.get(f"/watches/{watch.pk}/remedies/"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"words": "bash -c {service}"},
        {"words": "docker '"},
        {"words": ""},
        {"parameters": "service"},
        {"tier": "1"},
        {"grants": "write:/srv"},
        {"seconds": "0"},
        {"words": "/no/such/script {service}"},
        {"name": "Restart it"},
        {"tier0_hours": "4"},
    ],
)
def test_a_wrong_declaration_is_shown_with_its_error(operator_client, watch, wrong):
    page = post(operator_client, "add_remedy", watch.pk, **{**FILLED, **wrong})

    assert page.status_code == 422
    assert 'role="alert"' in text_of(page)
    assert not Remedy.objects.exists()


def test_a_second_remedy_of_that_name_is_refused(operator_client, watch):
    RemedyFactory(watch=watch, name="restart")

    assert post(operator_client, "add_remedy", watch.pk, **FILLED).status_code == 422


def test_a_changed_script_is_accepted_as_it_was_shown(operator_client, watch, script):
    filled = {**FILLED, "words": str(script), "parameters": "", "service": "web"}
    post(operator_client, "add_remedy", watch.pk, **filled)
    row = Remedy.objects.get()
    script.write_text("#!/bin/sh\necho other\n")

    page = operator_client.get(row.get_absolute_url())

    assert "+echo other" in text_of(page)
    seen = page.context["state"].token
    post(operator_client, "accept_remedy", row.pk, seen=seen)
    assert "waits for you" in text_of(operator_client.get(row.get_absolute_url()))
    post(operator_client, "accept_remedy", row.pk, seen="other", confirm="on")
    assert "waits for you" in text_of(operator_client.get(row.get_absolute_url()))
    post(operator_client, "accept_remedy", row.pk, seen=seen, confirm="on")
    assert "waits for you" not in text_of(operator_client.get(row.get_absolute_url()))


def test_a_remedy_is_run_after_confirmation(operator_client, watch):
    row = RemedyFactory(watch=watch, name="restart")

    post(operator_client, "run_remedy", row.pk, argument="web")
    assert not RemedyRun.objects.exists()
    post(operator_client, "run_remedy", row.pk, argument="web", confirm="on")
    run = RemedyRun.objects.get()
    assert (run.call, run.state, run.by is not None) == ("remedy restart web", "queued", True)


@pytest.mark.parametrize("value", ["; rm -rf /", "-f", "db"])
def test_a_wrong_value_runs_nothing(operator_client, watch, value):
    row = RemedyFactory(watch=watch)

    post(operator_client, "run_remedy", row.pk, argument=value, confirm="on")

    assert not RemedyRun.objects.exists()


def test_a_remedy_is_run_from_an_incident(operator_client, watch):
    row = RemedyFactory(watch=watch, name="restart")
    incident = IncidentFactory(watch=watch, cause="web")
    address = f"/watches/{watch.pk}/remedies/?incident={incident.pk}"

    assert address in text_of(operator_client.get(incident.get_absolute_url()))
    assert 'name="argument" value="web"' in text_of(operator_client.get(address))
    page = post(
        operator_client,
        "run_remedy",
        row.pk,
        argument="web",
        confirm="on",
        incident=incident.pk,
    )

    assert RemedyRun.objects.get().incident == incident
    assert page.redirect_chain == [(incident.get_absolute_url(), 302)]


@pytest.mark.parametrize("number", ["0", "x", "9" * 30, "٣"])
def test_an_incident_that_is_none_is_ignored(operator_client, watch, number):
    assert (
        operator_client.get(f"/watches/{watch.pk}/remedies/?incident={number}").status_code == 200
    )


def test_a_run_of_tier_0_is_a_step_of_the_chain_that_follows(operator_client, watch):
    session = SessionFactory(cycle=CycleFactory(watch=watch, trigger="probe"))
    RemedyRunFactory(remedy=RemedyFactory(watch=watch, name="restart"), cycle=session.cycle)

    page = text_of(operator_client.get(session.cycle.get_absolute_url()))

    assert "Tier 0" in page
    assert "remedy restart web" in page


def test_a_removed_remedy_leaves_its_runs(operator_client, watch):
    row = RemedyFactory(watch=watch)
    RemedyRunFactory(remedy=row)

    post(operator_client, "remove_remedy", row.pk)
    assert Remedy.objects.exists()
    post(operator_client, "remove_remedy", row.pk, confirm="on")
    assert (Remedy.objects.count(), RemedyRun.objects.count()) == (0, 1)


def test_an_operator_sees_a_remedy_and_cannot_run_it(client, watch):
    client.force_login(user_with("operator"))
    row = RemedyFactory(watch=watch)

    page = text_of(client.get(row.get_absolute_url()))

    assert row.usage in page
    assert "confirm-run" not in page
    assert client.post(reverse("web:run_remedy", args=[row.pk])).status_code == 403


def test_a_run_is_undone_after_confirmation(operator_client, watch):
    RemedyFactory(watch=watch, name="stop")
    run = RemedyRunFactory(remedy=RemedyFactory(watch=watch, name="start", undo="stop"))
    url = reverse("web:undo_remedy", args=[run.remedy_id])
    page = reverse("web:watch_remedies", args=[watch.pk])
    assert f'name="run" value="{run.pk}"' in operator_client.get(page).content.decode()

    for form in ({"run": run.pk}, {"run": "x", "confirm": "on"}, {"confirm": "on"}):
        operator_client.post(url, form)
    assert not RemedyRun.objects.filter(undoes=run).exists()
    for _ in range(2):
        operator_client.post(url, {"run": run.pk, "confirm": "on"})

    undoing = RemedyRun.objects.get(undoes=run)
    assert (undoing.call, undoing.state) == ("remedy stop web", "queued")
    assert f'name="run" value="{run.pk}"' not in operator_client.get(page).content.decode()
