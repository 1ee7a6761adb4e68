"""Operations that act, each with the right and the function of its page."""

from __future__ import annotations

from decimal import Decimal
from http import HTTPStatus
from typing import Annotated, Any, Literal, cast

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.utils import timezone
from ninja import Schema
from pydantic import ConfigDict, Field, StringConstraints

from escalation.api.app import Answer, acts, require_match, token_row
from escalation.api.problems import Problem
from escalation.api.reading import (
    Name,
    Number,
    WatchName,
    approval_or_404,
    change_or_404,
    incident_or_404,
    probe_of,
    remedy_of,
    session_or_404,
    watch_answer,
    watch_etag,
)
from escalation.errors import OperationRefused, RefusalCode
from escalation.incidents import recorder
from escalation.management.arguments import watch_named
from escalation.management.commands.approval import approval_in_full
from escalation.management.commands.change import change_as_data
from escalation.management.commands.incident import incident_as_data
from escalation.management.commands.maintenance import maintenance_as_data
from escalation.management.commands.probe import probe_as_data
from escalation.management.commands.remedy import run_as_data
from escalation.management.session_text import cycle_as_data
from escalation.probes import manage
from escalation.queue import installation_lock
from escalation.run import remedies
from escalation.run.manifest import accept_first
from escalation.run.undo import undo
from escalation.supervisor import approval_answers, cycles, manual
from escalation.supervisor.successors import RunChoice
from escalation.web import ingress
from escalation.web.changes import rows_of
from escalation.worker import schedules
from sessions_app.access import tokens
from sessions_app.access.roles import Right, accounts_that_may, note_added, note_changed
from sessions_app.history.chain import session_as_data
from sessions_app.history.incidents import SNOOZES, snooze_until
from sessions_app.models import Approval, Cycle, Incident, Probe, Session, Source, Watch
from sessions_app.models.autonomy import AutonomyLevel

Text = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", max_length=100_000)]
Dollars = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


