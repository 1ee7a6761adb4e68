from __future__ import annotations

import pytest

from sessions_app.history.claims import ReportItem, ShownReport, read_facts, read_report
from tests.tables import each_row

REPORT = {
    "summary": "web is down",
    "services": [{"name": "web", "status": "down", "detail": "exit 137"}],
    "events": [{"level": "critical", "service": "web", "message": "disk full"}],
    "actions_taken": [{"action": "docker restart web", "service": "web", "result": "failed"}],
    "escalation": {"needed": True, "reason": "needs room", "services": ["web", "db"]},
}


def read(value: object) -> ShownReport:
    report = read_report(value)
    assert report is not None
    return report


def test_it_reads_services_with_their_state():
    assert read(REPORT).services == (ReportItem(name="web", state="down", detail="exit 137"),)


def test_it_reads_events_with_their_level():
    assert read(REPORT).events == (ReportItem(name="web", state="critical", detail="disk full"),)


def test_it_reads_actions_with_their_result():
    assert read(REPORT).actions == (
        ReportItem(name="docker restart web", state="failed", detail="service: web"),
    )


def test_it_reads_the_request_for_escalation():
    report = read(REPORT)

    assert report.wants_escalation
    assert report.escalation == "needs room\nservices: web, db"


def test_it_keeps_unknown_fields():
    assert read({**REPORT, "mood": 3}).other == (ReportItem(name="mood", state="", detail="3"),)


@pytest.mark.parametrize("nothing", [None, "", {}, []])
def test_a_missing_report_is_none(nothing):
    assert read_report(nothing) is None


@each_row("odd", [3, "text", [1, 2], {"services": 3}, {"events": [None, [1]]}])
def test_it_never_fails_on_a_malformed_report(odd):
    assert read(odd)


def test_a_truthy_text_is_not_a_request_for_escalation():
    assert not read({"escalation": {"needed": "no"}}).wants_escalation


@each_row(
    ("facts", "rows"),
    [
        ({"context_tokens": 7, "cli": None}, [("context tokens", "7"), ("cli", "")]),
        ({"a": {"b": [1]}}, [("a", '{"b": [1]}')]),
        (["odd"], [("facts", "odd")]),
        ({}, []),
        (None, []),
    ],
)
def test_facts_of_any_shape_become_rows(facts, rows):
    assert [(row.name, row.detail) for row in read_facts(facts)] == rows
