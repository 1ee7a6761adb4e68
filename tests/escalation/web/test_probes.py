"""The page of the probes of a watch."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from escalation.probes.store import day_of, five_minutes_of
from escalation.web.probes import latency_line, load_probes, mark_of
from sessions_app.models import Maintenance, Probe, ProbeProposal, ProbeSum
from tests.factories import WatchFactory, user_with
from tests.tables import each_row

NOW = timezone.now()
NAMES = ("service", "kind", "target")


@each_row(
    "found, look",
    [
        (None, "none"),
        (ProbeSum(planned=4), "none"),
        (ProbeSum(runs=10), "good"),
        (ProbeSum(runs=1000, failed=1), "warn"),
        (ProbeSum(runs=10, failed=1), "bad"),
    ],
)
def test_a_period_has_a_mark(found, look):
    assert mark_of(NOW, found).look == look


@each_row(
    "seconds, points",
    [([], 0), ([0.1], 0), ([0.1, None, 0.2], 2), ([0.0, 0.0], 2), ([0.1, 0.2, 0.3], 3)],
)
def test_a_line_leaves_out_periods_without_a_latency(seconds, points):
    assert len(latency_line(seconds).split()) == points


@pytest.mark.django_db
def test_the_page_shows_state_bars_and_output(operator_client, django_assert_num_queries):
    watch = WatchFactory(name="shop")
    assert (
        "claudeops probe add"
        in operator_client.get(f"/watches/{watch.pk}/probes/").content.decode()
    )
    probe = Probe.objects.create(
        watch=watch, name="web-http", service="web", kind="http", state="down", last_output="<b>502"
    )
    for period, start in (("day", day_of(NOW)), ("5m", five_minutes_of(NOW))):
        ProbeSum.objects.create(
            probe=probe, period=period, start=start, runs=10, failed=5, histogram=[0, 0, 0, 10]
        )
    ProbeSum.objects.create(
        probe=probe, period="day", start=day_of(NOW) - timedelta(days=200), runs=10, failed=10
    )

    with django_assert_num_queries(2):
        [row] = load_probes(watch, NOW)

    assert (len(row.days), len(row.hour), row.uptime) == (90, 12, 50.0)
    assert (row.days[-1].look, row.hour[-1].look, row.days[0].look) == ("bad", "bad", "none")
    assert row.latency_ms == pytest.approx(7.5)
    page = operator_client.get(f"/watches/{watch.pk}/probes/").content.decode()
    assert "&lt;b&gt;502" in page
    assert f'id="probe-{probe.pk}"' in page


FORM = {
    **{"name": "web-http", "service": "web", "kind": "http", "target": "http://127.0.0.1:1/"},
    **{"every": "30s", "timeout": "5s", "fail_after": "3", "recover_after": "1"},
    "options": "status=200-299\nlatency_ms = 500",
}


@pytest.fixture
def watch(db):
    return WatchFactory(name="shop")


@pytest.fixture
def probe(watch) -> Probe:
    return Probe.objects.create(
        watch=watch, name="web", service="web", kind="http", target="http://127.0.0.1:1/"
    )


def test_a_probe_is_added_on_the_page(operator_client, watch):
    answer = operator_client.post(f"/watches/{watch.pk}/probes/add/", FORM)

    assert answer.status_code == 302
    added = Probe.objects.get()
    assert (added.watch, added.name, added.kind) == (watch, "web-http", "http")
    assert (added.interval_seconds, added.timeout_seconds) == (30, 5)
    assert (added.fail_after, added.recover_after) == (3, 1)
    assert added.options == {"status": "200-299", "latency_ms": 500}


def test_a_heartbeat_is_added_with_its_address(operator_client, watch):
    form = {**FORM, "kind": "heartbeat", "target": "", "options": ""}

    page = operator_client.post(f"/watches/{watch.pk}/probes/add/", form, follow=True)

    assert f"/heartbeat/{Probe.objects.get().token}" in page.content.decode()


@each_row(
    "wrong",
    [
        {"target": "ftp://x"},
        {"target": ""},
        {"every": "1s"},
        {"every": "soon"},
        {"options": "nonsense=1"},
        {"needs": "nobody"},
        {"name": ""},
        {"kind": "smoke"},
    ],
)
def test_a_wrong_probe_is_refused_and_its_form_is_kept(operator_client, watch, wrong):
    answer = operator_client.post(f"/watches/{watch.pk}/probes/add/", {**FORM, **wrong})

    assert answer.status_code == 422
    assert 'role="alert"' in answer.content.decode()
    assert not Probe.objects.exists()


def test_a_name_that_is_taken_is_refused(operator_client, watch):
    addresses = [f"/watches/{watch.pk}/probes/add/"] * 2

    codes = [operator_client.post(address, FORM).status_code for address in addresses]

    assert codes == [302, 422]
    assert Probe.objects.count() == 1


def test_a_probe_is_asked_to_run_on_the_page(operator_client, probe):
    operator_client.post(f"/probes/{probe.pk}/run/")

    probe.refresh_from_db()
    assert probe.run_asked_at is not None


def test_a_probe_is_muted_and_the_mute_ended_on_the_page(operator_client, probe):
    found = []
    for duration in ("2h", "for ever", "0"):
        operator_client.post(f"/probes/{probe.pk}/mute/", {"for": duration})
        probe.refresh_from_db()
        found.append(probe.is_muted)

    assert found == [True, True, False]


def test_a_probe_is_removed_only_after_a_confirmation(operator_client, probe):
    counts = []
    for form in ({}, {"confirm": "on"}):
        operator_client.post(f"/probes/{probe.pk}/remove/", form)
        counts.append(Probe.objects.count())

    assert counts == [1, 0]


def test_maintenance_is_started_and_ended_on_the_page(operator_client, watch):
    operator_client.post(
        f"/watches/{watch.pk}/maintenance/start/", {"for": "1h", "reason": "backup"}
    )
    [window] = Maintenance.windows_of(watch)
    page = operator_client.get(f"/watches/{watch.pk}/probes/").content.decode()
    operator_client.post(f"/watches/{watch.pk}/maintenance/end/")

    assert (window.holds_now, window.reason) == (True, "backup")
    assert window.started_by is not None
    assert f'action="/watches/{watch.pk}/maintenance/end/"' in page
    assert Maintenance.windows_of(watch) == []


def test_maintenance_is_planned_and_removed_on_the_page(operator_client, watch):
    start = f"/watches/{watch.pk}/maintenance/start/"
    for wrong in ("soon", "2020-01-01T10:00"):
        operator_client.post(start, {"for": "1h", "at": wrong})
    begins = timezone.localtime() + timedelta(days=1)
    operator_client.post(start, {"for": "1h", "at": begins.strftime("%Y-%m-%dT%H:%M")})

    [window] = Maintenance.windows_of(watch)
    assert (window.holds_now, window.holds(begins + timedelta(minutes=5))) == (False, True)
    page = operator_client.get(f"/watches/{watch.pk}/probes/").content.decode()
    assert f'name="window" value="{window.pk}"' in page
    for _time in range(2):
        operator_client.post(f"/watches/{watch.pk}/maintenance/end/", {"window": window.pk})
    assert Maintenance.windows_of(watch) == []


def test_a_weekly_window_without_an_end_is_refused(operator_client, watch):
    operator_client.post(f"/watches/{watch.pk}/maintenance/start/", {"for": "", "weekly": "on"})

    assert Maintenance.windows_of(watch) == []


def test_a_viewer_sees_probes_without_output_and_actions(client, probe):
    client.force_login(user_with("viewer"))
    Probe.objects.update(last_output="from a program")

    page = client.get(f"/watches/{probe.watch_id}/probes/").content.decode()

    assert "web" in page
    assert "from a program" not in page
    assert "<form" not in page.partition("<main")[2].partition("</main>")[0]


def test_a_proposed_probe_is_shown_whole_and_added_or_dismissed_with_one_press(
    operator_client, watch
):
    command = "curl -f http://127.0.0.1/" + "a" * 400
    rows = [
        ProbeProposal.objects.create(
            watch=watch, key=ProbeProposal.key_of(*what), **dict(zip(NAMES, what, strict=True))
        )
        for what in (("web", "command", command), ("db", "tcp", "127.0.0.1:5432"))
    ]
    page = reverse("web:probes", args=[watch.pk])
    fragment = operator_client.get(page + "?back=watch", headers={"HX-Request": "true"})
    for answer in (operator_client.get(page), fragment):
        assert command in answer.content.decode()

    form = {"key": rows[0].key, "back": "watch"}
    added = operator_client.post(reverse("web:accept_probe", args=[watch.pk]), form)
    for _ in range(2):
        operator_client.post(reverse("web:dismiss_probe", args=[watch.pk]), {"key": rows[1].key})

    assert added.url == watch.get_absolute_url()
    assert (Probe.objects.get().kind, Probe.objects.get().target) == ("command", command)
    assert "Proposed probes" not in operator_client.get(page).content.decode()


def test_a_viewer_cannot_accept_a_proposal(client, watch):
    what = ("web", "tcp", "127.0.0.1:80")
    key = ProbeProposal.key_of(*what)
    ProbeProposal.objects.create(watch=watch, key=key, **dict(zip(NAMES, what, strict=True)))
    client.force_login(user_with("viewer"))

    assert (
        "Add this probe" not in client.get(reverse("web:probes", args=[watch.pk])).content.decode()
    )
    answer = client.post(reverse("web:accept_probe", args=[watch.pk]), {"key": key})
    assert (answer.status_code, Probe.objects.count()) == (403, 0)
