"""Operations that read: the lists of the pages with their filters, and one thing of each kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar

from django import forms
from django.db.models import Model, QuerySet
from django.http import HttpRequest, QueryDict
from django.shortcuts import get_object_or_404
from ninja import Path, Query
from pydantic import BeforeValidator, StringConstraints

from escalation.api.app import Answer, Rows, etag_of, reads
from escalation.api.problems import Problem
from escalation.errors import RefusalCode
from escalation.management.arguments import watch_named
from escalation.management.commands.approval import approval_as_data, approval_in_full
from escalation.management.commands.change import change_as_data
from escalation.management.commands.channel import channel_as_data
from escalation.management.commands.costs import costs_as_data
from escalation.management.commands.incident import incident_as_data, incident_in_full
from escalation.management.commands.maintenance import maintenance_as_data
from escalation.management.commands.probe import probe_as_data
from escalation.management.commands.remedy import as_data as remedy_as_data
from escalation.management.commands.remedy import run_as_data
from escalation.management.commands.services import service_as_data
from escalation.management.commands.source import delivery_as_data, source_as_data
from escalation.management.commands.status import status_as_data, status_now
from escalation.management.commands.watch import watch_as_data
from escalation.management.session_text import cycle_as_data
from escalation.run.remedies import state_of
from escalation.web.approvals import with_subject
from escalation.web.changes import load_changes, rows_of
from escalation.web.costs import load_costs
from escalation.web.cycle_list import load_cycles
from escalation.web.lists import PagePosition, SessionFilter, look_down, page_of
from escalation.web.live import event_as_data
from escalation.web.sessions import load_sessions
from sessions_app.access.roles import Right, may
from sessions_app.archive.messages import messages_of
from sessions_app.costs.spending import load_budgets
from sessions_app.history.chain import chain_as_data, chain_of, session_as_data, session_in_full
from sessions_app.models import (
    Approval,
    Change,
    Channel,
    Cycle,
    Incident,
    Maintenance,
    Probe,
    Remedy,
    ServiceState,
    Session,
    SessionEvent,
    Source,
    Watch,
)

Row = TypeVar("Row", bound=Model)
LARGEST = 2**63 - 1
LOOKED_AT = 30_000
"""Rows that a page looks at where no index answers all filters."""
OF_OUTPUT = ("answer", "request", "diff")
DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
FIRST_DAY = date(2000, 1, 1)
PLAIN = r"^[^\x00-\x1f]+$"

Number = Annotated[int, Path(ge=1, le=LARGEST)]
WatchName = Annotated[str, Path(max_length=100), StringConstraints(pattern=PLAIN)]
Name = Annotated[str, Path(max_length=100), StringConstraints(pattern=PLAIN)]
OfWatch = Annotated[str | None, Query(None, max_length=100, description="Name of a watch.")]
Cursor = Annotated[
    int | None, Query(None, ge=0, le=LARGEST, description="The value of next in the page before.")
]
Limit = Annotated[int, Query(30, ge=1, le=100, description="Number of items.")]
Drill = Annotated[Literal["no", "yes"] | None, Query(None, description="Only, or no drills.")]
Tier = Annotated[int | None, Query(None, ge=1, le=9)]


def _written_as_a_day(value: Any) -> Any:
    """Refuse other forms of a date that the library reads, such as seconds."""
    if value is not None and not (isinstance(value, str) and DAY.fullmatch(value)):
        raise ValueError("Write a day like 2026-11-18.")
    return value


Day = Annotated[
    date | None,
    Query(None, description="A day like 2026-11-18."),
    BeforeValidator(_written_as_a_day),
]


# The library names the schema of an enumeration by its class, and several are called State.
if TYPE_CHECKING:
    ApprovalState: TypeAlias = str
    ChangeKind: TypeAlias = str
    CycleOutcome: TypeAlias = str
    CycleTrigger: TypeAlias = str
    IncidentKind: TypeAlias = str
    IncidentState: TypeAlias = str
    ProbeState: TypeAlias = str
    ServiceStatus: TypeAlias = str
    SessionStatus: TypeAlias = str
else:
    ApprovalState = Literal[tuple(Approval.State.values)]
    ChangeKind = Literal[tuple(Change.Kind.values)]
    CycleOutcome = Literal[(*Cycle.Outcome.values, "active")]
    CycleTrigger = Literal[tuple(Cycle.Trigger.values)]
    IncidentKind = Literal[tuple(Incident.Kind.values)]
    IncidentState = Literal[(*Incident.State.values, "unresolved")]
    ProbeState = Literal[tuple(Probe.State.values)]
    ServiceStatus = Literal[tuple(ServiceState.Status.values)]
    SessionStatus = Literal[tuple(Session.Status.values)]


def position(cursor: int | None) -> PagePosition:
    return PagePosition(before=cursor)


def paged(
    rows: QuerySet[Row],
    cursor: int | None,
    limit: int,
    as_data: Callable[[Row], Any],
    *,
    bounded: bool = False,
) -> Rows:
    """Return a page, newest first. `bounded`: no index answers all filters of a large table."""
    if bounded:
        page, _ = look_down(rows, position(cursor), limit, most=LOOKED_AT)
    else:
        page = page_of(rows, position(cursor), limit)
    return Rows([as_data(row) for row in page.rows], page.older)


def chosen(**values: Any) -> QueryDict:
    """Return filters as the forms of the pages read them."""
    query = QueryDict(mutable=True)
    for name, value in values.items():
        if value is not None:
            is_day = isinstance(value, date)
            query[name] = str(max(value, FIRST_DAY) if is_day else value)
    return query


def require_valid(form: forms.Form) -> None:
    if not form.is_valid():
        errors = [
            {
                "where": f"query.{name}",
                "code": "invalid",
                "detail": " ".join(one["message"] for one in messages),
            }
            for name, messages in form.errors.get_json_data().items()
        ]
        raise Problem(
            422,
            RefusalCode.INVALID_CHOICE,
            "A filter has no such value.",
            errors=errors,
        )


def only_drills(drill: str | None) -> str | None:
    """Return the filter of drills as the forms read it: without it, a list shows none."""
    return drill if drill == "yes" else None


def watch_number(name: str | None) -> int | None:
    return None if name is None else watch_named(name).pk


def without_output(data: Any, request: HttpRequest) -> Any:
    """Leave out of a session or a change what its reader may not see."""
    if may(request.user, Right.SEE_OUTPUT):
        return data
    return {**data, **{name: None for name in OF_OUTPUT if name in data}}


# The installation.


@reads("status", Right.SEE, tag="status", shape="OneStatus")
def get_status(request: HttpRequest) -> Any:
    """Show what runs, what needs a person, what is next, and today's cost."""
    data = status_as_data(status_now())
    return {**data, "running": [without_output(one, request) for one in data["running"]]}


