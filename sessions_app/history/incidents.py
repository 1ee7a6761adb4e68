"""Advice, costs, timeline and post-mortem of incidents, and queries for the inbox."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from statistics import median
from typing import Any

from django.db.models import Count, Min, QuerySet, Subquery, Sum, Value
from django.utils import timezone

from sessions_app.models import Approval, Change, Cycle, Incident, IncidentEvent, Session
from sessions_app.models.incident import IncidentQuerySet
from sessions_app.models.installation import moment_text
from sessions_app.models.session import LONG_FIELDS
from sessions_app.text import clean, duration, money, one_line

LONGEST_NOTE = 5_000
ADVICE_LENGTH = 300
MORNING = 8
SNOOZES = {
    "1h": "1 hour",
    "8h": "8 hours",
    "tomorrow": f"until tomorrow {MORNING}:00",
    "3d": "3 days",
}
PERIODS = {"1h": timedelta(hours=1), "8h": timedelta(hours=8), "3d": timedelta(days=3)}
State, Kind = Incident.State, Incident.Kind


def snooze_until(name: str, now: datetime) -> datetime | None:
    """Return the end of a snooze, or None for an unknown name. Tomorrow is in local time."""
    if name != "tomorrow":
        return now + PERIODS[name] if name in PERIODS else None
    here = timezone.localtime(now)
    morning = datetime.combine(here.date() + timedelta(days=1), datetime.min.time())
    return timezone.make_aware(morning.replace(hour=MORNING), here.tzinfo)


def wish_of(incident: Incident) -> str:
    """Return one line of advice for a person."""
    if incident.state == State.RESOLVED:
        return f"Nothing: {incident.get_resolved_as_display()}."
    if incident.is_snoozed:
        return f"Nothing until {moment_text(incident.snoozed_until)}: it is snoozed."
    if incident.state == State.WORKING:
        return "Nothing yet: a chain is working on it."
    if incident.state == State.VERIFYING:
        return _verifying(incident)
    if incident.seems_recovered:
        return "Nothing: the last cycle found it healthy, and one more resolves it."
    if incident.state == State.ACKNOWLEDGED and incident.has_woken:
        return f"Look at it again: it was snoozed until {moment_text(incident.snoozed_until)}."
    if incident.state == State.ACKNOWLEDGED and incident.owner is not None:
        name = incident.owner.get_username()
        if incident.owner_is_gone:
            return f"Assign it: the account of its owner {name} is disabled."
        return f"{name} owns it."
    return _asking(incident)


def _verifying(incident: Incident) -> str:
    if incident.verify_at is None:
        return "Nothing yet: a new cycle is verifying the fix."
    when = moment_text(incident.verify_at)
    if incident.is_unverified:
        return (
            f"Look whether the fix holds: it is not verified. The verification was due at {when}, "
            "and no cycle could start."
        )
    return f"Nothing yet: a new cycle verifies the fix at {when}."


def _asking(incident: Incident) -> str:
    if incident.kind == Kind.COULD_NOT_RUN:
        why = f": {one_line(incident.detail, ADVICE_LENGTH)}" if incident.detail else "."
        return f"Correct the configuration{why}{backing_off(incident)}"
    if incident.watch is None and not incident.drill:
        return "Resolve it: its watch was removed, so no cycle will check it again."
    if incident.times_reopened and incident.remedy:
        return f"Look at it yourself: this fix failed: {incident.remedy}"
    if incident.verifications_tried:
        return "Verify the fix: no cycle could."
    return f"Look at it: it has no owner yet.{backing_off(incident)}"


def backing_off(incident: Incident) -> str:
    """Return a sentence about a skipped schedule, or an empty string."""
    watch = incident.watch
    if watch is None or not watch.is_backed_off:
        return ""
    return (
        f" It failed {watch.failures_in_a_row} times in a row, so its schedule is skipped until "
        f"{moment_text(watch.backed_off_until)}."
    )


# The cost of an incident is that of the sessions of its cycles. Two incidents may share a cycle, so
# sums over several count each session once. Drills do not count.

ResolvedBy, Step = Incident.ResolvedBy, IncidentEvent.Kind
LOOKED_AT = 300
"""Number of the latest fixed incidents for cost and time to repair."""
Run = tuple[int, Decimal | None, datetime | None]
"""Cycle, cost and end of a session."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownCost:
    runs: int
    cost_usd: Decimal
    without_figure: int
    """Ended sessions without a reported cost; estimates are not added."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IncidentCost(KnownCost):
    chains: Mapping[int, KnownCost]
    """Cost of each of its cycles, by id."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IncidentFigures:
    """Figures of the incidents that were resolved in a period."""

    resolved: int
    fixed: int
    """Fixed by the agent and verified."""
    cost_per_fix: Decimal | None
    time_to_repair: timedelta | None
    """Median time of the fixed ones from the first cycle to the verification."""
    looked_at: int
    """Number of fixed incidents behind cost and time."""


