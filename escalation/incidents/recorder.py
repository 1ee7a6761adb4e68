"""Records the findings of a cycle as incidents, in the transaction that ends the cycle.

Nothing is recorded twice or lost if a process dies: the cycle has ended and its incidents are
written, or neither has happened. Every change holds `installation_lock`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, cast

from django.conf import settings
from django.db.models import F, Max
from django.utils import timezone

from escalation.errors import OperationRefused, RefusalCode, WhyNot
from escalation.incidents import states
from escalation.incidents.findings import (
    INSTALLATION,
    LONGEST_TITLE,
    CycleFindings,
    CycleSummary,
    Finding,
    Fix,
    SessionSummary,
    could_not_run,
    finding_of,
    findings_of,
    is_of_a_run,
)
from escalation.incidents.states import Change, Changed, IncidentState, Kept
from escalation.notifications.outbox import notify
from escalation.queue import installation_lock
from sessions_app.history.claims import claims_in
from sessions_app.history.incidents import LONGEST_NOTE, linked_incidents
from sessions_app.history.services import by_service, display_name, failing_by_service, one_spelling
from sessions_app.models import (
    Alert,
    Approval,
    Cycle,
    Incident,
    IncidentEvent,
    MetricTotal,
    Notification,
    Probe,
    ProbeChange,
    RemedyRun,
    ServiceState,
    Session,
    Watch,
)
from sessions_app.models.cycle import Fact
from sessions_app.models.incident import ReportedService
from sessions_app.models.installation import moment_text
from sessions_app.redaction.redact import redacted
from sessions_app.text import one_line

if TYPE_CHECKING:
    from django.contrib.auth.models import User


SNAPSHOT_FIELDS = tuple(field.name for field in fields(IncidentState))
TEXT_FIELDS = ("title", "detail", "last_cycle_id")


def snapshot_of(incident: Incident) -> IncidentState:
    return IncidentState(**{name: getattr(incident, name) for name in SNAPSHOT_FIELDS})


def unresolved(*scopes: str) -> dict[tuple[str, str, str], Incident]:
    """Returns the unresolved incidents by scope, kind and cause."""
    rows = Incident.objects.select_related("watch").exclude(state=Incident.State.RESOLVED)
    found = rows.filter(scope__in=scopes).order_by("pk")
    return {(row.scope, row.kind, row.cause): row for row in found}


FIX_RESULTS: Mapping[str, str] = {
    IncidentEvent.Kind.VERIFIED: "yes",
    IncidentEvent.Kind.DID_NOT_HOLD: "no",
    IncidentEvent.Kind.NOT_VERIFIED: "unknown",
}
"""Label of a fix that has been verified, has failed, or could not be verified."""


@dataclass(slots=True)
class IncidentEntries:
    """Collects the changes of incidents, and writes them together."""

    at: datetime = field(default_factory=timezone.now)
    cycle: Cycle | None = None
    watch: Watch | None = None
    """The watch of new incidents if there is no cycle."""
    session: Session | None = None
    by: User | None = None
    opened: list[Incident] = field(default_factory=list)
    changed: dict[int, Incident] = field(default_factory=dict)
    events: list[tuple[Incident, IncidentEvent]] = field(default_factory=list)
    notifications: list[tuple[Incident, str, str]] = field(default_factory=list)
    totals: list[tuple[str, str, float]] = field(default_factory=list)

    def open(self, finding: Finding, *, times_seen: int = 1, fact: Fact | None = None) -> Incident:
        is_of_all = finding.scope == INSTALLATION
        watch = None if is_of_all else self.cycle.watch if self.cycle else self.watch
        incident = Incident(
            kind=finding.kind,
            scope=finding.scope,
            cause=finding.cause,
            title=finding.title,
            detail=finding.detail,
            severity=finding.severity,
            watch=watch,
            watch_name=watch.name if watch else "",
            drill=self.cycle.drill if self.cycle else "",
            found_by=fact.source if fact else self._found_by,
            began_at=fact.since if fact else None,
            first_seen_at=self.at,
            last_seen_at=self.at,
            times_seen=times_seen,
            last_cycle=self.cycle,
        )
        self.opened.append(incident)
        if finding.notifies:
            self._notify(incident, Notification.Kind.INCIDENT_OPENED, finding.detail)
        self._add_event(incident, IncidentEvent.Kind.OPENED, finding.detail)
        return incident

    @property
    def _found_by(self) -> str:
        """A person noticed it if they asked for the cycle in their own words."""
        cycle = self.cycle
        by_person = cycle and cycle.trigger in Cycle.ATTENDED_TRIGGERS and cycle.prompt.strip()
        return Incident.FoundBy.PERSON if by_person else Incident.FoundBy.MODEL

    def change(self, incident: Incident, change: object, text: str = "") -> bool:
        """Applies a change. Returns False if the incident stays as it is."""
        if not isinstance(change, Changed):
            return False
        self._count(incident, change)
        for name in SNAPSHOT_FIELDS:
            setattr(incident, name, getattr(change.state, name))
        if self.cycle is not None:
            incident.last_cycle = self.cycle
        if incident.pk is not None:
            self.changed[incident.pk] = incident
        self._add_event(incident, change.step, text)
        if change.notification:
            self._notify(incident, change.notification, text)
        return True

    def _count(self, incident: Incident, change: Changed) -> None:
        """Add a repair, and a fix that was verified or was not, to the totals for Prometheus."""
        if incident.drill:
            return
        after = change.state
        if after.is_resolved and incident.state != Incident.State.RESOLVED:
            began = incident.began_at or incident.first_seen_at
            took = (self.at - began).total_seconds()
            self.totals.append((MetricTotal.Name.REPAIRS, after.resolved_as, took))
        verified = FIX_RESULTS.get(change.step)
        if verified and after.state != Incident.State.VERIFYING:
            self.totals.append((MetricTotal.Name.FIXES, verified, 0))

    def write(self) -> None:
        for name, label, seconds in self.totals:
            MetricTotal.add(name, label, seconds=seconds)
        self.totals.clear()
        Incident.objects.bulk_create(self.opened)
        for incident in self.changed.values():
            # One by one: for a thousand rows this takes a tenth of the time of bulk_update.
            incident.save(update_fields=[*SNAPSHOT_FIELDS, *TEXT_FIELDS])
        for incident, event in self.events:
            event.incident = incident
        IncidentEvent.objects.bulk_create(event for _incident, event in self.events)
        self._link((*self.opened, *self.changed.values()))
        for (kind, _scope), told in self._messages().items():
            worst = max(told, key=lambda pair: pair[0].severity)[0]
            titles = dict.fromkeys(incident.title for incident, _text in told)
            notify(
                kind,
                notification_title(worst, kind, ", ".join(titles)),
                text="\n".join(_message_lines(told)),
                severity=worst.severity,
                watch=worst.watch,
                incident=worst,
                cycle=self.cycle,
                path=worst.get_absolute_url(),
            )

    def _messages(self) -> dict[tuple[str, str], list[tuple[Incident, str]]]:
        """Returns one message for what happened together: services may share a cause."""
        messages: dict[tuple[str, str], list[tuple[Incident, str]]] = {}
        for incident, kind, text in self.notifications:
            messages.setdefault((kind, incident.scope), []).append((incident, text))
        return messages

    def note(self, incident: Incident, kind: str, text: str, session: Session | None) -> None:
        """Adds an event that changes nothing."""
        self._add_event(incident, kind, text, session)

    def _add_event(
        self, incident: Incident, kind: str, text: str, session: Session | None = None
    ) -> None:
        event = IncidentEvent(
            kind=kind,
            at=self.at,
            by=self.by,
            text=text,
            cycle=self.cycle,
            session=session or self.session,
        )
        self.events.append((incident, event))

    def _notify(self, incident: Incident, kind: str, text: str) -> None:
        """Adds a notification, except for a drill."""
        if not incident.drill:
            self.notifications.append((incident, kind, text))

    def _link(self, incidents: Iterable[Incident]) -> None:
        if self.cycle is None:
            return
        link = Incident.cycles.through
        link.objects.bulk_create(
            (link(incident_id=one.pk, cycle_id=self.cycle.pk) for one in incidents),
            ignore_conflicts=True,
        )


TITLES = {
    Notification.Kind.INCIDENT_OPENED: "{subject}: {title}",
    Notification.Kind.INCIDENT_CHANGED_HANDS: "{subject}: {title} changed hands",
    Notification.Kind.INCIDENT_RESOLVED: "{subject}: resolved: {title}",
    Notification.Kind.FIX_VERIFIED: "{subject}: fixed and verified: {title}",
    Notification.Kind.FIX_DID_NOT_HOLD: "{subject}: the fix did not hold: {title}",
}


def notification_title(incident: Incident, kind: str, titles: str = "") -> str:
    title = one_line(titles or incident.title, LONGEST_TITLE)
    return TITLES[Notification.Kind(kind)].format(subject=incident.subject, title=title)


def _message_lines(told: Iterable[tuple[Incident, str]]) -> list[str]:
    lines = [line for incident, text in told for line in (text, incident.detail) if line]
    return list(dict.fromkeys(lines))


Kind, State = Incident.Kind, Incident.State
Unresolved = dict[tuple[str, str, str], Incident]

DRILL_VERIFIED_AFTER = timedelta(seconds=3)
LONGEST_COMMAND = 200
NOT_MENTIONED = "The chain ended without reporting its state."


def scope_of(cycle: Cycle) -> str:
    if cycle.drill:
        return f"drill:{cycle.drill}"
    return f"watch:{cycle.watch_id}" if cycle.watch_id else f"removed:{cycle.watch_name}"


def note_escalation(session: Session, to_tier: int) -> None:
    """Records that a higher tier works on the problems that a session reported."""
    if session.in_branch:
        return
    cycle = session.cycle
    found = findings_of(CycleSummary(scope=scope_of(cycle), runs=_runs_of(cycle)))
    if not found.seen:
        return
    with installation_lock():
        entries, incidents = IncidentEntries(cycle=cycle, session=session), _unresolved_of(cycle)
        for finding in found.seen:
            incident = incidents.get(finding.key)
            if incident is None:
                incident = entries.open(finding)
            else:
                _see(entries, incident, finding)
            words = f"Tier {to_tier} works on it. {session.escalation_reason}"
            entries.change(incident, states.worked_on(snapshot_of(incident)), words)
        entries.write()


def note_outcome(cycle: Cycle, why_not: str = "") -> None:
    """Records the findings of a cycle that has ended."""
    found = findings_of(
        CycleSummary(
            scope=scope_of(cycle),
            runs=_runs_of(cycle),
            outcome=cycle.outcome,
            reason=cycle.outcome_reason,
            why_not=why_not,
            stopped_by=cycle.stopped_by,
            failing=_failing_of(cycle),
        )
    )
    with installation_lock():
        entries, incidents = IncidentEntries(cycle=cycle), _unresolved_of(cycle)
        _enter_seen(entries, incidents, found.seen)
        _enter_disputed(entries, incidents, found)
        _enter_fixed(entries, incidents, found, scope_of(cycle))
        seen = {finding.key for finding in found.seen}
        for key, incident in incidents.items():
            if key not in seen:
                _enter_unseen(entries, incident, found)
        entries.write()
        ServiceState.enter(cycle, _reported(found))


def _failing_of(cycle: Cycle) -> dict[str, Finding]:
    """Returns the findings of probes that fail and of alerts that fire, one for each service."""
    if cycle.watch_id is None:
        return {}
    failing = failing_by_service(cycle.watch_id)
    probes = {cause: finding_of(one[0].fact, scope_of(cycle)) for cause, one in failing.items()}
    return {**_firing_of(cycle), **probes}


ALERTS_COUNT_FOR = timedelta(hours=24)


def _firing_of(cycle: Cycle) -> dict[str, Finding]:
    """Returns the findings of alerts that fire now. While a fix is verified they do not count: a
    source says late that a problem has ended."""
    firing = Alert.objects.filter(
        watch=cycle.watch_id,
        state=Alert.State.FIRING,
        last_seen_at__gte=timezone.now() - ALERTS_COUNT_FOR,
    ).exclude(incident=None)
    counting = firing.exclude(incident__state__in=(State.VERIFYING, State.RESOLVED))
    rows = counting.order_by("incident", "-severity").select_related("incident")
    return {
        alert.incident.cause: Finding(
            kind=Kind.PROBLEM,
            scope=scope_of(cycle),
            cause=alert.incident.cause,
            title=alert.incident.title,
            severity=max(alert.severity, alert.incident.severity),
            detail=alert.summary,
        )
        for alert in rows
        if alert.incident
    }


def _enter_disputed(entries: IncidentEntries, incidents: Unresolved, found: CycleFindings) -> None:
    """Records each service that a report calls healthy while its probe fails."""
    assert entries.cycle is not None, "a report belongs to a cycle"
    of_service = {row.cause: row for row in (*incidents.values(), *entries.opened)}
    for cause in found.disputed:
        incident = of_service[cause]
        session = _session_that_reported(entries.cycle, cause)
        who = f"Tier {session.tier} ({session.model})" if session else "The report"
        words = f"{who} said that it is healthy; a probe or an alert says that it is down."
        entries.note(incident, IncidentEvent.Kind.CONTRADICTED, words, session)


def _session_that_reported(cycle: Cycle, cause: str) -> Session | None:
    """Returns the last session whose report mentions a service."""
    for session in cycle.sessions.evidence().exclude(report=None).order_by("-pk"):
        if any(one_spelling(service["name"]) == cause for service in session.report["services"]):
            return session
    return None


def _reported(found: CycleFindings) -> dict[str, ReportedService]:
    """Returns the reported state of each service, for the page of services."""
    return {
        cause: ReportedService(
            name=display_name(service["name"]),
            status=service["status"],
            detail=one_line(service.get("detail", ""), ServiceState.LONGEST_DETAIL),
        )
        for cause, service in found.mentioned.items()
    }


def note_cooldown(session: Session, service: str, reason: str) -> None:
    """Records that a cooldown stopped a remedy, so that a person has to look."""
    if session.in_branch:
        return
    finding = Finding(
        kind=Incident.Kind.PROBLEM,
        scope=scope_of(session.cycle),
        cause=one_spelling(service),
        title=f"{service} is not repaired again automatically",
        severity=Incident.Severity.WARNING,
        detail=reason,
    )
    with installation_lock():
        entries = IncidentEntries(cycle=session.cycle, session=session)
        _enter_seen(entries, _unresolved_of(session.cycle), [finding])
        entries.write()


def note_answer(approval: Approval) -> None:
    """Records a person's answer in the incidents of the cycle that asked."""
    if approval.session.in_branch:
        return
    subject = one_line(approval.command, LONGEST_COMMAND) or f"Tier {approval.session.tier}"
    is_approved = approval.state == Approval.State.APPROVED
    with installation_lock():
        entries = IncidentEntries(by=approval.decided_by, session=approval.session)
        rows = Incident.objects.filter(cycles=approval.session.cycle_id)
        for incident in rows.exclude(state=State.RESOLVED).select_related("watch"):
            change = states.answered(snapshot_of(incident), is_approved=is_approved)
            entries.change(incident, change, f"{subject}. {approval.answer_text}")
        entries.write()


