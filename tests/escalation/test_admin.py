"""The watch in admin: seen, edited, run, paused and unpaused."""

from __future__ import annotations

import pytest
from django.urls import reverse
from django_q.models import OrmQ, Schedule

from sessions_app.models import Cycle, Watch
from tests.factories import CycleFactory, WatchFactory, user_with

# Every page names the CLI, so there is one to name.
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fake_cli")]
LIST = "admin:sessions_app_watch_changelist"


def act(client, action: str, *watches: Watch):
    return client.post(
        reverse(LIST),
        {"action": action, "_selected_action": [watch.pk for watch in watches]},
        follow=True,
    )


def test_the_list_shows_every_watch_with_schedule_and_limits(operator_client):
    WatchFactory(name="shop", interval_minutes=60, workdir="/srv/shop")
    WatchFactory(name="lab", cron="0 3 * * *")

    page = operator_client.get(reverse(LIST)).content.decode()

    assert all(text in page for text in ("shop", "every hour", "/srv/shop", "at 03:00, every day"))


def test_the_list_shows_the_next_run_and_the_last_cycle(operator_client):
    cycle = CycleFactory(outcome=Cycle.Outcome.NEEDS_PERSON)
    Schedule.objects.filter(watch=cycle.watch).update(next_run="2031-05-04T03:02:00Z")

    page = operator_client.get(reverse(LIST)).content.decode()

    assert "2031-05-04 03:02" in page
    assert f'<a href="{cycle.get_absolute_url()}">needs a person</a>' in page


def test_a_paused_watch_shows_no_next_run(operator_client):
    WatchFactory(enabled=False)

    page = operator_client.get(reverse(LIST)).content.decode()

    assert '<td class="field-next_run">–</td>' in page


@pytest.mark.parametrize("query", ["?q=shop", "?enabled__exact=1", "?dry_run__exact=0&max_tier=3"])
def test_the_list_can_be_searched_and_filtered(operator_client, query):
    WatchFactory(name="shop")

    assert "shop" in operator_client.get(reverse(LIST) + query).content.decode()


def test_run_now_enqueues_a_cycle_of_every_chosen_watch(operator_client, operator):
    watches = WatchFactory.create_batch(2)

    page = act(operator_client, "run_now", *watches).content.decode()

    assert Cycle.objects.filter(requested_by=operator, watch__in=watches).count() == 2
    assert OrmQ.objects.count() == 2
    assert f"of {watches[0].name} is queued." in page


def test_run_now_skips_busy_watches(operator_client):
    busy, idle = CycleFactory(running=True).watch, WatchFactory()

    page = act(operator_client, "run_now", busy, idle).content.decode()

    assert f"of {busy.name} is still running" in page
    assert idle.cycles.count() == 1


def test_pause_and_unpause_change_the_schedule(operator_client):
    watch = WatchFactory()

    act(operator_client, "pause", watch)
    paused = Schedule.objects.get(watch=watch).repeats
    act(operator_client, "unpause", watch)

    assert (paused, Schedule.objects.get(watch=watch).repeats) == (0, -1)


def test_an_invalid_cron_expression_is_refused(operator_client, workdir):
    form = {"name": "shop", "workdir": str(workdir), "interval_minutes": 5, "max_tier": 2}

    response = operator_client.post(
        reverse("admin:sessions_app_watch_add"), {**form, "cron": "sometimes"}
    )

    assert "is not a cron expression" in response.content.decode()
    assert not Watch.objects.exists()


def test_a_watch_added_by_the_form_is_scheduled(operator_client, workdir):
    form = {"name": "shop", "workdir": str(workdir), "interval_minutes": 5, "max_tier": 2}
    form |= {"restarts_allowed": 2, "restart_hours": 4}
    form |= {"redeployments_allowed": 1, "redeployment_hours": 24}

    operator_client.post(reverse("admin:sessions_app_watch_add"), {**form, "enabled": "on"})

    assert Schedule.objects.get(watch__name="shop").minutes == 5


def test_the_form_accepts_the_manifest_of_a_new_watch_and_shows_it_read_only(
    operator_client, operator, workdir
):
    (workdir / "CLAUDE-OPS.md").write_text("Never touch <db>.")
    form = {"name": "shop", "workdir": str(workdir), "interval_minutes": 5, "max_tier": 2}
    form |= {"restarts_allowed": 2, "restart_hours": 4, "manifest_text": "Touch db."}
    form |= {"redeployments_allowed": 1, "redeployment_hours": 24}

    operator_client.post(reverse("admin:sessions_app_watch_add"), form)
    (workdir / "CLAUDE-OPS.md").write_text("Touch db.")
    shop = Watch.objects.get()
    address = reverse("admin:sessions_app_watch_change", args=[shop.pk])
    operator_client.post(address, {**form, "interval_minutes": 6})
    page = operator_client.get(address).content.decode()

    shop.refresh_from_db()
    assert (shop.interval_minutes, shop.manifest.text) == (6, "Never touch <db>.")
    assert shop.manifest.accepted_by == operator.username
    assert "Never touch &lt;db&gt;." in page
    assert 'name="manifest' not in page


def test_a_viewer_cannot_run_a_watch(client):
    watch = WatchFactory()
    client.force_login(user_with("viewer", is_staff=True))

    act(client, "run_now", watch)

    assert not Cycle.objects.exists()