def cost_of(incident: Incident) -> IncidentCost:
    """Return the cost of an incident, with one query."""
    begun = Session.objects.filter(cycle__incidents=incident, started_at__isnull=False)
    runs = list(begun.values_list("cycle_id", "cost_usd", "finished_at"))
    by_chain: dict[int, list[Run]] = defaultdict(list)
    for run in runs:
        by_chain[run[0]].append(run)
    chains = {cycle: KnownCost(**_figures(own)) for cycle, own in by_chain.items()}
    return IncidentCost(**_figures(runs), chains=chains)


def _figures(runs: Sequence[Run]) -> dict[str, Any]:
    return {
        "runs": len(runs),
        "cost_usd": sum((cost for _cycle, cost, _end in runs if cost is not None), Decimal(0)),
        "without_figure": sum(cost is None and end is not None for _cycle, cost, end in runs),
    }


def figures_since(start: datetime) -> IncidentFigures:
    """Return the figures since a time, with two queries."""
    ended = Incident.objects.filter(drill="", resolved_at__gte=start).order_by()
    fixed = ended.filter(resolved_as=ResolvedBy.AGENT).order_by("-resolved_at", "-pk")[:LOOKED_AT]
    latest = list(fixed.values_list("first_seen_at", "resolved_at"))
    seconds = [(until - first).total_seconds() for first, until in latest if until]
    grouped: Any = ended.values("resolved_as")
    kinds = list(grouped.annotate(count=Count("pk"), cost=Min(_cost_of(fixed))))
    counted = {kind["resolved_as"]: kind["count"] for kind in kinds}
    spent = kinds[0]["cost"] or Decimal(0) if kinds else Decimal(0)
    return IncidentFigures(
        resolved=sum(counted.values()),
        fixed=counted.get(ResolvedBy.AGENT, 0),
        cost_per_fix=spent / len(latest) if latest else None,
        time_to_repair=timedelta(seconds=median(seconds)) if seconds else None,
        looked_at=len(latest),
    )


def _cost_of(incidents: QuerySet[Incident]) -> Subquery:
    """Return the cost of all incidents together; each session counts once."""
    cycles = Incident.cycles.through.objects.filter(incident__in=incidents.values("pk"))
    runs: Any = Session.objects.filter(cycle__in=cycles.values("cycle")).order_by()
    together = runs.annotate(all=Value(1)).values("all").annotate(total=Sum("cost_usd"))
    return Subquery(together.values("total"))


def failed_remedies(events: Iterable[IncidentEvent]) -> tuple[str, ...]:
    """Return the fixes that failed, newest last."""
    return tuple(event.text for event in events if event.kind == Step.DID_NOT_HOLD and event.text)


def remedies_that_failed(cycle: Cycle) -> list[str]:
    """Return all failed fixes for the causes of a cycle's incidents."""
    own = cycle.incidents.all()
    of_these = IncidentEvent.objects.filter(
        kind=Step.DID_NOT_HOLD,
        incident__scope__in=own.values("scope"),
        incident__cause__in=own.values("cause"),
    )
    return list(of_these.exclude(text="").order_by("pk").values_list("text", flat=True))


def linked_incidents(incident: Incident, opened_by: int | None) -> IncidentQuerySet:
    """Select the other incidents that the same cycle opened: they may have one cause."""
    same = IncidentEvent.objects.filter(kind=Step.OPENED, cycle=opened_by, cycle__isnull=False)
    others = Incident.objects.filter(pk__in=same.values("incident")).exclude(pk=incident.pk)
    return others.select_related("watch", "owner").order_by("pk")


def unresolved_incidents() -> IncidentQuerySet:
    """Select unresolved incidents, the most severe and then the oldest first."""
    rows = Incident.objects.filter(state__in=Incident.UNRESOLVED_STATES)
    return rows.select_related("watch", "owner").order_by("-severity", "first_seen_at", "pk")


EVENTS_SEARCHED = 5_000


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundByCount:
    """Number of incidents by who found them, and how long it took to notice them."""

    found_by: str
    count: int
    notice_seconds: float | None
    """Median; None where nobody knows when the failure began."""


