"""Watches added, changed and removed on the pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.messages import get_messages
from django.urls import reverse
from django_q.models import Schedule

from escalation.run.manifest import accept_first, manifest_of_watch
from sessions_app.models import Cycle, Manifest, Watch
from sessions_app.models.autonomy import AutonomyLevel
from tests.factories import CycleFactory, WatchFactory

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fake_cli")]


@pytest.fixture
def form(workdir) -> dict[str, Any]:
    return {
        "name": "shop",
        "workdir": str(workdir),
        "instructions": "Look at web.",
        "interval_minutes": "30",
        "cron": "",
        "max_tier": "1",
        "dry_run": "on",
        "approval": "3",
        "ask": "",
        "grants": "",
        "budget_day_usd": "",
        **{"restarts_allowed": "2", "restart_hours": "4"},
        **{"redeployments_allowed": "1", "redeployment_hours": "24"},
    }


@pytest.fixture
def watch(workdir) -> Watch:
    made: Watch = WatchFactory(
        name="shop", workdir=str(workdir), interval_minutes=30, max_tier=1, dry_run=True
    )
    return made


def said(response) -> str:
    return " ".join(str(message) for message in get_messages(response.wsgi_request))


def test_a_new_watch_is_created_paused(operator_client, form):
    response = operator_client.post(reverse("web:add_watch"), {**form, "enabled": "on"})

    watch = Watch.objects.get()
    assert response.url == watch.get_absolute_url()
    assert (watch.name, watch.interval_minutes, watch.enabled) == ("shop", 30, False)
    assert LogEntry.objects.get().object_repr == "shop"


def test_all_errors_are_shown_at_their_fields_and_input_is_kept(operator_client, form):
    wrong = {
        **{"workdir": "/nowhere/at/all", "cron": "sometimes", "approval": "9", "ask": "rm"},
        **{"name": "", "interval_minutes": "0", "instructions": "My long instructions."},
    }

    response = operator_client.post(reverse("web:add_watch"), {**form, **wrong})

    page = response.content.decode()
    assert response.status_code == 422
    assert page.count('class="field wrong"') == 6
    assert "My long instructions." in page
    assert not Watch.objects.exists()


def test_a_name_that_is_taken_is_refused_at_its_field(operator_client, form, watch):
    response = operator_client.post(reverse("web:add_watch"), form)

    assert response.status_code == 422
    assert "already exists" in response.content.decode()


def test_an_edit_changes_the_fields_and_the_schedule(operator_client, form, watch):
    address = reverse("web:edit_watch", args=[watch.pk])

    response = operator_client.post(address, {**form, "cron": "0 3 * * *", "approval": ""})

    watch.refresh_from_db()
    assert (watch.cron, watch.enabled) == ("0 3 * * *", True)
    assert Schedule.objects.get(watch=watch).cron == "0 3 * * *"
    assert "Or a cron expression" in LogEntry.objects.get().change_message
    assert said(response).startswith("shop: Changed:")


@pytest.mark.parametrize(
    ("chosen", "policy"),
    [
        ("safe", (2, False, "3")),
        ("look", (2, True, "2")),
        ("by-hand", (2, True, "2")),
        ("", (2, True, "2")),
    ],
)
def test_only_another_level_of_autonomy_replaces_the_advanced_settings(
    operator_client, form, watch, chosen, policy
):
    Watch.objects.filter(pk=watch.pk).update(approval="3")
    own = {**form, "max_tier": "2", "dry_run": "on", "approval": "2"}

    operator_client.post(
        reverse("web:edit_watch", args=[watch.pk]),
        {**own, **({"autonomy": chosen} if chosen else {})},
    )

    watch.refresh_from_db()
    assert (watch.max_tier, watch.dry_run, watch.approval) == policy


def test_the_form_begins_with_autonomy_and_what_each_level_would_have_done(operator_client, watch):
    page = operator_client.get(reverse("web:watch_settings", args=[watch.pk])).content.decode()

    assert page.count('type="radio" name="autonomy"') == len(AutonomyLevel) + 1
    assert page.index('name="autonomy"') < page.index('name="name"')
    assert "In the last 7 days" in page


def test_a_drafted_manifest_is_saved_once_and_accepted(operator_client, watch, workdir):
    url, file = reverse("web:save_manifest", args=[watch.pk]), workdir / "CLAUDE-OPS.md"

    operator_client.post(url, {"text": "# shop\r\nThe shop."})
    second = operator_client.post(url, {"text": "other"})

    assert file.read_text() == "# shop\nThe shop.\n"
    assert Manifest.objects.get(watch=watch).text == file.read_text()
    assert "Nothing was saved" in said(second)


@pytest.mark.parametrize("text", ["", "x" * 20_001])
def test_an_empty_or_too_long_manifest_is_not_saved(operator_client, watch, workdir, text):
    operator_client.post(reverse("web:save_manifest", args=[watch.pk]), {"text": text})

    assert not (workdir / "CLAUDE-OPS.md").exists()


def test_a_manifest_is_not_saved_through_a_link(operator_client, watch, workdir, tmp_path):
    (workdir / "CLAUDE-OPS.md").symlink_to(tmp_path / "elsewhere")

    operator_client.post(reverse("web:save_manifest", args=[watch.pk]), {"text": "# shop"})

    assert not (tmp_path / "elsewhere").exists()


def test_an_invalid_edit_changes_nothing(operator_client, form, watch):
    address = reverse("web:edit_watch", args=[watch.pk])

    response = operator_client.post(address, {**form, "name": "other", "workdir": "relative"})

    watch.refresh_from_db()
    assert response.status_code == 422
    assert watch.name == "shop"
    assert "must be absolute" in response.content.decode()


def test_an_edit_keeps_a_pause_that_came_meanwhile(operator_client, form, watch):
    Watch.objects.filter(pk=watch.pk).update(enabled=False)

    operator_client.post(reverse("web:edit_watch", args=[watch.pk]), {**form, "name": "new"})

    watch.refresh_from_db()
    assert (watch.name, watch.enabled) == ("new", False)


@pytest.fixture
def manifest(workdir) -> Path:
    file: Path = workdir / "CLAUDE-OPS.md"
    file.write_text("Never touch db.")
    return file


@pytest.fixture
def changed(watch, manifest) -> dict[str, str]:
    """The form that accepts a changed manifest of the watch."""
    accept_first(watch, by="ada")
    manifest.write_text("Touch db.")
    Watch.objects.update(manifest_waits=True)
    return {"confirm": "on", "seen": manifest_of_watch(watch).token}


def accepted() -> tuple[str, str]:
    row = Manifest.objects.get()
    return row.text, row.accepted_by


def test_the_manifest_of_a_new_watch_is_accepted(operator_client, operator, form, manifest):
    operator_client.post(reverse("web:add_watch"), form)

    assert accepted() == ("Never touch db.", operator.username)


def test_the_manifest_of_the_first_watch_is_accepted(operator_client, operator, form, manifest):
    operator_client.post(reverse("web:first_watch"), form)

    assert accepted() == ("Never touch db.", operator.username)


def test_an_edit_accepts_the_manifest_of_another_directory_alone(
    operator_client, operator, form, watch, changed, tmp_path
):
    address = reverse("web:edit_watch", args=[watch.pk])
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab/CLAUDE-OPS.md").write_text("The lab.")

    operator_client.post(address, {**form, "cron": "0 3 * * *"})
    after_edit = accepted()
    operator_client.post(address, {**form, "workdir": str(tmp_path / "lab")})

    assert (after_edit, accepted()) == (
        ("Never touch db.", "ada"),
        ("The lab.", operator.username),
    )


def test_a_changed_manifest_is_accepted_with_who_and_when(
    operator_client, operator, watch, changed
):
    response = operator_client.post(reverse("web:accept_manifest", args=[watch.pk]), changed)

    watch.refresh_from_db()
    logged = LogEntry.objects.get()
    assert response.url == watch.get_absolute_url()
    assert accepted() == ("Touch db.", operator.username)
    assert not watch.manifest_waits
    assert (logged.user, logged.object_repr) == (operator, "shop")
    assert logged.change_message == "Accepted CLAUDE-OPS.md."


@pytest.mark.parametrize("without", ["confirm", "seen"])
def test_nothing_is_accepted_without_a_tick_or_the_text_that_was_seen(
    operator_client, watch, changed, without
):
    form = {name: value for name, value in changed.items() if name != without}

    operator_client.post(reverse("web:accept_manifest", args=[watch.pk]), form)

    assert accepted() == ("Never touch db.", "ada")
    assert not LogEntry.objects.exists()


def test_a_manifest_that_changed_after_the_page_was_shown_is_not_accepted(
    operator_client, watch, changed, manifest
):
    manifest.write_text("Drop db.")

    operator_client.post(reverse("web:accept_manifest", args=[watch.pk]), changed)

    assert accepted() == ("Never touch db.", "ada")


def test_a_watch_is_removed_after_a_confirmation_and_its_name_stays(operator_client, watch):
    cycle = CycleFactory(watch=watch, watch_name="shop")
    address = reverse("web:remove_watch", args=[watch.pk])

    refused = operator_client.post(address)
    assert Watch.objects.exists()
    assert "Nothing was removed" in said(refused)

    operator_client.post(address, {"confirm": "on"})

    assert not Watch.objects.exists()
    assert not Schedule.objects.filter(name=f"watch-{watch.pk}").exists()
    assert Cycle.objects.get(pk=cycle.pk).subject == "shop (removed)"
    assert LogEntry.objects.get().object_repr == "shop"


def test_a_watch_with_an_active_cycle_is_not_removed(operator_client, watch):
    CycleFactory(watch=watch, running=True)
    address = reverse("web:remove_watch", args=[watch.pk])

    response = operator_client.post(address, {"confirm": "on"})

    assert Watch.objects.exists()
    assert not LogEntry.objects.exists()
    assert "wait for it to finish" in said(response)


@pytest.mark.parametrize("act", ["pause_watch", "unpause_watch", "run_watch"])
def test_an_action_on_the_page_of_a_watch_redirects_to_it(operator_client, watch, act):
    CycleFactory(watch=watch, running=True)

    response = operator_client.post(reverse(f"web:{act}", args=[watch.pk]), {"from": "watch"})

    assert response.url == watch.get_absolute_url()


def test_a_pause_is_logged(operator_client, operator, watch):
    operator_client.post(reverse("web:pause_watch", args=[watch.pk]))

    entry = LogEntry.objects.get()
    assert (entry.user, entry.change_message) == (operator, "Paused.")