def note_no_credentials(detail: str) -> None:
    """Records a skipped schedule, as one incident for the installation."""
    note(could_not_run(WhyNot.NO_CREDENTIALS, INSTALLATION, detail))


def note_unverifiable(incidents: Iterable[Incident], why: str) -> None:
    """Records that these fixes cannot be verified, so that a person has to look."""
    with installation_lock():
        entries = IncidentEntries()
        for incident in incidents:
            entries.change(incident, states.not_verified(snapshot_of(incident), None), why)
        entries.write()


def note(finding: Finding, watch: Watch | None = None) -> None:
    """Records a finding outside of a cycle. Only the first sighting adds an event."""
    with installation_lock():
        entries, incidents = IncidentEntries(watch=watch), unresolved(finding.scope)
        incident = incidents.get(finding.key)
        if incident is None:
            entries.open(finding)
        elif incident.healthy_cycles:
            _see(entries, incident, finding)
        else:
            again = Incident.objects.filter(pk=incident.pk)
            again.update(last_seen_at=entries.at, times_seen=F("times_seen") + 1)
        entries.write()


def note_facts(
    watch: Watch | None, facts: Sequence[Fact], cycle: Cycle | None = None
) -> list[Incident]:
    """Records what probes and alerts say about services. Returns the incidents concerned.

    `watch`: None for a drill. `cycle`: the cycle that these facts started, or that was active.
    """
    assert watch or (cycle and cycle.drill), "only a drill has no watch"
    scope = f"watch:{watch.pk}" if watch else scope_of(cast(Cycle, cycle))
    touched: list[Incident] = []
    with installation_lock():
        entries, incidents = IncidentEntries(watch=watch, cycle=cycle), unresolved(scope)
        for fact in facts:
            finding = finding_of(fact, scope)
            incident = incidents.get(finding.key)
            if incident is not None:
                _enter_fact(entries, incident, finding, fact)
            elif fact.is_failing:
                incident = incidents[finding.key] = entries.open(finding, fact=fact)
            if incident is not None and incident not in touched:
                touched.append(incident)
        entries.write()
    return touched