def found_by_counts(since: datetime) -> tuple[FoundByCount, ...]:
    """Return how the latest incidents of a period were found, without drills."""
    rows = Incident.objects.filter(first_seen_at__gte=since, drill="").order_by("-pk")
    waits: dict[str, list[float | None]] = {}
    for found_by, seen, began in rows.values_list("found_by", "first_seen_at", "began_at")[
        :LOOKED_AT
    ]:
        took = max(0.0, (seen - began).total_seconds()) if began else None
        waits.setdefault(found_by, []).append(took)
    return tuple(
        FoundByCount(
            found_by=label,
            count=len(waits[value]),
            notice_seconds=median(known) if known else None,
        )
        for value, label in Incident.FoundBy.choices
        if value in waits
        for known in [[took for took in waits[value] if took is not None]]
    )


def disagreements(since: datetime) -> list[dict[str, Any]]:
    """Return how often a report said healthy while a probe said down, by tier and model.

    Only the latest events are searched, along the index that leaves out `seen`.
    """
    latest = IncidentEvent.objects.exclude(kind=Step.SEEN).order_by("-pk").values("pk")
    rows = IncidentEvent.objects.filter(
        pk__in=latest[:EVENTS_SEARCHED], kind=Step.CONTRADICTED, at__gte=since
    )
    counted = rows.values("session__tier", "session__model").annotate(times=Count("pk"))
    return [
        {"tier": row["session__tier"], "model": row["session__model"], "times": row["times"]}
        for row in counted.order_by("session__tier", "session__model")
    ]


# Timeline: what was seen, asked, answered, changed, verified and resolved, in order of time.


class Mark(StrEnum):
    """Kind of an entry, which decides its sign and colour."""

    SEEN = "seen"
    WORKED_ON = "worked_on"
    ASKED = "asked"
    APPROVED = "approved"
    REJECTED = "rejected"
    CHANGED = "changed"
    CLAIMED = "claimed"
    VERIFIED = "verified"
    FAILED = "failed"
    PERSON = "person"
    RESOLVED = "resolved"


MARKS: dict[str, Mark] = {
    Step.OPENED: Mark.SEEN,
    Step.SEEN: Mark.SEEN,
    Step.WORSE: Mark.SEEN,
    Step.REOPENED: Mark.SEEN,
    Step.CONTRADICTED: Mark.FAILED,
    Step.WORKED_ON: Mark.WORKED_ON,
    Step.APPROVED: Mark.APPROVED,
    Step.REJECTED: Mark.REJECTED,
    Step.FIXED: Mark.CLAIMED,
    Step.RECOVERED: Mark.VERIFIED,
    Step.VERIFIED: Mark.VERIFIED,
    Step.DID_NOT_HOLD: Mark.FAILED,
    Step.NOT_VERIFIED: Mark.FAILED,
    Step.ACKNOWLEDGED: Mark.PERSON,
    Step.SNOOZED: Mark.PERSON,
    Step.HANDED_OVER: Mark.PERSON,
    Step.NOTED: Mark.PERSON,
    Step.RESOLVED: Mark.RESOLVED,
}
APPROVALS_SHOWN = CHANGES_SHOWN = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class TimelineEntry:
    """One entry of the timeline, or several equal sightings in a row."""

    at: datetime
    mark: Mark
    title: str
    text: str = ""
    by: str = ""
    way: str = ""
    """Place of an answer: on the page, in a terminal, by the link in a message."""
    command: str = ""
    """Command that was asked for; shown to those who may see output."""
    change: Change | None = None
    cycle: int | None = None
    session: int | None = None
    times: int = 1
    until: datetime | None = None
    """Time of the last of equal sightings."""
    chain: KnownCost | None = None
    """Cost of a cycle, at the first entry of that cycle."""


def timeline(
    incident: Incident,
    events: Iterable[IncidentEvent],
    approvals: Iterable[Approval] = (),
    changes: Iterable[Change] = (),
    cost: IncidentCost | None = None,
) -> tuple[TimelineEntry, ...]:
    """Return the entries in order of time; an answer is told once, with its person and place."""
    asked = list(approvals)
    told = {(one.session_id, one.state) for one in asked}
    entries = [
        *(
            _of_event(incident, event)
            for event in events
            if event.kind not in ANSWERS or (event.session_id, event.kind) not in told
        ),
        *(entry for approval in asked for entry in _of_approval(approval)),
        *(_of_change(change) for change in changes),
    ]
    ordered = sorted(entries, key=lambda entry: entry.at)
    return tuple(_with_costs(_folded(ordered), cost.chains if cost else {}))


