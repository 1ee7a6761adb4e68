"""The structured report at the end of every session: its schema and its validation."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

if TYPE_CHECKING:
    from jsonschema import ValidationError

HEALTHY = "healthy"

_TEXT = {"type": "string"}


def _list_of(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    item = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    return {"type": "array", "items": item}


REPORT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "summary": {
            "type": "string",
            "minLength": 1,
            "description": "Two or three sentences for the person on call: the state, and why.",
        },
        "services": _list_of(
            {
                "name": _TEXT,
                "status": {"type": "string", "enum": [HEALTHY, "degraded", "down", "unknown"]},
                "detail": _TEXT,
            },
            ["name", "status"],
        ),
        "events": _list_of(
            {
                "level": {"type": "string", "enum": ["info", "warning", "critical"]},
                "service": _TEXT,
                "message": _TEXT,
            },
            ["level", "message"],
        ),
        "actions_taken": _list_of(
            {
                "action": _TEXT,
                "service": _TEXT,
                "result": {"type": "string", "enum": ["succeeded", "failed", "skipped"]},
            },
            ["action", "result"],
        ),
        "escalation": {
            "type": "object",
            "properties": {
                "needed": {"type": "boolean"},
                "reason": _TEXT,
                "services": {"type": "array", "items": _TEXT},
            },
            "required": ["needed", "reason", "services"],
            "additionalProperties": False,
        },
        "probes": {
            **_list_of(
                {
                    "service": _TEXT,
                    "kind": {
                        "type": "string",
                        "enum": [
                            *("http", "tcp", "dns", "command"),
                            *("file", "disk", "container", "unit"),
                        ],
                    },
                    "target": {
                        "type": "string",
                        "description": "URL, HOST:PORT, name, path, or a command that only reads "
                        "and ends like a Nagios plugin.",
                    },
                    "why": _TEXT,
                },
                ["service", "kind", "target"],
            ),
            "description": "Optional. Looks without a model that would have noticed the problem; "
            "a person accepts them. Leave it out if nothing was wrong or a probe had seen it.",
        },
    },
    "required": ["summary", "services", "events", "actions_taken", "escalation"],
    "additionalProperties": False,
}
REPORT_SCHEMA_JSON = json.dumps(REPORT_SCHEMA, separators=(",", ":"))


class Service(TypedDict, total=False):
    name: str
    status: str
    detail: str


class ReportedAction(TypedDict, total=False):
    action: str
    service: str
    result: str


class EscalationRequest(TypedDict):
    needed: bool
    reason: str
    services: list[str]


class ReportedProbe(TypedDict, total=False):
    service: str
    kind: str
    target: str
    why: str


class Report(TypedDict):
    summary: str
    services: list[Service]
    events: list[dict[str, str]]
    actions_taken: list[ReportedAction]
    escalation: EscalationRequest
    probes: NotRequired[list[ReportedProbe]]


def checked_report(value: Any) -> tuple[Report | None, str]:
    """Validate a report; return it, or None and the problem."""
    if value is None:
        return None, "the run ended without a report"
    problem = _worst_problem()(value)
    if problem is not None:
        place = "/".join(str(part) for part in problem.absolute_path) or "the report"
        return None, f"the report is not valid: {place}: {problem.message[:300]}"
    return value, ""


@cache
def _worst_problem() -> Callable[[Any], ValidationError | None]:
    # Imported here because the library takes 8 MB.
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    validator = Draft202012Validator(REPORT_SCHEMA)
    return lambda value: best_match(validator.iter_errors(value))