def _enter_fact(entries: IncidentEntries, incident: Incident, finding: Finding, fact: Fact) -> None:
    now, cycle = snapshot_of(incident), incident.last_cycle
    if not fact.is_failing:
        is_own = incident.found_by == Incident.FoundBy.PROBE or now.state == State.VERIFYING
        is_proved = fact.proves and is_own
        by_remedy = is_proved and _was_treated(incident)
        change = states.recovered(now, entries.at, is_proved=is_proved, by_remedy=by_remedy)
    else:
        incident.detail = finding.detail
        change = states.failing(now, entries.at, finding.severity)
    entries.change(incident, change, finding.detail)
    if not fact.is_failing:
        # A cycle that runs now has neither found nor fixed it.
        incident.last_cycle = cycle


def _was_treated(incident: Incident) -> bool:
    """Returns True if a remedy was run for an incident and did not fail."""
    good = (RemedyRun.State.RUNNING, RemedyRun.State.SUCCEEDED)
    return incident.remedy_runs.filter(state__in=good).exists()


def note_repeats(lines: Sequence[tuple[int, str]]) -> None:
    """Adds lines about alerts that start nothing to the histories of incidents, by number."""
    with installation_lock():
        entries = IncidentEntries()
        rows = Incident.objects.select_related("watch").in_bulk({number for number, _ in lines})
        for number, line in lines:
            incident = rows[number]
            entries.change(incident, states.repeated(snapshot_of(incident), entries.at), line)
        entries.write()