ANSWERS = {Step.APPROVED: Approval.State.APPROVED, Step.REJECTED: Approval.State.REJECTED}
FOUND = {
    Incident.FoundBy.PROBE: "Seen by a probe",
    Incident.FoundBy.ALERT: "Seen by an alert",
    Incident.FoundBy.MODEL: "Seen by Claude",
    Incident.FoundBy.PERSON: "Reported by a person",
}


def _of_event(incident: Incident, event: IncidentEvent) -> TimelineEntry:
    title = str(event.get_kind_display()).capitalize()
    if event.kind == Step.OPENED:
        title = FOUND.get(Incident.FoundBy(incident.found_by), title)
    elif event.kind == Step.RESOLVED and incident.resolved_as:
        title = f"Resolved: {incident.get_resolved_as_display()}"
    return TimelineEntry(
        at=event.at,
        mark=MARKS.get(event.kind, Mark.PERSON),
        title=title,
        text=event.text,
        by=event.by.get_username() if event.by else "",
        cycle=event.cycle_id,
        session=event.session_id,
    )


def _of_approval(approval: Approval) -> Iterator[TimelineEntry]:
    session, cycle = approval.session_id, approval.session.cycle_id
    yield TimelineEntry(
        at=approval.asked_at,
        mark=Mark.ASKED,
        title=f"Asked for {approval.subject}",
        text=approval.why,
        command=approval.command,
        cycle=cycle,
        session=session,
    )
    if approval.decided_at is not None:
        is_approved = approval.state == Approval.State.APPROVED
        yield TimelineEntry(
            at=approval.decided_at,
            mark=Mark.APPROVED if is_approved else Mark.REJECTED,
            title=f"{str(approval.get_state_display()).capitalize()}: {approval.subject}",
            text=approval.note,
            by=approval.decided_by.get_username() if approval.decided_by else "",
            way=str(approval.get_way_display()) if approval.way else "",
            cycle=cycle,
            session=session,
        )


def _of_change(change: Change) -> TimelineEntry:
    return TimelineEntry(
        at=change.at,
        mark=Mark.FAILED if change.has_failed else Mark.CHANGED,
        title="Failed" if change.has_failed else "Undone" if change.undone_at else "Changed",
        change=change,
        cycle=change.session.cycle_id,
        session=change.session_id,
    )


def _folded(entries: Iterable[TimelineEntry]) -> list[TimelineEntry]:
    """Fold equal sightings in a row into one entry."""
    folded: list[TimelineEntry] = []
    for entry in entries:
        last = folded[-1] if folded else None
        if last and entry.mark == Mark.SEEN and _says_the_same(last, entry):
            folded[-1] = replace(last, times=last.times + 1, until=entry.at)
        else:
            folded.append(entry)
    return folded


def _says_the_same(last: TimelineEntry, entry: TimelineEntry) -> bool:
    return (last.mark, last.title, last.text) == (entry.mark, entry.title, entry.text)


def _with_costs(
    entries: Iterable[TimelineEntry], chains: Mapping[int, KnownCost]
) -> Iterator[TimelineEntry]:
    """Add the cost of each cycle to its first entry."""
    told: set[int] = set()
    for entry in entries:
        cycle = entry.cycle
        is_new = cycle is not None and cycle not in told
        if cycle is not None:
            told.add(cycle)
        yield replace(entry, chain=chains.get(cycle)) if cycle and is_new else entry


def approvals_of(incident: Incident) -> QuerySet[Approval]:
    """Select the approvals of the cycles that worked on an incident."""
    found = Approval.objects.filter(session__cycle__incidents=incident)
    return found.select_related("session", "decided_by").order_by("pk")[:APPROVALS_SHOWN]


def changes_of(incident: Incident) -> QuerySet[Change]:
    """Select the changes of all cycles that worked on an incident, in order of time."""
    long = (f"session__{name}" for name in LONG_FIELDS)
    found = Change.objects.filter(session__cycle__incidents=incident).select_related("session")
    return found.defer(*long).order_by("at", "pk")[:CHANGES_SHOWN]


def time_to_repair(incident: Incident) -> timedelta | None:
    """Return the time from the first sighting to the end, which includes the verification."""
    ended = incident.resolved_at
    return ended - incident.first_seen_at if ended else None


def sentence_of(incident: Incident, cost: KnownCost, now: datetime) -> str:
    """Return an incident in one sentence: "web: pool exhausted, fixed in 18 s for $0.09"."""
    end = incident.resolved_at
    took = duration(((end or now) - incident.first_seen_at).total_seconds() * 1000)
    spent = f" for {money(cost.cost_usd)}" if cost.runs else ""
    return f"{incident.title.rstrip('.')}, {_course(incident, took)}{spent}"


