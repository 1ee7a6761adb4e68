"""Finds the paths of a generic source in a sample of its deliveries. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from escalation.alerts.parsers import (
    GENERIC_PATHS,
    ParsedAlert,
    ParserOptions,
    Unreadable,
    at_path,
    parse,
)
from sessions_app.models.alert import SourceKind
from sessions_app.text import one_line

MOST_PATHS, DEEPEST, MOST_MEMBERS = 200, 6, 3
LONGEST_EXAMPLE = 80
USUAL_NAMES = {
    "alerts": ("alerts", "events", "problems", "incidents", "items"),
    "fingerprint": ("fingerprint", "dedup_key", "alert_id", "incident_id", "event_id", "id", "key"),
    "state": ("state", "status", "event", "action", "type"),
    "service": ("service", "service_name", "app", "application", "host", "hostname", "component"),
    "severity": ("severity", "priority", "level", "urgency"),
    "summary": ("summary", "message", "title", "subject", "text", "description", "name"),
    "starts": ("starts", "startsat", "started_at", "start", "created_at", "timestamp", "time"),
    "ends": ("ends", "endsat", "ended_at", "resolved_at", "closed_at"),
}
"""Names under which senders put each field, the most telling first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundPath:
    path: str
    example: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldChoice:
    """The paths that a field may have, in the form that chooses them."""

    name: str
    chosen: str
    found: tuple[FoundPath, ...]

    @property
    def is_elsewhere(self) -> bool:
        """True if the chosen path leads nowhere in this sample."""
        return bool(self.chosen) and self.chosen not in {one.path for one in self.found}


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    """Reading of a sample with some paths, as it would be understood."""

    fields: tuple[FieldChoice, ...]
    alerts: tuple[ParsedAlert, ...] = ()
    problem: str = ""

    @property
    def paths(self) -> dict[str, str]:
        """The path of every field; an empty one overrules the usual path."""
        return {one.name: one.chosen for one in self.fields}


def preview(body: Any, paths: Mapping[str, str], now: datetime, service_label: str = "") -> Preview:
    """Read a sample by paths. An empty path leaves a field out."""
    fields = _choices(body, paths)
    chosen = {one.name: one.chosen for one in fields}
    options = ParserOptions(service_label=service_label, paths=chosen)
    try:
        parsed = parse(SourceKind.GENERIC, body, now, options)
    except Unreadable as unreadable:
        problem = f"{unreadable}: choose the path of fingerprint, service or summary"
        return Preview(fields=fields, problem=problem)
    return Preview(fields=fields, alerts=parsed.alerts)


def guess(body: Any) -> dict[str, str]:
    """Return a path for each field that a usual name tells."""
    lists = lists_in(body)
    alerts = _by_name("alerts", lists) or (lists[0].path if len(lists) == 1 else "")
    inside = paths_in(_member(body, alerts))
    names = {name: _by_name(name, inside) for name in GENERIC_PATHS if name != "alerts"}
    return {"alerts": alerts, **names}


def _by_name(field: str, found: tuple[FoundPath, ...]) -> str:
    for name in USUAL_NAMES[field]:
        matching = [one.path for one in found if one.path.rpartition(".")[2].lower() == name]
        if matching:
            return min(matching, key=lambda path: path.count("."))
    return ""


def _choices(body: Any, paths: Mapping[str, str]) -> tuple[FieldChoice, ...]:
    inside = paths_in(_member(body, paths.get("alerts", "")))
    return tuple(
        FieldChoice(
            name=name,
            chosen=paths.get(name, ""),
            found=lists_in(body) if name == "alerts" else inside,
        )
        for name in GENERIC_PATHS
    )


def _member(body: Any, alerts: str) -> Any:
    """Return one problem of the sample: paths of fields begin there."""
    found = at_path(body, alerts)
    return found[0] if isinstance(found, list) and found else found


def paths_in(value: Any) -> tuple[FoundPath, ...]:
    """Return the paths to texts, numbers and truths, with what stands there."""
    walked = (
        FoundPath(path=path, example=one_line(str(one), LONGEST_EXAMPLE))
        for path, one in _walk(value)
        if path and isinstance(one, str | int | float)
    )
    return tuple(one for _number, one in zip(range(MOST_PATHS), walked, strict=False))


def lists_in(value: Any) -> tuple[FoundPath, ...]:
    """Return the paths to lists of objects, which may be lists of alerts."""
    return tuple(
        FoundPath(path=path, example=f"{len(one)} of them")
        for path, one in _walk(value)
        if path and isinstance(one, list) and one and isinstance(one[0], Mapping)
    )[:MOST_PATHS]


def _walk(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    yield path, value
    if depth == DEEPEST:
        return
    inner: list[tuple[str, Any]] = []
    if isinstance(value, Mapping):
        # A dot divides the parts of a path, so that a name with a dot has none.
        inner = [(str(key), one) for key, one in value.items() if key and "." not in str(key)]
    elif isinstance(value, list):
        inner = [(str(number), one) for number, one in enumerate(value[:MOST_MEMBERS])]
    for name, one in inner:
        yield from _walk(one, f"{path}.{name}" if path else name, depth + 1)