# Verification by probes. A fix of something that a probe had seen is decided by the probes of the
# service: when all are up, it holds; if one is still down after a while, it does not. Heartbeats
# cannot be run, and a probe that never saw the problem proves nothing: there a cycle verifies.

PROBES_DECIDE_WITHIN = timedelta(seconds=60)


def probes_that_saw(incident: Incident, known: Iterable[Probe] | None = None) -> list[Probe]:
    """Returns the probes of the service that can be run, if one of them was down meanwhile.

    `known`: all probes of the watch, where they were read before.
    """
    if incident.watch_id is None or incident.kind != Kind.PROBLEM:
        return []
    rows = Probe.objects.filter(watch=incident.watch_id) if known is None else known
    return _having_been_down(incident, _runnable(incident, rows))


def _runnable(incident: Incident, known: Iterable[Probe]) -> list[Probe]:
    """Returns the probes of the service that can be run."""
    probes = by_service(row for row in known if row.kind != Probe.Kind.HEARTBEAT)
    return probes.get(incident.cause, [])


def _having_been_down(incident: Incident, probes: list[Probe]) -> list[Probe]:
    if not probes or incident.found_by == Incident.FoundBy.PROBE:
        return probes
    down = ProbeChange.objects.filter(
        probe__in=probes,
        kind__in=(ProbeChange.Kind.DOWN, ProbeChange.Kind.FLAPPING),
        at__gte=incident.began_at or incident.first_seen_at,
    )
    return probes if down.exists() else []