def _course(incident: Incident, took: str) -> str:
    match incident.state, incident.resolved_as:
        case State.RESOLVED, ResolvedBy.AGENT:
            return f"fixed in {took}"
        case State.RESOLVED, ResolvedBy.REMEDY:
            return f"fixed by a remedy in {took}"
        case State.RESOLVED, ResolvedBy.ITSELF:
            return f"recovered by itself after {took}"
        case State.RESOLVED, _:
            by = incident.resolved_by
            who = f" by {by.get_username()}" if by else ""
            return f"resolved{who} after {took}"
        case State.WORKING, _:
            return f"being worked on since {took}"
        case State.VERIFYING, _:
            return f"fixed and being verified after {took}"
    return f"{'seems recovered' if incident.seems_recovered else 'open'} after {took}"


# Post-mortem, as Markdown. Text of the record is quoted: it must neither format nor link.

_MARKUP = re.compile(r"([\\`*\[\]<>|])")
LONGEST_ENTRY, LONGEST_QUOTE = 500, 6_000


def postmortem(
    incident: Incident,
    entries: Sequence[TimelineEntry],
    cost: IncidentCost,
    *,
    now: datetime,
    with_output: bool,
) -> str:
    """Return an incident as Markdown. Commands and diffs are for those who may see output."""
    return "\n".join(
        (
            f"# {_inline(sentence_of(incident, cost, now))}",
            "",
            *_facts(incident, cost),
            *_section("What it was", [_inline(incident.detail)] if incident.detail else []),
            *_section("Timeline", [_line(entry, with_output) for entry in entries]),
            *_section("What was changed", _changed(entries, with_output)),
            *_section("What did not hold", _failed(entries)),
            "## To do",
            "",
            "- [ ] ",
            "",
        )
    )


def _facts(incident: Incident, cost: IncidentCost) -> Iterator[str]:
    repair = time_to_repair(incident)
    facts = {
        "Incident": f"{incident.pk} of {_inline(incident.subject)}",
        "Severity": incident.get_severity_display(),
        "State": str(incident.get_state_display()),
        "Found by": incident.get_found_by_display(),
        "Began": moment_text(incident.began_at) if incident.began_at else "",
        "First seen": moment_text(incident.first_seen_at),
        "Resolved": moment_text(incident.resolved_at) if incident.resolved_at else "",
        "Time to repair": duration(repair.total_seconds() * 1000) if repair else "",
        "Cost": f"{money(cost.cost_usd)} in {cost.runs} sessions" if cost.runs else "",
        "Who has it": _inline(incident.owner.get_username()) if incident.owner else "",
        "Fix": _inline(incident.remedy),
    }
    yield "| | |"
    yield "| --- | --- |"
    yield from (f"| {name} | {value} |" for name, value in facts.items() if value)
    yield ""


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield from (f"## {title}", "", *lines, "")


def _line(entry: TimelineEntry, with_output: bool) -> str:
    by = f" by {_inline(entry.by)}" if entry.by else ""
    way = f" {entry.way}" if entry.way else ""
    times = f" ({entry.times} times)" if entry.times > 1 else ""
    what = entry.change.action if entry.change else entry.text
    if with_output and entry.command:
        what = f"{entry.command}: {what}"
    words = f": {_inline(what)}" if what else ""
    at = timezone.localtime(entry.at)
    return f"- {at:%Y-%m-%d %H:%M:%S %Z} **{entry.title}**{by}{way}{times}{words}"


def _changed(entries: Iterable[TimelineEntry], with_output: bool) -> list[str]:
    lines: list[str] = []
    for change in (entry.change for entry in entries if entry.change):
        result = "" if change.exit_code is None else f" (exit code {change.exit_code})"
        lines.append(f"- {_inline(change.action)}{result}")
        quoted = change.diff or ("" if change.command == change.action else change.command)
        if with_output and quoted:
            lines += ["", _fenced(quoted, "diff" if change.diff else "sh"), ""]
    return lines


def _failed(entries: Iterable[TimelineEntry]) -> list[str]:
    failed = (entry for entry in entries if entry.mark == Mark.FAILED and not entry.change)
    return [f"- {_inline(entry.text)}" for entry in failed if entry.text]


def _inline(text: str) -> str:
    return _MARKUP.sub(r"\\\1", one_line(text, LONGEST_ENTRY))


def _fenced(text: str, language: str) -> str:
    quoted = clean(text)[:LONGEST_QUOTE].rstrip()
    longest = max((len(run) for run in re.findall(r"`+", quoted)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{quoted}\n{fence}"