@reads("costs", Right.SEE, tag="costs", shape="OneCosts")
def get_costs(
    request: HttpRequest,
    period: Annotated[Literal["7", "30", "90", "all"], Query("30")],
    drills: Annotated[bool, Query(False)],
) -> Any:
    """Costs by tier, model, watch and day, and the budgets."""
    return costs_as_data(load_costs(period, drills=drills), None if drills else load_budgets())


# Watches, and what belongs to them.

CONFIGURATION = (
    *("name", "workdir", "instructions", "interval_minutes", "cron", "enabled", "grants", "hosts"),
    *("ask", "max_tier", "dry_run", "approval", "budget_day_usd", "restarts_allowed"),
    *("restart_hours", "redeployments_allowed", "redeployment_hours"),
)


def watch_etag(watch: Watch) -> str:
    return etag_of({name: getattr(watch, name) for name in CONFIGURATION})


def watch_answer(watch: Watch, status: int = 200) -> Answer:
    return Answer(watch_as_data(watch), status, {"ETag": watch_etag(watch)})


@reads("watches", Right.SEE, tag="watches", shape="WatchList")
def list_watches(request: HttpRequest, cursor: Cursor, limit: Limit) -> Any:
    """The watched systems."""
    return paged(Watch.objects.select_related("schedule", "manifest"), cursor, limit, watch_as_data)


@reads("watches/{watch}", Right.SEE, tag="watches", shape="OneWatch")
def get_watch(request: HttpRequest, watch: WatchName) -> Any:
    """A watch, with the ETag of its configuration."""
    return watch_answer(watch_named(watch))