def decision_of(
    probes: Sequence[Probe],
    fixed_at: datetime,
    now: datetime,
    within: timedelta = PROBES_DECIDE_WITHIN,
) -> bool | None:
    """Returns whether a fix holds, or None while the probes cannot tell. Pure.

    `within`: how long a service may take until its probes are up.
    """
    looked = [probe for probe in probes if probe.last_run_at and probe.last_run_at > fixed_at]
    if len(looked) == len(probes) and all(
        probe.state == Probe.State.UP and not probe.failures for probe in looked
    ):
        return True
    failing = any(probe.state == Probe.State.DOWN and probe.failures for probe in looked)
    return False if failing and now > fixed_at + within else None


def settle_by_probes(watches: Iterable[int]) -> int:
    """Verifies fixes and resolves incidents as probes say. Returns how many it has settled."""
    rows = Incident.objects.filter(
        watch__in=list(watches), kind=Kind.PROBLEM, state__in=Incident.UNRESOLVED_STATES
    ).exclude(state=State.WORKING)
    incidents, settled = list(rows.select_related("watch")), 0
    probes_of: dict[int, list[Probe]] = {}
    for probe in Probe.objects.filter(watch__in={row.watch_id for row in incidents}):
        probes_of.setdefault(probe.watch_id, []).append(probe)
    for incident in incidents:
        known = probes_of.get(incident.watch_id or 0, [])
        probes = probes_that_saw(incident, known)
        if probes and incident.state == State.VERIFYING:
            settled += settle_fix(incident, probes)
        elif probes and incident.found_by == Incident.FoundBy.PROBE:
            settled += _settle_recovery(incident, probes)
        elif _waits_for_witness(incident):
            settled += _settle_after_alerts(incident, _runnable(incident, known))
    return settled


