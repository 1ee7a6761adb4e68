"""The pages of watches."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from escalation import tasks
from escalation.run.manifest import accept_first
from sessions_app.models import Manifest, Watch
from tests.factories import (
    ApprovalFactory,
    ChangeFactory,
    CycleFactory,
    IncidentFactory,
    ServiceStateFactory,
    SessionFactory,
    WatchFactory,
    user_with,
)

pytestmark = pytest.mark.django_db
HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e" + "x" * 60


def page_of(client: Client, watch: Watch) -> str:
    return str(client.get(watch.get_absolute_url()).content.decode())


def as_role(role: str) -> Client:
    client = Client()
    client.force_login(user_with(role))
    return client


@pytest.fixture
def watch(tmp_path) -> Watch:
    made: Watch = WatchFactory(name="shop", workdir=str(tmp_path), interval_minutes=30)
    return made


def test_the_list_shows_each_watch_with_state_and_schedule(operator_client, watch):
    CycleFactory(watch=watch, outcome_reason="All is well.")
    IncidentFactory(watch=watch)
    WatchFactory(name="lab", enabled=False, cron="0 3 * * *")

    page = operator_client.get(reverse("web:watches")).content.decode()

    for words in ("shop", "every 30 minutes", "All is well.", "1 incident open", "next run"):
        assert words in page
    assert "when on: at 03:00, every day" in page


def test_an_empty_list_says_how_to_add_a_watch(operator_client):
    page = operator_client.get(reverse("web:watches")).content.decode()

    assert "Make the first one" in page
    assert reverse("web:new_watch") in page


def test_the_page_shows_the_next_run_with_its_time_zone(operator_client, watch, settings):
    page = page_of(operator_client, watch)

    assert "Every 30 minutes." in page
    assert page.count('<li><time datetime="') == 3
    assert "UTC</time>" in page


def test_a_watch_in_back_off_shows_later_runs(watch):
    now = timezone.now()
    watch.backed_off_until = now + timedelta(hours=5)

    assert all(time >= watch.backed_off_until for time in watch.next_times(now))


def test_each_service_has_a_mark_for_each_cycle(operator_client, watch):
    state = ServiceStateFactory(watch=watch, service="web", status="down")
    CycleFactory(watch=watch)

    page = page_of(operator_client, watch)

    assert 'aria-label="The last 2 cycles: 1 down, 1 not looked at."' in page
    assert page.count('class="mark mark-good tone-good" href=') == 2
    assert reverse("web:cycle", args=[state.cycle.pk]) in page


def test_open_incidents_come_before_resolved_ones(operator_client, watch):
    over = {"state": "resolved", "resolved_as": "person", "resolved_at": timezone.now()}
    IncidentFactory(watch=watch, title="db was slow", **over)
    IncidentFactory(watch=watch, title="web is down")
    IncidentFactory(title="of another watch")

    page = page_of(operator_client, watch)

    assert page.index("web is down") < page.index("db was slow")
    assert "of another watch" not in page


def test_changes_cost_and_approvals_of_the_watch_are_shown(operator_client, watch):
    session = SessionFactory(cycle=CycleFactory(watch=watch), cost_usd=Decimal("0.50"), tier=2)
    SessionFactory(cycle=CycleFactory(watch=watch), cost_usd=Decimal("0.10"))
    ChangeFactory(session=session, exit_code=3)
    ApprovalFactory(session__cycle__watch=watch)
    Watch.objects.filter(pk=watch.pk).update(budget_day_usd=Decimal("0.70"))

    page = page_of(operator_client, watch)

    assert "failed with exit code 3" in page
    assert "$0.30" in page  # a cycle
    assert "$0.60 of $0.70" in page
    assert "nearly spent" in page
    assert "may Tier 3 start?" in page


def test_a_restart_that_counts_is_shown_with_its_cooldown(operator_client, watch):
    Watch.objects.filter(pk=watch.pk).update(restarts_allowed=1)
    ChangeFactory(session=SessionFactory(cycle=CycleFactory(watch=watch)), service="web")

    page = page_of(operator_client, Watch.objects.get(pk=watch.pk))

    assert "in force" in page
    assert "was restarted 1 of 1 time in 4 h" in page


ACCEPT = "/manifest/"
KEY = "ghp_" + "a1B2" * 9


@pytest.fixture
def manifest(watch, tmp_path) -> Path:
    """CLAUDE-OPS.md, as it was accepted."""
    file: Path = tmp_path / "CLAUDE-OPS.md"
    file.write_text("Never touch the <b>lighthouse</b>.\n")
    accept_first(watch, by="ada")
    return file


def test_an_accepted_manifest_is_shown_with_who_accepted_it(operator_client, watch, manifest):
    page = page_of(operator_client, watch)

    assert "Never touch the &lt;b&gt;lighthouse&lt;/b&gt;." in page
    assert "Accepted by ada" in page
    assert ACCEPT not in page


def test_a_changed_manifest_is_shown_with_the_difference_escaped_and_redacted(
    operator_client, watch, manifest
):
    manifest.write_text(f"Drop the <b>lighthouse</b>\u202e.\n{KEY}\n")

    page = page_of(operator_client, watch)

    assert '<span class="diff-removed">-Never touch the &lt;b&gt;lighthouse&lt;/b&gt;.' in page
    assert '<span class="diff-added">+Drop the &lt;b&gt;lighthouse&lt;/b&gt;‹U+202E›.' in page
    assert KEY not in page
    assert f'action="{reverse("web:accept_manifest", args=[watch.pk])}"' in page


def test_a_manifest_that_nobody_accepted_and_one_that_is_gone_can_be_accepted(
    operator_client, watch, manifest
):
    manifest.unlink()
    gone = page_of(operator_client, watch)
    Manifest.objects.all().delete()
    manifest.write_text("Drop db.")
    first = page_of(operator_client, watch)

    assert '<span class="diff-removed">-Never touch' in gone
    assert '<span class="diff-added">+Drop db.' in first
    assert ACCEPT in gone
    assert ACCEPT in first


def test_an_operator_sees_the_difference_and_cannot_accept_it(watch, manifest):
    manifest.write_text("Drop db.")

    page = page_of(as_role("operator"), watch)

    assert "+Drop db." in page
    assert ACCEPT not in page


def test_a_viewer_sees_no_difference(watch, manifest):
    manifest.write_text("Drop db.")

    page = page_of(as_role("viewer"), watch)

    assert "Drop db." not in page
    assert ACCEPT not in page


def test_a_card_of_the_overview_links_to_a_manifest_that_waits(operator_client, watch, manifest):
    link = f"{watch.get_absolute_url()}#manifest"
    manifest.write_text("Drop db.")
    before = operator_client.get(reverse("web:overview")).content.decode()
    tasks.look_at_manifests()
    after = operator_client.get(reverse("web:overview")).content.decode()

    assert (link in before, link in after) == (False, True)


def test_without_house_rules_a_draft_with_the_services_is_shown(operator_client, watch, tmp_path):
    ServiceStateFactory(watch=watch, service="web", name="Web shop")

    page = page_of(operator_client, watch)

    assert "There is none." in page
    assert "- Web shop: what it does" in page
    assert not (tmp_path / "CLAUDE-OPS.md").exists()


def test_a_viewer_sees_neither_instructions_nor_house_rules_nor_buttons(watch, tmp_path):
    (tmp_path / "CLAUDE-OPS.md").write_text("The lighthouse.")
    Watch.objects.filter(pk=watch.pk).update(instructions="Look at the cellar.")

    page = page_of(as_role("viewer"), watch)

    assert "lighthouse" not in page
    assert "cellar" not in page
    assert "Run now" not in page
    assert "Remove" not in page


def test_an_operator_runs_and_pauses_but_does_not_edit(watch):
    page = page_of(as_role("operator"), watch)

    assert "Run now" in page
    assert "Pause" in page
    assert reverse("web:watch_settings", args=[watch.pk]) not in page


def test_hostile_text_is_escaped(operator_client, watch):
    Watch.objects.filter(pk=watch.pk).update(
        name=HOSTILE[:90], instructions=HOSTILE, grants="write:/<script>"
    )
    ServiceStateFactory(watch=watch, name=HOSTILE, detail=HOSTILE, status="down")
    IncidentFactory(watch=watch, title=HOSTILE)

    for page in (
        page_of(operator_client, watch),
        operator_client.get(reverse("web:watches")).content.decode(),
        operator_client.get(reverse("web:services")).content.decode(),
    ):
        assert "<script>alert" not in page
        assert "\x1b" not in page
        assert "\u202e" not in page


def test_the_page_asks_before_a_watch_is_removed(operator_client, watch):
    IncidentFactory(watch=watch)
    address = reverse("web:watch_removal", args=[watch.pk])

    page = operator_client.get(address).content.decode()

    assert "stay on record under its name" in page
    assert "1 incident of it is not over." in page


def test_a_watch_with_an_active_cycle_cannot_be_removed(operator_client, watch):
    CycleFactory(watch=watch, running=True)

    page = operator_client.get(reverse("web:watch_removal", args=[watch.pk]))

    assert "It is at work." in page.content.decode()
    assert "Remove it" not in page.content.decode()
