"""The record of a chain, as claims are held against it: changes, edits, and what did not run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from sessions_app.models import Change, SessionEvent
from sessions_app.reading.claims import Claim, Finding, Recorded, Result, judged, outcome_of
from sessions_app.reading.plain_text import as_text
from sessions_app.reading.report_text import LONGEST_LIST, Report
from sessions_app.reading.stream_shape import mapping
from sessions_app.reading.walls import ASK, CONTAIN, DENY, GATE, GATE_END

MOST_READ = 2_000
"""Of the changes and of the commands of one chain."""


def claims_in(report: Any, cycle: int) -> tuple[Claim, ...]:
    """What a report says was done, each held against the record of its cycle. No query where it
    claims nothing; two where something is not seen among the changes, else one."""
    listed = mapping(report).get("actions_taken") or mapping(report).get("actions")
    claimed = [mapping(one) for one in listed[:LONGEST_LIST]] if isinstance(listed, list) else []
    if not claimed:
        return ()
    record = dict(_changes(cycle))
    claims = _judged_all(claimed, record)
    if any(claim.finding is Finding.CLAIMED for claim in claims) or _has_failures(claims):
        claims = _judged_all(claimed, record | dict(_commands(cycle)))
    return claims


def marked_report(report: Report | None, value: Any, cycle: int) -> Report | None:
    """The report as it is shown, its actions with what the record says of them."""
    claims = claims_in(value, cycle) if report else ()
    if report is None or not claims:
        return report
    marked = [
        replace(item, claim=claim) for item, claim in zip(report.actions, claims, strict=False)
    ]
    return replace(report, actions=tuple(marked))


def _has_failures(claims: Iterable[Claim]) -> bool:
    """A later command that nobody understands may have done what failed first."""
    return any(claim.finding is Finding.OTHERWISE for claim in claims)


def _judged_all(
    claimed: Iterable[Mapping[str, Any]], record: Mapping[tuple[datetime, str], Recorded]
) -> tuple[Claim, ...]:
    in_order = [record[at] for at in sorted(record)]
    return tuple(
        judged(
            as_text(one.get("action")),
            as_text(one.get("service")),
            as_text(one.get("result")),
            in_order,
        )
        for one in claimed
    )


def _changes(cycle: int) -> Iterable[tuple[tuple[datetime, str], Recorded]]:
    rows = Change.objects.filter(session__cycle=cycle).order_by("-pk")[:MOST_READ]
    for row in rows.defer("diff"):
        yield (row.at, f"{row.call} {row.number}"), _recorded(row)


def _recorded(row: Change) -> Recorded:
    if row.is_edit:
        return Recorded(action=row.action, kind=row.kind, path=row.path, told="edited")
    told = "its end is not known" if row.exit_code is None else f"exit code {row.exit_code}"
    return Recorded(
        action=row.action,
        service=row.service,
        kind=row.kind,
        result=outcome_of(row.command, row.exit_code),
        told=told,
    )


def _commands(cycle: int) -> Iterable[tuple[tuple[datetime, str], Recorded]]:
    """What was denied, and what ran without being understood."""
    events = SessionEvent.objects.filter(
        session__cycle=cycle,
        source=SessionEvent.Source.SUPERVISOR,
        kind__in=(GATE, GATE_END),
    ).order_by("-pk")[:MOST_READ]
    begun: dict[str, Mapping[str, Any]] = {}
    for event in sorted(events, key=lambda event: (event.created_at, event.pk)):
        data = mapping(event.payload)
        call = as_text(data.get("call"))
        asked = begun.get(call, {})
        if event.kind == GATE:
            begun[call] = data
            found = _refused(data, f"denied ({as_text(data.get('rule'))})", DENY)
        elif data.get("has_run") is False:
            found = _refused(asked, "not approved", ASK)
        else:
            is_open = asked.get("verdict") == CONTAIN and data.get("exit_code") == 0
            found = [Recorded(action="", told="not understood")] if is_open else []
        for number, one in enumerate(found):
            yield (event.created_at, f"{call} {number} {event.kind}"), one


def _refused(data: Mapping[str, Any], told: str, verdict: str) -> list[Recorded]:
    changes = _words(data.get("changes")) if data.get("verdict") == verdict else []
    return [Recorded(action=change, result=Result.DENIED, told=told) for change in changes]


def _words(value: Any) -> list[str]:
    return [as_text(word) for word in value] if isinstance(value, list) else []
