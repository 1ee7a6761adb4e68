"""Nagios' output, the conventions of heartbeats, and sums of latencies."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escalation.probes.results import (
    BUCKETS,
    Figure,
    HeartbeatState,
    NotAPing,
    added,
    counted,
    figures_in,
    heard,
    nagios_result,
    overdue,
    percentile,
    ping_of,
)
from sessions_app.models import HeartbeatPing, Probe
from tests.tables import each_row

Status, Ping = Probe.Status, HeartbeatPing.Kind
NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@each_row(
    "code, output, status, text, figures",
    [
        (0, "OK - fine", Status.OK, "OK - fine", {}),
        (1, "DISK WARNING | /=81%;80;90", 1, "DISK WARNING", {"/": Figure(81, "%")}),
        (2, "down\nsecond line", 2, "down\nsecond line", {}),
        (3, "UNKNOWN", 3, "UNKNOWN", {}),
        (0, "", Status.OK, "(no output)", {}),
        (127, "not found", Status.UNKNOWN, "exit code 127:\nnot found", {}),
        (-9, "", Status.UNKNOWN, "exit code -9:\n(no output)", {}),
        (
            0,
            "PING ok | rta=0.80ms;100;200;0 'packet loss'=0%;20;60\nmore\n| a=1\nb=2.5e3KB",
            Status.OK,
            "PING ok\nmore",
            {
                "rta": Figure(0.8, "ms"),
                "packet loss": Figure(0, "%"),
                "a": Figure(1, ""),
                "b": Figure(2500, "KB"),
            },
        ),
    ],
)
def test_nagios_output_is_read(code, output, status, text, figures):
    result = nagios_result(code, output)

    assert (result.status, result.output, result.figures) == (status, text, figures)


def test_ten_megabytes_of_output_are_cut():
    assert len(nagios_result(0, "x" * 10_000_000).output) < 5_000


@each_row(
    "text, figures",
    [
        ("'it''s'=3", {"it's": Figure(3, "")}),
        ("broken =5 load1=-0.5;;;0", {"load1": Figure(-0.5, "")}),
        ("a=U b=1", {"b": Figure(1, "")}),
        (" ".join(f"n{number}=1" for number in range(99)), {f"n{n}": Figure(1) for n in range(50)}),
    ],
)
def test_performance_data_is_read(text, figures):
    assert figures_in(text) == figures


@each_row(
    "part, expected",
    [
        ("", (Ping.SUCCESS, None)),
        ("start", (Ping.START, None)),
        ("fail", (Ping.FAIL, None)),
        ("0", (Ping.SUCCESS, 0)),
        ("1", (Ping.FAIL, 1)),
        ("255", (Ping.FAIL, 255)),
    ],
)
def test_addresses_of_heartbeats_have_the_conventions_of_healthchecks(part, expected):
    assert ping_of(part) == expected


@pytest.mark.parametrize("part", ["256", "999", "-1", "finish", "log", "1/2", "Start", "٣"])
def test_other_addresses_are_refused(part):
    with pytest.raises(NotAPing):
        ping_of(part)


def test_a_job_that_starts_and_succeeds_has_a_duration():
    state, nothing = heard(HeartbeatState(heard_at=NOW), Ping.START, None, "", NOW + MINUTE)
    assert nothing is None

    state, result = heard(state, Ping.SUCCESS, 0, "12 files", NOW + 3 * MINUTE)

    assert result is not None
    assert (result.status, result.seconds, result.output) == (Status.OK, 120, "12 files")
    assert state == HeartbeatState(heard_at=NOW + 3 * MINUTE)


def test_a_failed_job_has_its_exit_code_and_body():
    _state, result = heard(HeartbeatState(heard_at=NOW), Ping.FAIL, 3, "disk full", NOW)

    assert result is not None
    assert (result.status, result.output) == (Status.CRITICAL, "exit code 3: disk full")


@each_row(
    "heard_at, started_at, is_late",
    [
        (NOW, None, False),
        (NOW - 59 * MINUTE, None, False),
        (NOW - 65 * MINUTE, None, False),
        (NOW - 66 * MINUTE, None, True),
        (NOW - MINUTE, NOW - 4 * MINUTE, False),
        (NOW - MINUTE, NOW - 6 * MINUTE, True),
        # the clock was set back
        (NOW + 600 * MINUTE, None, False),
        (NOW, NOW + 600 * MINUTE, False),
    ],
)
def test_a_heartbeat_is_late_after_its_interval_and_grace(heard_at, started_at, is_late):
    state = HeartbeatState(heard_at=heard_at, started_at=started_at)

    late = overdue(state, NOW, timedelta(hours=1), 5 * MINUTE)

    assert (late is not None) == is_late


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50))
def test_percentiles_are_in_the_bucket_of_the_latency(latencies):
    histogram: list[int] = []
    for latency in latencies:
        histogram = counted(histogram, latency)

    assert sum(histogram) == len(latencies)
    assert added([histogram, histogram]) == [2 * one for one in added([histogram])]
    half = percentile(histogram, 0.5)
    assert half is not None
    ordered = sorted(latencies)
    middle = ordered[(len(ordered) - 1) // 2]
    upper = next((bound for bound in BUCKETS if middle <= bound), BUCKETS[-1])
    lower = max((bound for bound in BUCKETS if bound < middle), default=0)
    assert min(lower, BUCKETS[-1]) <= half <= upper


def test_a_histogram_without_results_has_no_percentile():
    assert percentile([], 0.5) is None