@reads("probes", Right.SEE, tag="probes", shape="ProbeList")
def list_probes(
    request: HttpRequest,
    watch: OfWatch,
    state: Annotated[ProbeState | None, Query(None)],
    cursor: Cursor,
    limit: Limit,
) -> Any:
    """Probes with their last result."""
    rows = Probe.objects.select_related("watch").prefetch_related("needs")
    wanted = {"watch": watch_number(watch), "state": state}
    return paged(rows.filter(**_given(wanted)), cursor, limit, _probe_data(request))


def _probe_data(request: HttpRequest) -> Callable[[Probe], Any]:
    """Return the shape of a probe, without the address of a heartbeat for those who cannot act."""
    acts = may(request.user, Right.CHANGE_WATCHES)

    def data(probe: Probe) -> Any:
        found = probe_as_data(probe)
        return found if acts else {**found, "address": None}

    return data


def probe_of(watch: str, name: str) -> Probe:
    rows = Probe.objects.select_related("watch").prefetch_related("needs")
    return get_object_or_404(rows, watch=watch_named(watch), name=name)


@reads("watches/{watch}/probes/{probe}", Right.SEE, tag="probes", shape="OneProbe")
def get_probe(request: HttpRequest, watch: WatchName, probe: Name) -> Any:
    """A probe of a watch."""
    return _probe_data(request)(probe_of(watch, probe))


@reads("remedies", Right.SEE_OUTPUT, tag="remedies", shape="RemedyList")
def list_remedies(request: HttpRequest, watch: OfWatch, cursor: Cursor, limit: Limit) -> Any:
    """The commands that agents and people run by name."""
    rows = Remedy.objects.select_related("watch", "script")
    rows = rows.filter(**_given({"watch": watch_number(watch)}))
    return paged(rows, cursor, limit, lambda row: remedy_as_data(row, state_of(row)))


def remedy_of(watch: str, name: str) -> Remedy:
    rows = Remedy.objects.select_related("watch", "script")
    return get_object_or_404(rows, watch=watch_named(watch), name=name)


@reads("watches/{watch}/remedies/{remedy}", Right.SEE_OUTPUT, tag="remedies", shape="OneRemedy")
def get_remedy(request: HttpRequest, watch: WatchName, remedy: Name) -> Any:
    """A remedy of a watch."""
    row = remedy_of(watch, remedy)
    return remedy_as_data(row, state_of(row))


@reads(
    "watches/{watch}/remedies/{remedy}/runs",
    Right.SEE_OUTPUT,
    tag="remedies",
    shape="RemedyRunList",
)
def list_remedy_runs(
    request: HttpRequest, watch: WatchName, remedy: Name, cursor: Cursor, limit: Limit
) -> Any:
    """Runs of a remedy, newest first."""
    rows = remedy_of(watch, remedy).runs.select_related("watch")
    return paged(rows, cursor, limit, run_as_data)


@reads("maintenance", Right.SEE, tag="maintenance", shape="MaintenanceList")
def list_maintenance(request: HttpRequest, watch: OfWatch, cursor: Cursor, limit: Limit) -> Any:
    """Windows in which failures start nothing."""
    rows = Maintenance.objects.select_related("watch")
    rows = rows.filter(**_given({"watch": watch_number(watch)}))
    return paged(rows, cursor, limit, maintenance_as_data)


@reads("services", Right.SEE, tag="services", shape="ServiceList")
def list_services(
    request: HttpRequest,
    watch: OfWatch,
    status: Annotated[ServiceStatus | None, Query(None)],
    cursor: Cursor,
    limit: Limit,
) -> Any:
    """Services that reports have named."""
    rows = ServiceState.objects.select_related("watch")
    wanted = {"watch": watch_number(watch), "status": status}
    return paged(rows.filter(**_given(wanted)), cursor, limit, service_as_data)


# Cycles and sessions.