def settle_fix(
    incident: Incident, probes: Sequence[Probe], within: timedelta = PROBES_DECIDE_WITHIN
) -> bool:
    """Verifies a fix as the probes of the service say. Returns False while they cannot tell."""
    with installation_lock():
        current = Incident.objects.select_related("watch").get(pk=incident.pk)
        fixed = current.events.filter(kind=IncidentEvent.Kind.FIXED).order_by("-pk").first()
        entries, now = IncidentEntries(), snapshot_of(current)
        fixed_at = fixed.at if fixed else current.last_seen_at
        holds = decision_of(probes, fixed_at, entries.at, within)
        if holds is None:
            _ask_for_runs(probes, entries.at)
            return False
        if holds:
            words = f"Probes say that it holds: {now.remedy}"
            change = states.verified(now, entries.at)
        else:
            failing = next(probe for probe in probes if probe.state == Probe.State.DOWN)
            words, current.detail = now.remedy, failing.fact.words
            change = states.did_not_hold(now, entries.at, failing.fact.severity)
        is_settled = entries.change(current, change, words)
        if is_settled and not holds and fixed and fixed.cycle:
            session = _session_that_reported(fixed.cycle, current.cause)
            entries.note(current, IncidentEvent.Kind.CONTRADICTED, current.detail, session)
        entries.write()
    return is_settled


def _settle_recovery(incident: Incident, probes: Sequence[Probe]) -> bool:
    """Resolves an incident whose probes recovered while a cycle worked on it."""
    is_up = all(probe.state == Probe.State.UP and not probe.failures for probe in probes)
    latest = max((probe.since for probe in probes if probe.since), default=None)
    if not is_up or latest is None or latest < incident.last_seen_at:
        return False
    with installation_lock():
        current = Incident.objects.select_related("watch").get(pk=incident.pk)
        entries = IncidentEntries()
        change = states.recovered(
            snapshot_of(current), entries.at, is_proved=True, by_remedy=_was_treated(current)
        )
        is_settled = entries.change(current, change, "All its probes are up.")
        entries.write()
    return is_settled


# The end of alerts. A source that says "resolved" is one witness; probes of the service that are up
# afterwards confirm it, also if they never saw the problem. Without probes the next cycle looks.


class AfterAlerts(StrEnum):
    """Step after the end of the alerts of an incident."""

    RESOLVED = "resolved"
    RUN_PROBES = "run_probes"
    CYCLE_LOOKS = "cycle_looks"


def after_alerts(
    probes: Sequence[Probe], ended_at: datetime | None, *, still_fires: bool = False
) -> AfterAlerts:
    """Decides by the probes of the service. `ended_at`: when the last alert ended, and the fix, if
    there is one, was reported. Pure."""
    if ended_at is None or still_fires or not probes:
        return AfterAlerts.CYCLE_LOOKS
    if any(probe.state == Probe.State.DOWN or probe.failures for probe in probes):
        return AfterAlerts.CYCLE_LOOKS
    if all(probe.last_run_at and probe.last_run_at > ended_at for probe in probes):
        return AfterAlerts.RESOLVED
    return AfterAlerts.RUN_PROBES


def _waits_for_witness(incident: Incident) -> bool:
    """Returns True for an incident of an alert that seems recovered or is reported as fixed."""
    waits = incident.healthy_cycles > 0 or incident.state == State.VERIFYING
    return waits and incident.found_by == Incident.FoundBy.ALERT


def _settle_after_alerts(incident: Incident, probes: Sequence[Probe]) -> bool:
    if not probes:
        return False
    with installation_lock():
        current = Incident.objects.select_related("watch").get(pk=incident.pk)
        alerts = Alert.objects.filter(incident=current)
        ended_at = alerts.aggregate(last=Max("resolved_at"))["last"]
        fixed = current.events.filter(kind=IncidentEvent.Kind.FIXED).order_by("-pk").first()
        if ended_at and fixed and current.state == State.VERIFYING:
            ended_at = max(ended_at, fixed.at)
        still_fires = alerts.filter(state=Alert.State.FIRING).exists()
        decision, entries = (
            after_alerts(probes, ended_at, still_fires=still_fires),
            IncidentEntries(),
        )
        if decision == AfterAlerts.RUN_PROBES:
            _ask_for_runs(probes, entries.at)
        if decision != AfterAlerts.RESOLVED or not _waits_for_witness(current):
            return False
        change = states.recovered(
            snapshot_of(current), entries.at, is_proved=True, by_remedy=_was_treated(current)
        )
        words = "Its alerts have ended, and all its probes are up."
        is_settled = entries.change(current, change, words)
        entries.write()
    return is_settled


