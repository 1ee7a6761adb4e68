"""Paths of a generic source, chosen from a sample of its deliveries."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from escalation.alerts.samples import FoundPath, guess, lists_in, paths_in, preview
from tests.tables import each_row

NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)
NESTED = {
    "check": {"host": {"name": "web1"}, "a.b": 1, "ok": False, "none": None},
    "tags": ["x", "y", "z", "more"],
}
ONE = {"event": {"id": 7, "status": "PROBLEM", "host": {"hostname": "web1"}}, "title": "Disk full"}
MANY = {
    "version": 1,
    "problems": [
        {"problem": {"key": "a", "state": "open", "level": "high", "title": "Down"}, "app": "web"},
        {"problem": {"key": "b", "state": "closed", "level": "low", "title": "Slow"}, "app": "db"},
    ],
}


def test_paths_lead_to_plain_values():
    assert [(one.path, one.example) for one in paths_in(NESTED)] == [
        ("check.host.name", "web1"),
        ("check.ok", "False"),
        *((f"tags.{number}", text) for number, text in enumerate("xyz")),
    ]
    assert lists_in(MANY) == (FoundPath(path="problems", example="2 of them"),)


def test_a_large_or_deep_sample_has_an_end():
    deep: object = 1
    for _level in range(30):
        deep = {"a": deep}
    assert paths_in(deep) == ()
    assert len(paths_in({f"n{number}": 1 for number in range(5_000)})) == 200
    assert len(paths_in({"long": "x" * 5_000})[0].example) <= 80


def test_usual_names_are_guessed_and_understood():
    paths = guess(ONE)
    assert {name: path for name, path in paths.items() if path} == {
        "fingerprint": "event.id",
        "state": "event.status",
        "service": "event.host.hostname",
        "summary": "title",
    }
    [alert] = preview(ONE, paths, NOW).alerts
    assert (alert.fingerprint, alert.service, alert.summary) == ("7", "web1", "Disk full")

    seen = preview(MANY, guess(MANY), NOW)
    assert [(one.service, one.summary, one.is_firing) for one in seen.alerts] == [
        ("web", "Down", True),
        ("db", "Slow", False),
    ]
    assert seen.paths["alerts"] == "problems"


@each_row(
    "body, paths",
    [
        (ONE, {}),
        (ONE, {"service": "nowhere"}),
        ([], {}),
        (None, {}),
        (json.loads("3"), {"service": "a.0"}),
        ({"a": []}, {"alerts": "a"}),
    ],
)
def test_paths_that_lead_nowhere_are_said(body, paths):
    seen = preview(body, {"fingerprint": "", "summary": "", "service": "", **paths}, NOW)
    assert (seen.alerts, bool(seen.problem)) == ((), True)
    chosen = {one.name: one.is_elsewhere for one in seen.fields}
    assert chosen["service"] == ("service" in paths)
