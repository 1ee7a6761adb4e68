from __future__ import annotations

import json

import jsonschema
import pytest

from escalation.report import REPORT_SCHEMA, REPORT_SCHEMA_JSON, checked_report
from tests.escalation.rows import ESCALATE, HEALTHY
from tests.tables import each_row


def test_the_schema_is_itself_valid():
    jsonschema.Draft202012Validator.check_schema(REPORT_SCHEMA)

    assert json.loads(REPORT_SCHEMA_JSON) == REPORT_SCHEMA


def test_the_schema_fits_one_argument_of_a_command_line():
    assert len(REPORT_SCHEMA_JSON) < 128 * 1024
    assert "\n" not in REPORT_SCHEMA_JSON


PROBE = {"service": "web", "kind": "tcp", "target": "127.0.0.1:80", "why": "It was down."}


@pytest.mark.parametrize("report", [HEALTHY, ESCALATE, {**HEALTHY, "probes": [PROBE]}])
def test_a_valid_report_is_unchanged(report):
    assert checked_report(report) == (report, "")


def test_missing_report_is_a_problem():
    assert checked_report(None) == (None, "the run ended without a report")


def changed(**fields):
    return {**HEALTHY, **fields}


@each_row(
    ("value", "place"),
    [
        ("a string", "the report"),
        ([], "the report"),
        (True, "the report"),
        ({}, "the report"),
        ({key: value for key, value in HEALTHY.items() if key != "escalation"}, "'escalation'"),
        (changed(more="fields"), "'more'"),
        (changed(summary=""), "summary"),
        (changed(summary=None), "summary"),
        (changed(services="web"), "services"),
        (changed(services=[{"name": "web"}]), "services/0"),
        (changed(services=[{"name": "web", "status": "fine"}]), "services/0/status"),
        (changed(services=[{"name": 7, "status": "down"}]), "services/0/name"),
        (changed(events=[{"level": "loud", "message": "x"}]), "events/0/level"),
        (changed(probes=[{"service": "web", "kind": "heartbeat", "target": ""}]), "probes/0/kind"),
        (changed(probes=[{"service": "web", "kind": "tcp"}]), "probes/0"),
        (changed(actions_taken=[{"action": "x", "result": "maybe"}]), "actions_taken/0/result"),
        (changed(escalation={"needed": True}), "escalation"),
        (
            changed(escalation={"needed": "yes", "reason": "", "services": []}),
            "escalation/needed",
        ),
        (changed(escalation={"needed": 1, "reason": "", "services": []}), "escalation/needed"),
        (changed(escalation={"needed": True, "reason": "", "services": [1]}), "services/0"),
    ],
)
def test_invalid_report_is_refused_with_its_position(value, place):
    report, problem = checked_report(value)

    assert report is None
    assert place in problem


def test_the_problem_of_a_huge_report_is_short():
    _report, problem = checked_report(changed(summary=["x" * 1_000_000]))

    assert len(problem) < 500
