"""The page of the probes of a watch."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from escalation.probes.store import day_of, five_minutes_of
from escalation.web.probes import latency_line, load_probes, mark_of
from sessions_app.models import Probe, ProbeSum
from tests.factories import WatchFactory
from tests.tables import each_row

NOW = timezone.now()


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