class Body(Schema):
    """The body of a request: exactly the fields that are known, of exactly their types."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Nothing(Body):
    """No field."""


class Choice(Body):
    model: Text = ""
    max_turns: Annotated[int, Field(ge=1, le=10_000)] | None = None
    budget_usd: Dollars | None = None

    @property
    def run_choice(self) -> RunChoice:
        return RunChoice(
            model=self.model,
            max_turns=self.max_turns,
            max_budget_usd=dollars(self.budget_usd),
        )


class Run(Choice):
    prompt: Text = Field("", description="A hint for Tier 1 what to look at.")
    fresh: bool = Field(False, description="In a new conversation.")
    ephemeral: bool = Field(False, description="Keep no conversation.")


class Question(Choice):
    text: Text


class Retry(Choice):
    fresh: bool = False


class Escalation(Choice):
    reason: Text
    fresh: bool = False


class Allowance(Body):
    note: Text = ""
    budget_usd: Dollars | None = None


class Told(Body):
    text: Text


class Note(Body):
    note: Text = ""


class Snooze(Body):
    until: Literal["1h", "8h", "tomorrow", "3d"]


class Owner(Body):
    to: Annotated[Text, Field(max_length=150)] | None = None


class Pause(Body):
    reason: Text = ""
    stop_running: bool = False


class Duration(Body):
    duration: Annotated[str, StringConstraints(pattern=r"^[0-9]{1,6}[smhd]?$")]


class Window(Body):
    duration: Annotated[str, StringConstraints(pattern=r"^[0-9]{1,6}[smhd]?$")] | None = None
    service: Annotated[Text, Field(max_length=200)] = ""
    weekly: bool = False
    reason: Annotated[Text, Field(max_length=300)] = ""


class Arguments(Body):
    arguments: Annotated[list[Annotated[Text, Field(max_length=1000)]], Field(max_length=20)] = []
    incident: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = None


class Autonomy(Body):
    level: Annotated[str, Field(json_schema_extra={"enum": [one.value for one in AutonomyLevel]})]


class WatchSettings(Body):
    """Fields to change; those that are left out stay as they are."""

    instructions: Text | None = None
    interval_minutes: Annotated[int, Field(ge=1, le=525_600)] | None = None
    cron: Annotated[Text, Field(max_length=100)] | None = None
    grants: Text | None = None
    hosts: Annotated[Text, Field(max_length=500)] | None = None
    ask: Text | None = None
    max_tier: Annotated[int, Field(ge=1, le=9)] | None = None
    dry_run: bool | None = None
    approval: Annotated[Text, Field(max_length=20)] | None = None
    budget_day_usd: Dollars | None = None


def dollars(amount: float | None) -> Decimal | None:
    return None if amount is None else Decimal(str(amount))


def caller(request: HttpRequest) -> User:
    return cast(User, request.user)


# Watches.


@acts("watches/{watch}/run", Right.RUN, tag="watches", shape="OneCycle", status=202)
def run_watch(request: HttpRequest, watch: WatchName, body: Run) -> Any:
    """Start a cycle at Tier 1."""
    cycle = cycles.start(
        watch_named(watch),
        trigger=Cycle.Trigger.MANUAL,
        requested_by=caller(request),
        prompt=body.prompt,
        force_fresh=body.fresh,
        ephemeral=body.ephemeral,
        choice=body.run_choice,
    )
    return Answer(
        cycle_as_data(cycle), HTTPStatus.ACCEPTED, {"Location": f"/api/v1/cycles/{cycle.pk}"}
    )


@acts("watches/{watch}/pause", Right.STOP, tag="watches", shape="OneWatch")
def pause_watch(request: HttpRequest, watch: WatchName) -> Any:
    """Pause its schedule: it runs only when asked. If-Match is heeded."""
    return _switched(request, watch, enabled=False)


@acts("watches/{watch}/unpause", Right.CHANGE_WATCHES, tag="watches", shape="OneWatch")
def unpause_watch(request: HttpRequest, watch: WatchName) -> Any:
    """Let its schedule run again. If-Match is heeded."""
    return _switched(request, watch, enabled=True)


def _switched(request: HttpRequest, name: str, *, enabled: bool) -> Answer:
    with installation_lock():
        watch = watch_named(name)
        require_match(request, watch_etag(watch), needed=False)
        watch.enabled = enabled
        watch.save(update_fields=["enabled"])
        note_changed(caller(request), watch, "Switched on." if enabled else "Paused.")
    return watch_answer(watch_named(name))


@acts("watches/{watch}", Right.CHANGE_WATCHES, tag="watches", method="patch", shape="OneWatch")
def change_watch(request: HttpRequest, watch: WatchName, body: WatchSettings) -> Any:
    """Change settings. Send the ETag that you have read as If-Match."""
    given = body.model_dump(exclude_unset=True)
    if "budget_day_usd" in given:
        given["budget_day_usd"] = dollars(given["budget_day_usd"])
    if wrong := [name for name, value in given.items() if value is None and name != BUDGET]:
        raise _invalid({name: ["It cannot be null."] for name in wrong})
    with installation_lock():
        found = watch_named(watch)
        require_match(request, watch_etag(found), needed=True)
        for name, value in given.items():
            setattr(found, name, value)
        try:
            found.full_clean()
        except ValidationError as error:
            raise _invalid(error.message_dict) from error
        if given:
            found.save(update_fields=list(given))
            note_changed(caller(request), found, f"Changed by the API: {', '.join(given)}.")
            accept_first(found, by=caller(request).get_username())
    return watch_answer(watch_named(watch))


BUDGET = "budget_day_usd"


def _invalid(messages: dict[str, list[str]]) -> Problem:
    errors = [
        {"where": f"body.{name}", "code": "invalid", "detail": " ".join(texts)}
        for name, texts in messages.items()
    ]
    return Problem(
        422, RefusalCode.INVALID_ARGUMENTS, "The watch was not changed: see errors.", errors=errors
    )


@acts(
    "watches/{watch}/autonomy",
    Right.CHANGE_WATCHES,
    tag="watches",
    method="put",
    shape="OneWatch",
)
def set_autonomy(request: HttpRequest, watch: WatchName, body: Autonomy) -> Any:
    """Set how far it may go by itself. Send the ETag that you have read as If-Match."""
    if body.level not in list(AutonomyLevel):
        known = ", ".join(AutonomyLevel)
        raise OperationRefused(RefusalCode.INVALID_CHOICE, f"Choose one of {known}.")
    with installation_lock():
        found = watch_named(watch)
        require_match(request, watch_etag(found), needed=True)
        found.set_autonomy_level(AutonomyLevel(body.level))
        found.save(update_fields=list(Watch.AUTONOMY_FIELDS))
        note_changed(caller(request), found, f"Autonomy: {found.autonomy_title}.")
    return watch_answer(watch_named(watch))


@acts(
    "watches/{watch}/maintenance",
    Right.HANDLE_INCIDENTS,
    tag="maintenance",
    shape="OneMaintenance",
    status=201,
)
def start_maintenance(request: HttpRequest, watch: WatchName, body: Window) -> Any:
    """Start a window in which failures start nothing."""
    window = manage.start_maintenance(
        watch_named(watch),
        service=body.service,
        seconds=manage.seconds_in(body.duration) if body.duration else None,
        is_weekly=body.weekly,
        reason=body.reason,
        by=caller(request),
    )
    note_added(caller(request), window)
    return Answer(maintenance_as_data(window), HTTPStatus.CREATED)


@acts("watches/{watch}/maintenance/end", Right.HANDLE_INCIDENTS, tag="maintenance")
def end_maintenance(request: HttpRequest, watch: WatchName) -> Any:
    """End the windows of a watch."""
    ended = manage.end_maintenance(watch_named(watch))
    for window in ended:
        note_changed(caller(request), window, "Ended.")
    return [maintenance_as_data(window) for window in ended]


@acts("watches/{watch}/probes/{probe}/run", Right.RUN, tag="probes", shape="OneProbe", status=202)
def run_probe(request: HttpRequest, watch: WatchName, probe: Name) -> Any:
    """Let the worker run a probe within seconds."""
    found = probe_of(watch, probe)
    if found.kind == Probe.Kind.HEARTBEAT:
        raise OperationRefused(RefusalCode.INVALID_CHOICE, "A heartbeat is called, not run.")
    manage.ask_for_run(found)
    return Answer(probe_as_data(found), HTTPStatus.ACCEPTED)


@acts("watches/{watch}/probes/{probe}/mute", Right.HANDLE_INCIDENTS, tag="probes", shape="OneProbe")
def mute_probe(request: HttpRequest, watch: WatchName, probe: Name, body: Duration) -> Any:
    """Let its failures start nothing for a time; 0 ends a mute."""
    found = manage.mute(probe_of(watch, probe), manage.seconds_in(body.duration))
    muted = "is muted" if found.is_muted else "is no longer muted"
    note_changed(caller(request), found, f"The probe {muted}.")
    return {**probe_as_data(found), "address": None}


@acts(
    "watches/{watch}/remedies/{remedy}/run",
    Right.APPROVE,
    tag="remedies",
    shape="OneRemedyRun",
    status=202,
)
def run_remedy(request: HttpRequest, watch: WatchName, remedy: Name, body: Arguments) -> Any:
    """Let a worker run a remedy, for an incident if one is given."""
    row, incident = remedy_of(watch, remedy), None
    if body.incident is not None:
        incident = get_object_or_404(Incident, watch=row.watch_id, pk=body.incident)
    run = remedies.ask_to_run(
        row,
        body.arguments,
        by=caller(request),
        by_name=caller(request).get_username(),
        incident=incident,
    )
    return Answer(run_as_data(run), HTTPStatus.ACCEPTED)


# Cycles and sessions.


@acts("cycles/{number}/stop", Right.STOP, tag="cycles")
def stop_cycle(request: HttpRequest, number: Number) -> Any:
    """Stop a cycle: running sessions are asked to stop, waiting ones are cancelled."""
    cycle = get_object_or_404(Cycle.objects.select_related("watch"), pk=number)
    stopped = manual.stop_cycle(cycle, by=caller(request).get_username())
    return {"cycle": cycle.pk, "result": stopped.value}


@acts("sessions/{number}/stop", Right.STOP, tag="sessions")
def stop_session(request: HttpRequest, number: Number) -> Any:
    """Ask a running session to stop."""
    session = session_or_404(number)
    if not manual.stop(session, by=caller(request).get_username()):
        raise OperationRefused(
            RefusalCode.SESSION_STATUS,
            f"Session {session.pk} is not running, or is being stopped already.",
        )
    return {"session": session.pk, "result": "stopping"}


@acts("sessions/{number}/tell", Right.RUN, tag="sessions", shape="OneSaid")
def tell_session(request: HttpRequest, number: Number, body: Told) -> Any:
    """Tell a running session something; it reads it before its next step."""
    session = session_or_404(number)
    return {"said": manual.tell(session, body.text, by=caller(request).get_username())}


def _created(session: Session) -> Answer:
    address = {"Location": f"/api/v1/sessions/{session.pk}"}
    return Answer(session_as_data(session), HTTPStatus.ACCEPTED, address)


@acts(
    "sessions/{number}/follow-up", Right.FOLLOW_UP, tag="sessions", shape="OneSession", status=202
)
def follow_up(request: HttpRequest, number: Number, body: Question) -> Any:
    """Ask a question in the conversation of an ended session, with reading tools only."""
    session, choice = session_or_404(number), body.run_choice
    return _created(
        manual.follow_up(session, body.text, requested_by=caller(request), choice=choice)
    )


@acts("sessions/{number}/fork", Right.RUN, tag="sessions", shape="OneSession", status=202)
def fork_session(request: HttpRequest, number: Number, body: Question) -> Any:
    """Try another approach from where a session ended."""
    return _created(
        manual.fork(
            session_or_404(number),
            body.text,
            requested_by=caller(request),
            choice=body.run_choice,
            confirmed=True,
        )
    )


@acts("sessions/{number}/retry", Right.RUN, tag="sessions", shape="OneSession", status=202)
def retry_session(request: HttpRequest, number: Number, body: Retry) -> Any:
    """Run a tier that did not end well again."""
    return _created(
        manual.retry(
            session_or_404(number),
            requested_by=caller(request),
            force_fresh=body.fresh,
            choice=body.run_choice,
            confirmed=True,
        )
    )


@acts("sessions/{number}/escalate", Right.ESCALATE, tag="sessions", shape="OneSession", status=202)
def escalate_session(request: HttpRequest, number: Number, body: Escalation) -> Any:
    """Start the next tier. It waits for approval where the tier needs one, unless the token may
    approve."""
    return _created(
        manual.escalate(
            session_or_404(number),
            body.reason,
            requested_by=caller(request),
            force_fresh=body.fresh,
            choice=body.run_choice,
            confirmed=True,
        )
    )


@acts("sessions/{number}/allow", Right.APPROVE, tag="sessions", shape="OneSession", status=202)
def allow_session(request: HttpRequest, number: Number, body: Allowance) -> Any:
    """Start the tier that was withheld after a session, once."""
    return _created(
        manual.allow_once(
            session_or_404(number),
            by=caller(request),
            way=Approval.Way.API,
            note=body.note,
            budget_usd=dollars(body.budget_usd),
        )
    )


# Incidents.


@acts(
    "incidents/{number}/acknowledge", Right.HANDLE_INCIDENTS, tag="incidents", shape="OneIncident"
)
def acknowledge_incident(request: HttpRequest, number: Number) -> Any:
    """Acknowledge an incident: the owner of the token has it."""
    return incident_as_data(recorder.acknowledge(incident_or_404(number), by=caller(request)))


@acts("incidents/{number}/snooze", Right.HANDLE_INCIDENTS, tag="incidents", shape="OneIncident")
def snooze_incident(request: HttpRequest, number: Number, body: Snooze) -> Any:
    """Let an incident notify nobody for a time."""
    until = snooze_until(body.until, timezone.now())
    if until is None:
        raise OperationRefused(RefusalCode.INVALID_CHOICE, f"Choose one of {', '.join(SNOOZES)}.")
    return incident_as_data(recorder.snooze(incident_or_404(number), until, by=caller(request)))


@acts("incidents/{number}/note", Right.HANDLE_INCIDENTS, tag="incidents", shape="OneIncident")
def note_incident(request: HttpRequest, number: Number, body: Note) -> Any:
    """Add a note."""
    return incident_as_data(
        recorder.add_note(incident_or_404(number), body.note, by=caller(request))
    )


@acts("incidents/{number}/resolve", Right.HANDLE_INCIDENTS, tag="incidents", shape="OneIncident")
def resolve_incident(request: HttpRequest, number: Number, body: Note) -> Any:
    """Resolve an incident, with a note if there is one."""
    return incident_as_data(
        recorder.resolve(incident_or_404(number), body.note, by=caller(request))
    )


@acts("incidents/{number}/reopen", Right.HANDLE_INCIDENTS, tag="incidents", shape="OneIncident")
def reopen_incident(request: HttpRequest, number: Number) -> Any:
    """Open a resolved incident again."""
    return incident_as_data(recorder.reopen(incident_or_404(number), by=caller(request)))


@acts("incidents/{number}/hand-over", Right.HANDLE_INCIDENTS, tag="incidents", shape="OneIncident")
def hand_over_incident(request: HttpRequest, number: Number, body: Owner) -> Any:
    """Give an incident to an account that handles incidents, or to nobody."""
    to = accounts_that_may(Right.HANDLE_INCIDENTS).filter(username=body.to).first()
    if body.to is not None and to is None:
        raise OperationRefused(
            RefusalCode.ACCOUNT_MISSING,
            f"There is nobody called {body.to!r} who handles incidents.",
        )
    return incident_as_data(recorder.hand_over(incident_or_404(number), to, by=caller(request)))


# Approvals and changes.


@acts("approvals/{number}/approve", Right.APPROVE, tag="approvals", shape="OneApproval")
def approve(request: HttpRequest, number: Number, body: Note) -> Any:
    """Let the tier start, or the command run."""
    found = approval_or_404(number)
    return approval_in_full(
        approval_answers.approve(found, by=caller(request), way=Approval.Way.API, note=body.note)
    )


@acts("approvals/{number}/reject", Right.APPROVE, tag="approvals", shape="OneApproval")
def reject(request: HttpRequest, number: Number, body: Note) -> Any:
    """Say no, with a note that the session is told."""
    found = approval_or_404(number)
    return approval_in_full(
        approval_answers.reject(found, by=caller(request), way=Approval.Way.API, note=body.note)
    )


@acts("approvals/{number}/plan", Right.RUN, tag="approvals", shape="OneSession", status=202)
def plan(request: HttpRequest, number: Number) -> Any:
    """Let a plan session say what the tier would do, before the answer."""
    return _created(approval_answers.plan(approval_or_404(number), by=caller(request)))


@acts("changes/{number}/undo", Right.APPROVE, tag="changes", shape="OneChange")
def undo_change(request: HttpRequest, number: Number) -> Any:
    """Put the content before an edit back."""
    undo(change_or_404(number), by=caller(request), way="api")
    return change_as_data(rows_of([change_or_404(number)])[0])


# The installation.


@acts("pause", Right.PAUSE_ALL, tag="status", shape="OneSaid")
def pause_all(request: HttpRequest, body: Pause) -> Any:
    """Start no new tier until `unpause`."""
    stopped = schedules.pause(
        body.reason.strip() or "by the API", by=caller(request), stop_running=body.stop_running
    )
    return {"said": f"Paused: no new tier starts. {stopped} running tiers were asked to stop."}


@acts("unpause", Right.PAUSE_ALL, tag="status", shape="OneSaid")
def unpause_all(request: HttpRequest) -> Any:
    """Let tiers start again."""
    count = schedules.unpause(by=caller(request))
    return {"said": schedules.RUNNING_AGAIN.format(count=count)}


# Alerts.


class SentAlerts(Schema):
    """Whatever the kind of the source sends."""

    model_config = ConfigDict(extra="allow")


@acts("sources/{source}/deliveries", None, tag="sources", status=202)
def deliver(request: HttpRequest, source: Name, body: SentAlerts) -> Any:
    """Deliver alerts to a source: with a token of the scope `alerts:SOURCE`."""
    row = token_row(request)
    if row is None or not tokens.may_deliver(row, source):
        raise Problem(
            HTTPStatus.FORBIDDEN,
            RefusalCode.NOT_PERMITTED,
            f"The token needs the scope {tokens.ALERTS}{source}, and its owner the right to run.",
        )
    found = get_object_or_404(Source, name=source)
    with transaction.atomic():
        delivery = ingress.stored_from_api(found, request)
    return Answer({"delivery": delivery}, HTTPStatus.ACCEPTED)
