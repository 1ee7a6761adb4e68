"""A tier's report as the page shows it, whatever the model made of the schema.

The record keeps reports of every version of the schema, and one that failed its check, so a field
is looked for under the names it may have and what is left over is shown as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sessions_app.reading.claims import Claim
from sessions_app.reading.plain_text import as_text, cut

LONGEST_TEXT = 4_000
LONGEST_LIST = 200

NAMES = ("name", "action", "service", "title", "what", "description", "message", "summary")
STATES = ("status", "level", "severity", "result", "outcome", "state")
KNOWN_FIELDS = ("summary", "services", "events", "actions", "actions_taken", "escalation")
WISHES = ("needed", "requested", "required", "wanted", "escalate")


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportItem:
    name: str
    state: str
    detail: str
    claim: Claim | None = None
    """What the record says of an action, where it was asked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    summary: str
    services: tuple[ReportItem, ...]
    events: tuple[ReportItem, ...]
    actions: tuple[ReportItem, ...]
    wants_escalation: bool
    escalation: str
    other: tuple[ReportItem, ...]
    """Fields that this page has no place for."""


def read_report(value: Any) -> Report | None:
    if value is None or value in ("", {}, []):
        return None
    if not isinstance(value, Mapping):
        value = {"summary": value}
    escalation = value.get("escalation")
    return Report(
        summary=_short(value.get("summary")),
        services=_items(value.get("services")),
        events=_items(value.get("events")),
        actions=_items(value.get("actions_taken") or value.get("actions")),
        wants_escalation=_wants(escalation),
        escalation=_escalation_text(escalation),
        other=tuple(
            ReportItem(name=as_text(key), state="", detail=_short(content))
            for key, content in value.items()
            if key not in KNOWN_FIELDS
        ),
    )


def read_facts(value: Any) -> tuple[ReportItem, ...]:
    """Facts of any shape as rows of a table: their names in words, their values as text."""
    facts = value if isinstance(value, Mapping) else {"facts": value} if value else {}
    return tuple(
        ReportItem(name=as_text(name).replace("_", " "), state="", detail=_short(content))
        for name, content in list(facts.items())[:LONGEST_LIST]
    )


def _items(value: Any) -> tuple[ReportItem, ...]:
    if isinstance(value, Mapping):
        value = [{"name": name, "status": state} for name, state in value.items()]
    entries = value if isinstance(value, list) else [value] if value else []
    return tuple(_item(entry) for entry in entries[:LONGEST_LIST])


def _item(entry: Any) -> ReportItem:
    if not isinstance(entry, Mapping):
        return ReportItem(name=_short(entry), state="", detail="")
    name_key = next((key for key in NAMES if entry.get(key)), None)
    state_key = next((key for key in STATES if entry.get(key)), None)
    rest = [
        _labelled(as_text(key), _short(content))
        for key, content in entry.items()
        if key not in (name_key, state_key) and content not in (None, "", [], {})
    ]
    return ReportItem(
        name=_short(entry.get(name_key)) if name_key else "",
        state=_short(entry.get(state_key)) if state_key else "",
        detail="\n".join(rest),
    )


def _labelled(key: str, content: str) -> str:
    return content if key in ("detail", "details", "message") else f"{key}: {content}"


def _wants(escalation: Any) -> bool:
    if isinstance(escalation, Mapping):
        return any(escalation.get(wish) is True for wish in WISHES)
    return escalation is True


def _escalation_text(escalation: Any) -> str:
    if not isinstance(escalation, Mapping):
        return "" if isinstance(escalation, bool) else _short(escalation)
    told = {k: v for k, v in escalation.items() if k not in WISHES and v not in (None, "", [])}
    reason = _short(told.pop("reason", ""))
    return "\n".join(filter(None, [reason, *(f"{k}: {_short(v)}" for k, v in told.items())]))


def _short(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
        value = ", ".join(value)
    return cut(as_text(value), LONGEST_TEXT)
