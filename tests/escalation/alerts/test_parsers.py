"""Parsers of deliveries: what each sender writes, and what it leaves out."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from escalation.alerts.parsers import (
    DEEPEST_JSON,
    MOST_LABELS,
    PARSERS,
    ParsedAlert,
    ParserOptions,
    Unreadable,
    at_path,
    parse,
    read_json,
    severity_of,
)
from sessions_app.models import Incident
from sessions_app.models.alert import SourceKind
from tests.tables import each_row

NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)
NOTICE, WARNING, CRITICAL = Incident.Severity.values
GO_ZERO = "0001-01-01T00:00:00Z"


def alerts_of(kind: str, body: Any, **options: Any) -> tuple[ParsedAlert, ...]:
    return parse(kind, body, NOW, ParserOptions(**options)).alerts


def only(kind: str, body: Any, **options: Any) -> ParsedAlert:
    [alert] = alerts_of(kind, body, **options)
    return alert


# Alertmanager

GROUP: dict[str, Any] = {
    "version": "4",
    "groupKey": '{}:{alertname="Down"}',
    "status": "firing",
    "truncatedAlerts": 0,
    "receiver": "ops",
    "groupLabels": {"alertname": "Down"},
    "commonLabels": {"alertname": "Down", "severity": "critical"},
    "commonAnnotations": {},
    "externalURL": "http://am:9093",
    "alerts": [
        {
            "status": "firing",
            "labels": {"alertname": "Down", "service": "web", "severity": "critical"},
            "annotations": {"summary": "web does not answer", "description": "502 for 2 m"},
            "startsAt": "2026-11-18T11:58:00.5Z",
            "endsAt": GO_ZERO,
            "generatorURL": "http://prom:9090/graph",
            "fingerprint": "0f0e0d0c0b0a0908",
        }
    ],
}
MEMBER = GROUP["alerts"][0]


def test_alertmanager_firing():
    alert = only("alertmanager", GROUP)

    assert (alert.fingerprint, alert.is_firing) == ("0f0e0d0c0b0a0908", True)
    assert (alert.service, alert.severity) == ("web", CRITICAL)
    assert (alert.summary, alert.detail) == ("web does not answer", "502 for 2 m")
    assert alert.starts_at == datetime(2026, 11, 18, 11, 58, 0, 500_000, tzinfo=UTC)
    assert alert.ends_at is None
    assert alert.group == GROUP["groupKey"]
    assert not alert.is_test


def test_alertmanager_group_has_a_state_for_each_member():
    other = {**MEMBER, "status": "resolved", "fingerprint": "11", "endsAt": "2026-11-18T11:59:00Z"}

    found = alerts_of("alertmanager", {**GROUP, "alerts": [MEMBER, other]})

    assert [alert.is_firing for alert in found] == [True, False]


def test_truncated_members_are_one_alert_while_the_group_fires():
    found = alerts_of("alertmanager", {**GROUP, "truncatedAlerts": 7})

    assert len(found) == 2
    assert found[1].is_firing
    assert found[1].group == GROUP["groupKey"]
    assert found[1].summary.startswith("7 ")


def test_truncated_members_end_with_their_group():
    body = {**GROUP, "status": "resolved", "alerts": [], "truncatedAlerts": 7}

    parsed = parse("alertmanager", body, NOW)

    assert (parsed.alerts, parsed.ended_group) == ((), GROUP["groupKey"])


def test_firing_group_ends_nothing():
    assert parse("alertmanager", GROUP, NOW).ended_group == ""


MISSING = [
    ({"labels": {"alertname": "A"}}, "A", WARNING, "A"),
    ({"labels": {"alertname": "A", "job": "node"}}, "node", WARNING, "A"),
    ({"labels": {"alertname": "A", "severity": "page"}}, "A", CRITICAL, "A"),
    ({"labels": {"alertname": "A", "severity": "none"}}, "A", NOTICE, "A"),
    ({"labels": {"service": "#1"}, "annotations": None}, "1", WARNING, "an alert without a name"),
    ({"labels": None, "annotations": {"summary": "s"}}, "alerts", WARNING, "s"),
    ({"labels": {"a": {"b": 1}, "service": 7}}, "7", WARNING, "an alert without a name"),
    ({}, "alerts", WARNING, "an alert without a name"),
]


@each_row("member, service, severity, summary", MISSING)
def test_alertmanager_with_missing_fields(member, service, severity, summary):
    body = {"status": "firing", "alerts": [member]}

    alert = only("alertmanager", body)

    assert (alert.service, alert.severity, alert.summary) == (service, severity, summary)
    assert alert.fingerprint
    assert alert.is_firing


def test_fingerprint_that_is_missing_follows_from_the_labels():
    body = {"alerts": [{**MEMBER, "fingerprint": None}]}
    labels = dict(reversed(MEMBER["labels"].items()))
    same = {"alerts": [{**MEMBER, "labels": labels, "annotations": {}, "fingerprint": ""}]}
    other = {"alerts": [{**MEMBER, "labels": {**labels, "instance": "b"}, "fingerprint": ""}]}

    of = {only("alertmanager", one).fingerprint for one in (body, same)}
    assert len(of) == 1
    assert only("alertmanager", other).fingerprint not in of


def test_label_of_the_source_names_the_service():
    member = {**MEMBER, "labels": {**MEMBER["labels"], "unit": "nginx.service"}}

    alert = only("alertmanager", {**GROUP, "alerts": [member]}, service_label="unit")

    assert alert.service == "nginx.service"


def test_same_alert_twice_in_a_delivery_is_one():
    assert len(alerts_of("alertmanager", {**GROUP, "alerts": [MEMBER, MEMBER]})) == 1


# Grafana


def test_grafana_sends_groups_of_version_1():
    body = {**GROUP, "version": "1", "orgId": 1, "title": "[FIRING:1]", "state": "alerting"}

    assert only("grafana", body).service == "web"


def test_grafana_test_alert_is_a_test():
    member = {**MEMBER, "labels": {"alertname": "TestAlert", "instance": "Grafana"}}

    assert only("grafana", {**GROUP, "commonLabels": {}, "alerts": [member]}).is_test


LEGACY = {
    "title": "[Alerting] Disk full",
    "ruleId": 12,
    "ruleName": "Disk full",
    "state": "alerting",
    "message": "95 %",
    "evalMatches": [{"metric": "disk", "value": 95}],
    "tags": {"service": "db", "severity": "critical"},
}


@each_row("state, is_firing", [("alerting", True), ("no_data", True), ("ok", False)])
def test_grafana_legacy_form(state, is_firing):
    alert = only("grafana", {**LEGACY, "state": state})

    assert (alert.fingerprint, alert.service, alert.severity) == ("rule:12", "db", CRITICAL)
    assert alert.is_firing == is_firing


# Uptime Kuma

KUMA: dict[str, Any] = {
    "heartbeat": {"monitorID": 4, "status": 0, "time": "2026-11-18 11:59:58.123", "msg": "timeout"},
    "monitor": {"id": 4, "name": "Shop", "url": "https://shop.example", "type": "http"},
    "msg": "[Shop] [Down] timeout",
}


@each_row("status, is_firing", [(0, True), (1, False), ("0", True)])
def test_uptime_kuma_states(status, is_firing):
    alert = only("uptime-kuma", {**KUMA, "heartbeat": {**KUMA["heartbeat"], "status": status}})

    assert (alert.fingerprint, alert.service) == ("monitor:4", "Shop")
    assert (alert.is_firing, alert.severity) == (is_firing, CRITICAL)


@each_row("status", [2, 3, None, "x", 9, True])
def test_uptime_kuma_states_that_are_no_problem(status):
    with pytest.raises(Unreadable):
        parse("uptime-kuma", {**KUMA, "heartbeat": {"status": status}}, NOW)


def test_uptime_kuma_port_monitor_has_no_url():
    monitor = {"id": 9, "name": "db", "hostname": "10.0.0.2", "port": 5432, "type": "port"}

    labels = only("uptime-kuma", {**KUMA, "monitor": monitor}).labels

    assert "url" not in labels
    assert labels["port"] == "5432"


def test_uptime_kuma_tags_are_labels():
    tags = [{"name": "service", "value": "checkout"}, {"name": "severity", "value": "warning"}]

    alert = only("uptime-kuma", {**KUMA, "monitor": {**KUMA["monitor"], "tags": tags}})

    assert (alert.service, alert.severity) == ("checkout", WARNING)


def test_uptime_kuma_test_has_no_monitor():
    assert only("uptime-kuma", {"heartbeat": None, "monitor": None, "msg": "Testing"}).is_test


def test_uptime_kuma_certificate_has_no_monitor():
    text = "[Shop][https://shop.example] tls certificate shop.example will expire in 7 days"

    alert = only("uptime-kuma", {"heartbeat": None, "monitor": None, "msg": text})

    assert (alert.is_test, alert.service, alert.severity) == (False, "Shop", WARNING)


# healthchecks


@each_row("status, is_firing", [("down", True), ("up", False), ("DOWN", True)])
def test_healthchecks_states(status, is_firing):
    body = {"code": "0b2d", "name": "backup", "status": status, "exit_status": 2, "body": "full"}

    alert = only("healthchecks", body)

    assert (alert.fingerprint, alert.service) == ("check:0b2d", "backup")
    assert (alert.is_firing, alert.detail) == (is_firing, "full")
    assert alert.labels["exit_status"] == "2"


# PagerDuty

EVENT: dict[str, Any] = {
    "event_action": "trigger",
    "dedup_key": "shop/web",
    "payload": {
        "summary": "web is down",
        "source": "shop-1",
        "component": "web",
        "severity": "error",
        "timestamp": "2026-11-18T11:59:00Z",
        "custom_details": {"code": 502},
    },
}


@each_row("action, is_firing", [("trigger", True), ("resolve", False)])
def test_pagerduty_actions(action, is_firing):
    alert = only("pagerduty", {**EVENT, "event_action": action})

    assert (alert.fingerprint, alert.is_firing, alert.service) == ("shop/web", is_firing, "web")
    assert (alert.severity, alert.labels["code"]) == (CRITICAL, "502")


def test_pagerduty_resolve_needs_only_the_key():
    alert = only("pagerduty", {"event_action": "resolve", "dedup_key": "shop/web"})

    assert (alert.fingerprint, alert.is_firing) == ("shop/web", False)


# The API of Alertmanager

ENDS = [
    (None, True),
    (GO_ZERO, True),
    ((NOW + timedelta(minutes=4)).isoformat(), True),
    (NOW.isoformat(), False),
    ((NOW - timedelta(seconds=1)).isoformat(), False),
    ("soon", True),
]


@each_row("ends, is_firing", ENDS)
def test_alertmanager_api_fires_until_its_end(ends, is_firing):
    body = [{"labels": {"alertname": "Down", "job": "web"}, "endsAt": ends}]

    alert = only("alertmanager-api", body)

    assert (alert.is_firing, alert.service) == (is_firing, "web")


def test_alertmanager_api_has_the_same_fingerprint_firing_and_resolved():
    one = {"labels": {"alertname": "Down"}, "annotations": {"summary": "a"}}
    ended = {"labels": {"alertname": "Down"}, "endsAt": (NOW - timedelta(hours=1)).isoformat()}

    firing, resolved = only("alertmanager-api", [one]), only("alertmanager-api", [ended])

    assert firing.fingerprint == resolved.fingerprint


# Any JSON


def test_generic_reads_the_usual_names():
    body = {"id": 5, "status": "problem", "service": "db", "severity": "high", "message": "slow"}

    alert = only("generic", body)

    assert (alert.fingerprint, alert.service, alert.severity) == ("5", "db", CRITICAL)
    assert (alert.summary, alert.is_firing) == ("slow", True)


def test_generic_reads_chosen_paths_of_a_list():
    body = {
        "data": {
            "events": [
                {"key": "a", "host": {"name": "n1"}, "state": "OK"},
                {"key": "b", "host": {"name": "n2"}, "state": "BAD"},
                {"nothing": 1},
                "text",
            ]
        }
    }
    paths = {
        "alerts": "data.events",
        "fingerprint": "key",
        "service": "host.name",
        "state": "state",
    }

    found = alerts_of("generic", body, paths=paths)

    assert [(one.fingerprint, one.service, one.is_firing) for one in found] == [
        ("a", "n1", False),
        ("b", "n2", True),
    ]


@each_row(
    "path, value",
    [("a.b", 1), ("c.0.d", 2), ("c.1", None), ("c.x", None), ("a.b.c", None), ("z", None)],
)
def test_paths(path, value):
    assert at_path({"a": {"b": 1}, "c": [{"d": 2}]}, path) == value


# Bad input

UNREADABLE = [
    *((kind, body) for kind in SourceKind.values for body in (None, 5, "text", [], {}, [1, None])),
    ("alertmanager", {"alerts": {}}),
    ("alertmanager", {"alerts": []}),
    ("alertmanager", {"alerts": [{}] * 10_001}),
    ("healthchecks", {"name": "backup", "status": "grace"}),
    ("healthchecks", {"status": "down"}),
    ("pagerduty", {"event_action": "trigger"}),
    ("pagerduty", {**EVENT, "event_action": "acknowledge"}),
    ("alertmanager-api", [{"annotations": {"summary": "no labels"}}]),
    ("uptime-kuma", {"heartbeat": {"status": 0}, "monitor": {}}),
]


@each_row("kind, body", UNREADABLE)
def test_delivery_without_a_problem_is_unreadable(kind, body):
    with pytest.raises(Unreadable):
        parse(kind, body, NOW)


HOSTILE = [
    {"id": "x" * 10_000, "message": "\x00\ud800" * 500, "service": "a\nb" * 999, "labels": []},
    {"id": True, "status": ["down"], "severity": {"a": 1}, "message": None, "starts": 5},
    {"id": 1e308, "labels": {str(number): "v" * 5_000 for number in range(500)}},
]


@each_row("body", HOSTILE)
def test_hostile_values_are_bounded(body):
    alert = only("generic", body)

    assert len(alert.fingerprint) <= 255
    assert len(alert.service) <= 200
    assert len(alert.summary) <= 300
    assert len(alert.labels) <= 2 * MOST_LABELS
    assert all(len(value) <= 300 for value in alert.labels.values())


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@each_row(
    "raw", [b"", b"{", b"\xff\xfe", b"NaN", nested(DEEPEST_JSON + 1), nested(400_000), b'{"a":']
)
def test_body_that_cannot_be_read(raw):
    with pytest.raises(Unreadable):
        read_json(raw)


@each_row(
    "raw", [nested(DEEPEST_JSON), b'\xef\xbb\xbf{"a": "[[[["}', b"5", json.dumps(KUMA).encode()]
)
def test_body_that_can_be_read(raw):
    assert read_json(raw) is not None


def test_every_kind_has_a_parser():
    assert set(PARSERS) == set(SourceKind)


@each_row(
    "word, severity", [("", WARNING), (None, WARNING), ("CRITICAL", CRITICAL), ("x", WARNING)]
)
def test_severity_words(word, severity):
    assert severity_of(word) == severity