@reads("cycles", Right.SEE, tag="cycles", shape="CycleList")
def list_cycles(
    request: HttpRequest,
    watch: OfWatch,
    outcome: Annotated[CycleOutcome | None, Query(None)],
    trigger: Annotated[CycleTrigger | None, Query(None)],
    tier: Tier,
    since: Day,
    until: Day,
    cursor: Cursor,
    limit: Limit,
) -> Any:
    """Cycles with their chains, newest first."""
    query = chosen(
        watch=watch_number(watch),
        outcome=outcome,
        trigger=trigger,
        tier=tier,
        since=since,
        until=until,
        before=cursor,
    )
    found = load_cycles(query, limit, whole_sessions=True)
    require_valid(found.form)
    return Rows(
        [_cycle_data(cycle, request, cycle.sessions.all()) for cycle in found.page.rows],
        found.page.older,
    )


def _cycle_data(
    cycle: Cycle, request: HttpRequest, sessions: Iterable[Session] | None = None
) -> Any:
    data = cycle_as_data(cycle, sessions)
    return {**data, "sessions": [without_output(one, request) for one in data["sessions"]]}


@reads("cycles/{number}", Right.SEE, tag="cycles", shape="OneCycle")
def get_cycle(request: HttpRequest, number: Number) -> Any:
    """A cycle with its chain."""
    found = get_object_or_404(Cycle.objects.select_related("watch"), pk=number)
    return _cycle_data(found, request)


@reads("sessions", Right.SEE, tag="sessions", shape="SessionList")
def list_sessions(
    request: HttpRequest,
    q: Annotated[str | None, Query(None, max_length=200, description="Words, or a number.")],
    watch: OfWatch,
    tier: Tier,
    status: Annotated[SessionStatus | None, Query(None)],
    drill: Drill,
    cursor: Cursor,
    limit: Limit,
) -> Any:
    """Sessions, newest first."""
    form = SessionFilter(
        chosen(
            q=(q or "").replace("\x00", "") or None,
            watch=watch_number(watch),
            tier=tier,
            status=status,
            drill=only_drills(drill),
        )
    )
    require_valid(form)
    page = load_sessions(form, position(cursor), limit).page
    numbers = [row.pk for row in page.rows]
    whole = Session.objects.select_related("cycle__watch").in_bulk(numbers)
    return Rows(
        [without_output(session_as_data(whole[pk]), request) for pk in numbers if pk in whole],
        page.older,
    )


def session_or_404(number: int) -> Session:
    rows = Session.objects.select_related("cycle__watch", "parent_session")
    return get_object_or_404(rows, pk=number)


@reads("sessions/{number}", Right.SEE_OUTPUT, tag="sessions", shape="OneSession")
def get_session(request: HttpRequest, number: Number) -> Any:
    """A session with everything that is stored of it."""
    return session_in_full(session_or_404(number))


@reads("sessions/{number}/chain", Right.SEE, tag="sessions", shape="SessionList")
def get_chain(request: HttpRequest, number: Number) -> Any:
    """The sessions of its cycle, in order."""
    chain = chain_as_data(chain_of(session_or_404(number)))
    return Rows([without_output(data, request) for data in chain])


@reads("sessions/{number}/events", Right.SEE_OUTPUT, tag="sessions", shape="EventList")
def list_session_events(request: HttpRequest, number: Number, cursor: Cursor, limit: Limit) -> Any:
    """Events of a session, oldest first."""
    rows = SessionEvent.objects.filter(session=session_or_404(number))
    rows = rows.select_related("session").order_by("sequence")
    found = list(rows.filter(sequence__gt=_sequence(cursor))[: limit + 1])
    following = found[limit - 1].sequence if len(found) > limit else None
    return Rows([event_as_data(event) for event in found[:limit]], following)


def _sequence(cursor: int | None) -> int:
    return -1 if cursor is None else min(cursor, 2**31 - 1)


@reads("sessions/{number}/transcript", Right.SEE_OUTPUT, tag="sessions", shape="MessageList")
def get_transcript(request: HttpRequest, number: Number, cursor: Cursor, limit: Limit) -> Any:
    """The messages of its conversation, oldest first."""
    messages, start = messages_of(session_or_404(number)), _sequence(cursor)
    later = [message for message in messages if message.number > start]
    following = later[limit - 1].number if len(later) > limit else None
    return Rows([asdict(message) for message in later[:limit]], following)


# What needs people.


