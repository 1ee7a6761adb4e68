"""Shapes of the API's answers, for its OpenAPI schema.

The data are those of `--json` of the commands. Each table lists the fields; a test compares them
with what is answered.
"""

from __future__ import annotations

from typing import Any

MOMENT = {"type": "string", "format": "date-time"}
TYPES: dict[str, dict[str, Any]] = {
    "text": {"type": "string"},
    "number": {"type": "number"},
    "integer": {"type": "integer"},
    "flag": {"type": "boolean"},
    "moment": MOMENT,
    "list": {"type": "array"},
    "object": {"type": "object"},
    "any": {},
}

# Name and type of each field; a question mark: may be null.
FIELDS = {
    "Watch": """
        name text, workdir text, instructions text, interval_minutes integer?, cron text?,
        enabled flag, grants text, manifest object, hosts list, ask text, max_tier integer,
        dry_run flag, approval list, step text, budget_day_usd any, restarts object,
        redeployments object, next_run moment?, failures_in_a_row integer,
        backed_off_until moment?, created_at moment, last_cycles list
    """,
    "Probe": """
        watch text, service text, name text, kind text, target text, options object,
        every_seconds integer, timeout_seconds integer, fail_after integer, recover_after integer,
        needs list, state text, since moment?, failing_since moment?, last_good_at moment?,
        last_run_at moment?, last_status any, last_seconds number?, last_output text,
        is_flapping flag, muted_until moment?, address text?
    """,
    "Source": "name text, kind text, watch text?, routes list, enabled flag",
    "Remedy": """
        name text, watch text, description text, command list, parameters list, kind text,
        service text?, tier integer, grants list, seconds integer, probe text?, undo text?,
        tier0_hours integer?, enabled flag, waits text?, script text?, digest text?,
        accepted_by text?, accepted_at moment?
    """,
    "RemedyRun": """
        id integer, remedy text, watch text, arguments list, incident integer?, by text?,
        state text, asked_at moment, started_at moment?, ended_at moment?, exit_code integer?,
        why text?, proof text?, output text
    """,
    "Cycle": """
        id integer, watch text?, drill text?, trigger text, prompt text?, workdir text,
        max_tier integer, dry_run flag, ephemeral flag, state text, outcome text?,
        outcome_reason text, created_at moment, finished_at moment?, sessions list
    """,
    "Session": """
        id integer, cycle integer, watch text?, drill text?, tier integer, purpose text,
        model text, status text, session_id text, parent_session_id integer?, cost_usd number?,
        cost_basis text?, turns integer, duration_ms integer?, continued_by text,
        escalation_reason text, error text, report any, services list, actions list,
        created_at moment?, started_at moment?, finished_at moment?, outcome text?,
        outcome_reason text
    """,
    "Message": "number integer, source text, type text, uuid text?, at text?, message any",
    "Event": "session integer, sequence integer, source text, kind text, payload any",
    "Incident": """
        id integer, title text, kind text, watch text?, drill text?, cause text, severity text,
        state text, seems_recovered flag, wants text, detail text, first_seen_at moment,
        last_seen_at moment, times_seen integer, times_reopened integer, owner text?,
        acknowledged_at moment?, snoozed_until moment?, verify_at moment?, remedy text?,
        resolved_at moment?, resolved_as text?
    """,
    "Approval": """
        id integer, kind text, state text, subject text, session integer, tier integer,
        command text, why text, asked_at moment, expires_at moment
    """,
    "Change": """
        id integer, at moment, session integer, cycle integer, watch text?, drill text?,
        kind text, service text?, action text, path text?, exit_code integer?, result text,
        reversal text?, can_be_undone flag, undone_at moment?, diff text?
    """,
    "Costs": """
        period text, drills flag, total object, tiers list, models list, watches list, days list,
        budgets list
    """,
    "Service": """
        service text, name text, watch text, status text, since moment, detail text, cycle integer?
    """,
    "Channel": """
        name text, service text, enabled flag, least_severity text, failures_in_a_row integer,
        last_error text?
    """,
    "Maintenance": """
        watch text, service text?, starts_at moment, ends_at moment?, is_weekly flag,
        holds_now flag, reason text
    """,
    "Status": """
        version text, sentence text, running list, queued integer, held_back text?,
        installation list, needs list, waiting_for_person integer, next_runs list,
        cost_today_usd number, runs_today integer, watches integer
    """,
    "Delivery": """
        id integer, source text, received_at moment, size integer, verdict text, became text,
        alerts list, cycle integer?
    """,
    "Said": "said text",
}


def _field(words: str) -> tuple[str, dict[str, Any]]:
    name, kind = words.split()
    schema = TYPES[kind.rstrip("?")]
    if kind.endswith("?"):
        schema = {**schema, "type": [schema["type"], "null"]}
    return name, schema


def fields_of(shape: str) -> dict[str, dict[str, Any]]:
    words = " ".join(FIELDS[shape].split())
    return dict(_field(one.strip()) for one in words.split(","))


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


VERSION = {"type": "integer", "description": "Version of the shapes."}


def schemas() -> dict[str, Any]:
    """Return the schemas of all shapes, of one of them, and of a page of them."""
    found: dict[str, Any] = {}
    for name in FIELDS:
        found[name] = _object(fields_of(name))
        found[f"One{name}"] = _object({"version": VERSION, "data": ref(name)})
        found[f"{name}List"] = _object(
            {
                "version": VERSION,
                "items": {"type": "array", "items": ref(name)},
                "next": {"type": ["string", "null"], "description": "`cursor` of the next page."},
            }
        )
    found["Data"] = _object({"version": VERSION, "data": {}})
    found["Problem"] = _object(
        {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "code": {"type": "string"},
            "detail": {"type": "string"},
            "instance": {"type": "string"},
        }
    )
    found["Problem"]["properties"]["errors"] = {"type": "array", "items": {"type": "object"}}
    return found


IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Any text: the same request with it is carried out once in 24 hours.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}