def _ask_for_runs(probes: Iterable[Probe], at: datetime) -> None:
    """Asks the loop to run probes now, those that still fail again and again."""
    numbers = [probe.pk for probe in probes]
    if numbers:
        Probe.objects.filter(pk__in=numbers).update(run_asked_at=at)


def _unresolved_of(cycle: Cycle) -> Unresolved:
    """Returns the incidents that the outcome may change: for a drill only its own."""
    scopes = [scope_of(cycle)] if cycle.drill else [scope_of(cycle), INSTALLATION]
    return unresolved(*scopes)


def _runs_of(cycle: Cycle) -> tuple[SessionSummary, ...]:
    rows = cycle.sessions.evidence().order_by("pk")
    facts = rows.values_list("tier", "status", "stop_cause", "report", "messages")
    return tuple(
        SessionSummary(
            tier=tier,
            status=status,
            stop_cause=stop,
            report=report,
            claims=claims_in(report, cycle.pk),
            said_something=messages > 0,
        )
        for tier, status, stop, report, messages in facts
        if status not in Session.OPEN_STATUSES
    )


def _enter_seen(entries: IncidentEntries, incidents: Unresolved, seen: Iterable[Finding]) -> None:
    for finding in seen:
        incident = incidents.get(finding.key)
        if incident is None:
            entries.open(finding)
        else:
            _see(entries, incident, finding)


def _see(entries: IncidentEntries, incident: Incident, finding: Finding) -> None:
    if not finding.is_certain and _is_verification(entries.cycle, incident):
        _enter_verification(entries, incident, is_healthy=False)
        return
    cycle = entries.cycle.pk if entries.cycle else None
    now = snapshot_of(incident)
    change = states.seen(
        now,
        entries.at,
        finding.severity,
        is_new_cycle=incident.last_cycle_id != cycle,
        is_certain=finding.is_certain,
    )
    incident.title = finding.title if finding.is_certain else incident.title
    incident.detail = finding.detail
    # The event keeps the remedy: the next one must be different.
    words = now.remedy if now.state == State.VERIFYING else finding.detail
    got_worse = isinstance(change, states.Changed) and change.step == states.Step.WORSE
    entries.change(incident, change, f"It got worse. {words}" if got_worse else words)


def _enter_fixed(
    entries: IncidentEntries, incidents: Unresolved, found: CycleFindings, scope: str
) -> None:
    for cause, fix in found.fixed.items():
        incident = incidents.get((scope, Kind.PROBLEM, cause))
        if incident is None and fix.was_unwell and not _had_incident(entries.cycle, cause):
            incident = entries.open(_finding_before_fix(cause, scope))
        if incident is not None:
            _fix(entries, incident, fix)


def _fix(entries: IncidentEntries, incident: Incident, fix: Fix) -> None:
    wait = timedelta(seconds=settings.CLAUDEOPS_VERIFY_AFTER)
    due = entries.at + (DRILL_VERIFIED_AFTER if incident.drill else wait)
    entries.change(incident, states.fixed(snapshot_of(incident), due, fix.remedy), fix.remedy)
    if incident.pk is not None:
        _ask_for_runs(probes_that_saw(incident), entries.at)


def _finding_before_fix(cause: str, scope: str) -> Finding:
    """Returns the finding for a service that was fixed before an incident was opened."""
    return Finding(
        kind=Kind.PROBLEM,
        scope=scope,
        cause=cause,
        title=f"{cause} was not healthy",
        severity=Incident.Severity.WARNING,
    )


def _had_incident(cycle: Cycle | None, cause: str) -> bool:
    """Returns True if a person resolved it while the chain was running."""
    return cycle is not None and cycle.incidents.filter(cause=cause).exists()


def _enter_unseen(entries: IncidentEntries, incident: Incident, found: CycleFindings) -> None:
    """Records an incident that the cycle found healthy or did not mention."""
    if incident.pk in entries.changed:
        return  # fixed in this cycle
    is_healthy, now = _is_healthy(incident, found), snapshot_of(incident)
    if _is_verification(entries.cycle, incident):
        _enter_verification(entries, incident, is_healthy)
    elif is_healthy:
        entries.change(incident, states.seen_healthy(now, entries.at))
    else:
        entries.change(incident, states.work_ended(now), NOT_MENTIONED)