@reads("incidents", Right.SEE, tag="incidents", shape="IncidentList")
def list_incidents(
    request: HttpRequest,
    watch: OfWatch,
    state: Annotated[IncidentState | None, Query(None)],
    kind: Annotated[IncidentKind | None, Query(None)],
    drill: Drill,
    cursor: Cursor,
    limit: Limit,
) -> Any:
    """Incidents, newest first."""
    rows = Incident.objects.select_related("watch", "owner")
    wanted = {"watch": watch_number(watch), "kind": kind}
    rows = rows.filter(**_given(wanted))
    rows = rows.exclude(drill="") if drill == "yes" else rows.filter(drill="")
    if state == "unresolved":
        rows = rows.filter(state__in=Incident.UNRESOLVED_STATES)
    elif state is not None:
        rows = rows.filter(state=state)
    return paged(rows.order_by(), cursor, limit, incident_as_data, bounded=True)


def incident_or_404(number: int) -> Incident:
    return get_object_or_404(Incident.objects.select_related("watch", "owner"), pk=number)


@reads("incidents/{number}", Right.SEE, tag="incidents", shape="OneIncident")
def get_incident(request: HttpRequest, number: Number) -> Any:
    """An incident with its whole story, its cycles and its cost."""
    return incident_in_full(incident_or_404(number))


@reads("approvals", Right.SEE_OUTPUT, tag="approvals", shape="ApprovalList")
def list_approvals(
    request: HttpRequest,
    state: Annotated[ApprovalState | None, Query(None)],
    cursor: Cursor,
    limit: Limit,
) -> Any:
    """Approvals, newest first."""
    rows = with_subject().filter(**_given({"state": state}))
    return paged(rows.order_by(), cursor, limit, approval_as_data, bounded=state is not None)


def approval_or_404(number: int) -> Approval:
    return get_object_or_404(with_subject(), pk=number)


@reads("approvals/{number}", Right.SEE_OUTPUT, tag="approvals", shape="OneApproval")
def get_approval(request: HttpRequest, number: Number) -> Any:
    """An approval with what is asked for, and the answer."""
    return approval_in_full(approval_or_404(number))


@reads("changes", Right.SEE, tag="changes", shape="ChangeList")
def list_changes(
    request: HttpRequest,
    watch: OfWatch,
    kind: Annotated[ChangeKind | None, Query(None)],
    since: Day,
    until: Day,
    drill: Drill,
    cursor: Cursor,
    limit: Limit,
) -> Any:
    """List changes of sessions, newest first."""
    query = chosen(
        watch=watch_number(watch),
        kind=kind,
        since=since,
        until=until,
        drill=only_drills(drill),
        before=cursor,
    )
    found = load_changes(query, limit)
    require_valid(found.form)
    return Rows(
        [without_output(change_as_data(row), request) for row in found.rows], found.page.older
    )


def change_or_404(number: int) -> Change:
    related = ("session__cycle__watch", "before_content", "undone_by")
    return get_object_or_404(Change.objects.select_related(*related), pk=number)


@reads("changes/{number}", Right.SEE_OUTPUT, tag="changes", shape="OneChange")
def get_change(request: HttpRequest, number: Number) -> Any:
    """A change with its diff, and how to reverse it."""
    return change_as_data(rows_of([change_or_404(number)])[0])


# What is configured; the rights are those of the pages.


@reads("sources", Right.MANAGE_KEYS, tag="sources", shape="SourceList")
def list_sources(request: HttpRequest, cursor: Cursor, limit: Limit) -> Any:
    """Systems that send alerts."""
    return paged(Source.objects.select_related("watch"), cursor, limit, source_as_data)


@reads("sources/{source}/deliveries", Right.MANAGE_KEYS, tag="sources", shape="DeliveryList")
def list_deliveries(request: HttpRequest, source: Name, cursor: Cursor, limit: Limit) -> Any:
    """List deliveries of a source, newest first."""
    rows = get_object_or_404(Source, name=source).deliveries.defer("encrypted_body")
    return paged(rows.select_related("source"), cursor, limit, delivery_as_data)


@reads("channels", Right.MANAGE_KEYS, tag="channels", shape="ChannelList")
def list_channels(request: HttpRequest, cursor: Cursor, limit: Limit) -> Any:
    """List the channels of notifications, without the addresses."""
    return paged(Channel.objects.all(), cursor, limit, channel_as_data)


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
