"""Targets and options of probes: what is accepted and what is refused with an explanation."""

from __future__ import annotations

import pytest

from escalation.probes.targets import (
    TARGETS,
    Address,
    BadTarget,
    address_in,
    check_target,
    checked_options,
    expected_statuses,
)
from sessions_app.models import Probe
from tests.tables import each_row

Kind = Probe.Kind


@each_row(
    "kind, target",
    [
        (Kind.HTTP, "http://127.0.0.1:8000/health?deep=1"),
        (Kind.HTTP, "https://[::1]/"),
        (Kind.TCP, "db.lan:5432"),
        (Kind.TCP, "[::1]:22"),
        (Kind.DNS, "shop.example"),
        (Kind.COMMAND, "df -h / | tail -1"),
        (Kind.FILE, "/srv/backup/latest.tar"),
        (Kind.DISK, "/"),
        (Kind.CONTAINER, "shop-web-1"),
        (Kind.UNIT, "getty@tty1.service"),
        (Kind.HEARTBEAT, ""),
    ],
)
def test_good_targets_are_accepted(kind, target):
    check_target(kind, target)


BAD = [
    (Kind.HTTP, "ftp://x/"),
    (Kind.HTTP, "http://"),
    (Kind.HTTP, "http://a:b@c/"),
    (Kind.HTTP, "http://host:99999/"),
    (Kind.HTTP, "http://host/ä b"),
    (Kind.HTTP, "http://host/\r\nX: y"),
    (Kind.TCP, "host"),
    (Kind.TCP, "host:0"),
    (Kind.TCP, "host:٣"),
    (Kind.TCP, "host:70000"),
    (Kind.TCP, ";rm -rf /:80"),
    (Kind.DNS, "a b"),
    (Kind.COMMAND, " "),
    (Kind.COMMAND, "true\nrm -rf /"),
    (Kind.COMMAND, "true\x00"),
    (Kind.FILE, "backup.tar"),
    (Kind.DISK, ""),
    (Kind.CONTAINER, "../json"),
    (Kind.CONTAINER, "-f"),
    (Kind.UNIT, "; reboot"),
    (Kind.HEARTBEAT, "x"),
    ("smoke", "x"),
]


@each_row("kind, target", BAD)
def test_bad_targets_are_refused(kind, target):
    with pytest.raises(BadTarget):
        check_target(kind, target)


def test_every_kind_has_a_rule():
    assert set(TARGETS) == set(Kind.values)


def test_options_get_their_types():
    options = {"status": "200,401", "latency_ms": "500", "header": "X-App: shop"}

    assert checked_options(Kind.HTTP, options) == {**options, "latency_ms": 500}


@each_row(
    "kind, options",
    [
        (Kind.HTTP, {"status": "abc"}),
        (Kind.HTTP, {"latency_ms": "-1"}),
        (Kind.HTTP, {"latency_ms": "٣"}),
        (Kind.HTTP, {"text": "a\nb"}),
        (Kind.HTTP, {"text": ""}),
        (Kind.TCP, {"text": "a"}),
        (Kind.FILE, {"age": "1"}),
        (Kind.UNIT, {"max_age": "1"}),
    ],
)
def test_bad_options_are_refused(kind, options):
    with pytest.raises(BadTarget):
        checked_options(kind, options)


def test_addresses_and_statuses_are_read():
    assert address_in("[::1]:22") == Address("::1", 22)
    assert expected_statuses("200-299,401") == [range(200, 300), range(401, 402)]