def _is_healthy(incident: Incident, found: CycleFindings) -> bool:
    if incident.kind == Kind.COULD_NOT_RUN:
        return found.ran
    if is_of_a_run(incident.cause):
        return found.ended_usably
    return incident.cause in found.healthy


def _is_verification(cycle: Cycle | None, incident: Incident) -> bool:
    return (
        cycle is not None
        and cycle.trigger == Cycle.Trigger.VERIFICATION
        and incident.state == State.VERIFYING
        and incident.last_cycle_id == cycle.pk
    )


def _enter_verification(entries: IncidentEntries, incident: Incident, is_healthy: bool) -> None:
    now = snapshot_of(incident)
    if is_healthy:
        entries.change(incident, states.verified(now, entries.at), f"It holds: {now.remedy}")
        return
    again = entries.at + timedelta(seconds=settings.CLAUDEOPS_VERIFY_AFTER)
    words = "The verification cycle did not run, or did not report it."
    entries.change(incident, states.not_verified(now, again), words)


Act = Callable[[IncidentState, datetime], Change]


def acknowledge(incident: Incident, *, by: User | None = None) -> Incident:
    """Acknowledges an incident, and those that were opened with it and have no owner."""
    with installation_lock():
        done = _acted(incident, by, lambda now, at: states.acknowledged(now, _key(by), at))
        entries = IncidentEntries(by=by)
        opened = done.events.filter(kind=IncidentEvent.Kind.OPENED).order_by("pk").first()
        for other in linked_incidents(done, opened.cycle_id if opened else None):
            if other.owner_id is None:
                change = states.acknowledged(snapshot_of(other), _key(by), entries.at)
                entries.change(other, change, f"With incident {done.pk}.")
        entries.notifications.clear()  # one message, about the incident itself
        entries.write()
    return done


def snooze(incident: Incident, until: datetime, *, by: User | None = None) -> Incident:
    words = f"until {moment_text(until)}"
    return _acted(incident, by, lambda now, at: states.snoozed(now, _key(by), until, at), words)


def hand_over(incident: Incident, to: User | None, *, by: User | None = None) -> Incident:
    """Changes the owner; None removes it."""
    words = f"{to.get_username()} is the owner." if to else "It has no owner."
    return _acted(incident, by, lambda now, at: states.handed_over(now, _key(to), at), words)


def add_note(incident: Incident, text: str, *, by: User | None = None) -> Incident:
    return _acted(incident, by, lambda now, _at: states.noted(now), checked_note(text))


def resolve(incident: Incident, text: str = "", *, by: User | None = None) -> Incident:
    words = checked_note(text) if text.strip() else ""
    return _acted(incident, by, lambda now, at: states.resolved(now, _key(by), at), words)


def reopen(incident: Incident, *, by: User | None = None) -> Incident:
    return _acted(incident, by, lambda now, _at: states.reopened(now))


def checked_note(text: str) -> str:
    """Returns the redacted note. Raises OperationRefused.

    A form sends a line end as two characters and counts one."""
    text = text.strip().replace("\r\n", "\n")
    if not text:
        raise OperationRefused(RefusalCode.TEXT_MISSING, "Write a note: it is empty.")
    if len(text) > LONGEST_NOTE:
        raise OperationRefused(
            RefusalCode.TEXT_TOO_LONG,
            f"A note has at most {LONGEST_NOTE:,} characters, and this one has {len(text):,}: cut "
            "it, or say where the rest can be read.",
        )
    return redacted(text)


def _acted(incident: Incident, by: User | None, act: Act, words: str = "") -> Incident:
    with installation_lock():
        current = Incident.objects.select_related("watch", "owner").get(pk=incident.pk)
        entries = IncidentEntries(by=by)
        change = act(snapshot_of(current), entries.at)
        if isinstance(change, Kept):
            raise OperationRefused(
                change.code, f"Nothing was changed in incident {incident.pk}: {change.reason}."
            )
        if change.step == states.Step.REOPENED:
            _require_no_other(current)
        entries.change(current, change, words)
        entries.write()
    return current


def _require_no_other(incident: Incident) -> None:
    """Refuses a second unresolved incident with the same cause."""
    same = Incident.objects.filter(
        scope=incident.scope, kind=incident.kind, cause=incident.cause
    ).exclude(state=Incident.State.RESOLVED)
    if other := same.exclude(pk=incident.pk).first():
        raise OperationRefused(
            RefusalCode.INCIDENT_DUPLICATE,
            f"Incident {other.pk} has the same cause and is not resolved: use that one.",
        )


def _key(user: User | None) -> int | None:
    return user.pk if user else None
