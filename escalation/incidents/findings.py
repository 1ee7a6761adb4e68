"""Findings of a cycle for each cause: a pure function of the results of its sessions.

All reports of a cycle are read together; the latest statement about a service counts. A service
that no report mentions does not count as healthy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from escalation.errors import WhyNot
from escalation.report import HEALTHY, Report, Service
from sessions_app.history.claims import Claim, ClaimCheck, proven
from sessions_app.history.services import display_name, one_spelling
from sessions_app.models import Cycle, Incident, Session
from sessions_app.models.cycle import Fact
from sessions_app.text import cut, one_line
from sessions_app.tiers import LOWEST_TIER

Severity, Status, StopCause = Incident.Severity, Session.Status, Session.StopCause

INSTALLATION = "installation"
EVERYWHERE = frozenset(
    {
        WhyNot.NO_CREDENTIALS,
        WhyNot.CLI,
        WhyNot.PROMPTS,
        WhyNot.SANDBOX,
        WhyNot.WAY_TO_THE_API,
        WhyNot.WORKER,
    }
)
"""Causes that keep every watch from running: one incident for the installation."""
SET_BY_PEOPLE = frozenset({WhyNot.POLICY, WhyNot.APPROVAL, WhyNot.BUDGET, WhyNot.CHAIN_BUDGET})
"""Limits that people set. A higher tier that is not started because of one of them opens no
incident: those of the services give the reason."""
NOTIFIED_ELSEWHERE = frozenset({WhyNot.BUDGET})
"""Incidents without a notification: another notification was sent already."""

COULD_NOT_RUN = {
    WhyNot.NO_CREDENTIALS: "Nothing can run: there are no credentials",
    WhyNot.CLI: "Nothing can run: the claude CLI cannot be used",
    WhyNot.PROMPTS: "Nothing can run: a prompt is missing or broken",
    WhyNot.SANDBOX: "Nothing can run: the sandbox cannot be set up",
    WhyNot.WAY_TO_THE_API: "Nothing can run: the way to the API is misconfigured",
    WhyNot.WORKER: "Nothing was started: no worker took it",
    WhyNot.NO_HOST: "It could not run: no host with its label is live",
    WhyNot.WORKDIR: "It could not run: the working directory cannot be used",
    WhyNot.POLICY: "It could not run: the policy forbids the tier",
    WhyNot.APPROVAL: "It could not run: nobody has approved the tier",
    WhyNot.BUDGET: "It could not run: a budget is spent",
    WhyNot.CHAIN_BUDGET: "It could not run: the budget of its chain is spent",
    WhyNot.CONVERSATION: "It could not run: another session uses its conversation",
    WhyNot.DRILL: "It could not run: its drill is not known",
    WhyNot.CRASH: "It could not run: Claude Ops itself failed",
    WhyNot.FAILED: "It could not run: the CLI failed before it said anything",
}


class RunCause(StrEnum):
    """Causes that are not services. No service name begins with `#`."""

    CUT_OFF = "#cut_off"
    TIME_UP = "#time_up"
    SILENT = "#silent"
    BUDGET = "#budget"
    UNGUARDED = "#unguarded"
    RATE_LIMIT = "#rate_limit"
    FAILED = "#failed"
    NO_REPORT = "#no_report"
    NO_SERVICES = "#no_services"
    ASKED_FOR_HELP = "#asked_for_help"
    UNDECIDED = "#undecided"


TITLES = {
    RunCause.CUT_OFF: "A session was interrupted and does not continue by itself",
    RunCause.TIME_UP: "A session reached its time limit",
    RunCause.SILENT: "A session was silent for too long",
    RunCause.BUDGET: "A session spent its budget",
    RunCause.UNGUARDED: "A command ran without a decision of the command policy",
    RunCause.RATE_LIMIT: "The rate limit ended a session too often",
    RunCause.FAILED: "A session failed",
    RunCause.NO_REPORT: "A session ended without a usable report",
    RunCause.NO_SERVICES: "A cycle reported no service",
    RunCause.ASKED_FOR_HELP: "A cycle asked for help and named no service",
    RunCause.UNDECIDED: "A cycle needs a person",
}
SEVERITIES = {RunCause.UNGUARDED: Severity.CRITICAL}
STOPPED_BY_PEOPLE = frozenset({StopCause.PERSON, StopCause.PAUSE, StopCause.FOREGROUND})
"""Stops that open no incident: whoever stopped the session knows."""
BY_STOP = {
    StopCause.WORKER: RunCause.CUT_OFF,
    StopCause.TIME_LIMIT: RunCause.TIME_UP,
    StopCause.SILENCE: RunCause.SILENT,
    StopCause.BUDGET: RunCause.BUDGET,
    StopCause.UNGUARDED: RunCause.UNGUARDED,
    StopCause.RATE_LIMIT: RunCause.RATE_LIMIT,
    StopCause.TOLD: RunCause.CUT_OFF,
}
CAUSE_BY_STATUS = {
    Status.INTERRUPTED: RunCause.CUT_OFF,
    Status.TIMED_OUT: RunCause.TIME_UP,
    Status.FAILED: RunCause.FAILED,
    Status.COMPLETED: RunCause.NO_REPORT,
}


def run_cause(status: str, stop_cause: str) -> RunCause:
    """Returns the cause of a session that left no usable report."""
    by_stop = BY_STOP.get(StopCause(stop_cause)) if stop_cause else None
    return by_stop or CAUSE_BY_STATUS.get(Status(status), RunCause.UNDECIDED)


def is_of_a_run(cause: str) -> bool:
    return cause.startswith("#")


Kind, Severity, Outcome = Incident.Kind, Incident.Severity, Cycle.Outcome

LONGEST_TITLE, LONGEST_REMEDY, LONGEST_DETAIL = 200, 300, 4_000
OBSERVING_TIER = LOWEST_TIER
UNKNOWN = "unknown"
BY_STATUS = {"down": Severity.CRITICAL, "degraded": Severity.WARNING, "unknown": Severity.WARNING}
BY_LEVEL = {"critical": Severity.CRITICAL, "warning": Severity.WARNING}


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionSummary:
    """The result of one session of a cycle."""

    tier: int
    status: str = Session.Status.COMPLETED
    stop_cause: str = ""
    report: Report | None = None
    claims: tuple[Claim, ...] = ()
    """The actions of the report, compared with the record."""
    said_something: bool = True

    @property
    def was_stopped(self) -> bool:
        """A person stopped or cancelled it, so that its end is no problem of its own."""
        return self.status == Status.CANCELLED or self.stop_cause in STOPPED_BY_PEOPLE


@dataclass(frozen=True, kw_only=True, slots=True)
class CycleSummary:
    """A cycle that has ended, or that continues with a higher tier."""

    scope: str
    runs: tuple[SessionSummary, ...]
    outcome: str = ""
    """Empty while the cycle continues."""
    reason: str = ""
    why_not: str = ""
    """The cause for which its last session was not started."""
    stopped_by: str = ""
    """The person who stopped, cancelled or rejected it."""
    failing: Mapping[str, Finding] = field(default_factory=dict)
    """Findings of probes that fail now, by cause. They outrank what a report says."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A problem that opens or updates an incident."""

    kind: str
    scope: str
    cause: str
    title: str
    severity: int
    detail: str = ""
    notifies: bool = True
    """A notification is sent when it opens an incident."""
    is_certain: bool = True
    """False if the last report could not tell the state of the service."""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.scope, self.kind, self.cause


def finding_of(fact: Fact, scope: str) -> Finding:
    """Returns the finding of a fact, under the cause that reports of the service have too."""
    name = display_name(fact.service)
    return Finding(
        kind=Kind.PROBLEM,
        scope=scope,
        cause=one_spelling(fact.service),
        title=one_line(f"{name}: {fact.source} {fact.name} fails", LONGEST_TITLE),
        severity=fact.severity,
        detail=cut("\n".join(filter(None, (fact.words, fact.output))), LONGEST_DETAIL),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Fix:
    """A remedy after which a service is healthy."""

    remedy: str
    was_unwell: bool
    """An earlier session of the cycle found it unhealthy, or none had looked before."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CycleFindings:
    seen: tuple[Finding, ...] = ()
    healthy: frozenset[str] = frozenset()
    """Causes of healthy services, normalized."""
    fixed: Mapping[str, Fix] = field(default_factory=dict)
    disputed: frozenset[str] = frozenset()
    """Causes that a report calls healthy while a probe fails, without a fix to be verified."""
    mentioned: Mapping[str, Service] = field(default_factory=dict)
    """The latest statement about each service."""
    ran: bool = False
    """The model answered: nothing keeps sessions from starting any more."""
    ended_usably: bool = False
    """The last session ended with a report."""


def findings_of(found: CycleSummary) -> CycleFindings:
    mentioned = _mentioned(found.runs)
    contradicted = _contradicted(found.runs)
    unwell = (*_services(found, mentioned), *_contradictions(found, mentioned, contradicted))
    about_runs = () if unwell else tuple(_about_the_run(found))
    causes = {finding.cause for finding in unwell}
    said = frozenset(
        cause
        for cause, service in mentioned.items()
        if service.get("status") == HEALTHY and cause not in causes
    )
    # Right after a fix a probe may still be down: its next results verify the fix.
    fixed = _fixed(found.runs, said)
    disputed = said & found.failing.keys() - fixed.keys()
    facts = (found.failing[cause] for cause in sorted(disputed))
    return CycleFindings(
        seen=(*unwell, *facts, *about_runs, *_could_not_run(found)),
        healthy=said - found.failing.keys(),
        fixed=fixed,
        disputed=disputed,
        mentioned=mentioned,
        ran=any(run.said_something or run.report for run in found.runs),
        ended_usably=_ended_usably(found),
    )


def _mentioned(runs: Iterable[SessionSummary]) -> dict[str, Service]:
    """Returns the latest statement about each service; of two in one report, the worse."""
    latest: dict[str, Service] = {}
    for run in runs:
        latest |= _by_cause(run.report["services"] if run.report else [])
    return latest


def _by_cause(services: Iterable[Service]) -> dict[str, Service]:
    worst: dict[str, Service] = {}
    for service in services:
        cause = one_spelling(service["name"])
        if cause not in worst or _rank(service) > _rank(worst[cause]):
            worst[cause] = service
    return worst


def _rank(service: Service) -> tuple[int, bool]:
    """Returns a rank that is higher for a worse status; `unknown` is better than `degraded`."""
    return BY_STATUS.get(service["status"], Severity.NOTICE), service["status"] != UNKNOWN


def _unwell_before(cause: str, runs: Iterable[SessionSummary]) -> Service | None:
    """Returns the latest known status of a service in the cycle, if it was not healthy."""
    known = None
    for run in runs:
        said = _by_cause(run.report["services"] if run.report else []).get(cause)
        if said is not None and said["status"] != UNKNOWN:
            known = said
    return known if known is not None and known["status"] != HEALTHY else None


def _services(found: CycleSummary, mentioned: Mapping[str, Service]) -> Iterator[Finding]:
    last = _last_report(found.runs)
    asked_for = last["escalation"] if last and last["escalation"]["needed"] else None
    named = {one_spelling(name): name for name in (asked_for["services"] if asked_for else [])}
    for cause in dict.fromkeys((*mentioned, *named)):
        service = mentioned.get(cause)
        is_well = service is None or service["status"] == HEALTHY
        if is_well and cause not in named:
            continue
        is_certain = service is None or service["status"] != UNKNOWN
        known = service if is_certain else _unwell_before(cause, found.runs) or service
        name = display_name(service["name"] if service else named[cause])
        status = "not well" if known is None or is_well else known["status"]
        yield Finding(
            kind=Kind.PROBLEM,
            scope=found.scope,
            cause=cause,
            title=one_line(f"{name} is {status}", LONGEST_TITLE),
            severity=_severity(cause, known, found.runs),
            detail=_detail(service, last, found.reason),
            is_certain=is_certain,
        )


def _severity(cause: str, service: Service | None, runs: Iterable[SessionSummary]) -> int:
    """Returns the highest severity of the service's status and of the events that name it."""
    levels = (
        BY_LEVEL.get(event["level"], Severity.NOTICE)
        for run in runs
        if run.report
        for event in run.report["events"]
        if one_spelling(event.get("service", "")) == cause
    )
    by_status = BY_STATUS.get(service["status"], Severity.WARNING) if service else Severity.WARNING
    return max((by_status, *levels))


def _detail(service: Service | None, last: Report | None, reason: str) -> str:
    sign = (service or {}).get("detail", "")
    summary = last["summary"] if last else ""
    return cut("\n".join(filter(None, dict.fromkeys((sign, summary, reason)))), LONGEST_DETAIL)


def _contradicted(runs: Iterable[SessionSummary]) -> dict[str, Claim]:
    """Returns the services whose latest report has a claim that the record contradicts."""
    latest: dict[str, Claim | None] = {}
    was_unwell: set[str] = set()
    for run in runs:
        said = _by_cause(run.report["services"] if run.report else [])
        latest |= dict.fromkeys(said)
        for claim in run.claims:
            if claim.finding is ClaimCheck.OTHERWISE:
                named = {one_spelling(claim.service)} if claim.service else set()
                about = (named & said.keys()) or (was_unwell & said.keys()) or said.keys()
                latest |= dict.fromkeys(about, claim)
        was_unwell |= {cause for cause, service in said.items() if service["status"] != HEALTHY}
    return {cause: claim for cause, claim in latest.items() if claim is not None}


def _contradictions(
    found: CycleSummary, mentioned: Mapping[str, Service], contradicted: Mapping[str, Claim]
) -> Iterator[Finding]:
    """Yields services that a contradicted report calls healthy: nothing proves it."""
    last = _last_report(found.runs)
    for cause, claim in contradicted.items():
        service = mentioned[cause]
        if service["status"] == HEALTHY:
            told = f"“{claim.action}” is reported as done, and the record says otherwise."
            yield Finding(
                kind=Kind.PROBLEM,
                scope=found.scope,
                cause=cause,
                title=one_line(
                    f"{display_name(service['name'])}: the record contradicts the report",
                    LONGEST_TITLE,
                ),
                severity=_severity(cause, None, found.runs),
                detail=_detail(service, last, found.reason or told),
            )


def _about_the_run(found: CycleSummary) -> Iterator[Finding]:
    """Yields the finding of a cycle that needs a person without an unhealthy service."""
    cause = _cause_without_service(found)
    if cause is None:
        return
    yield Finding(
        kind=Kind.PROBLEM,
        scope=found.scope,
        cause=cause,
        title=TITLES[cause],
        severity=SEVERITIES.get(cause, Severity.WARNING),
        detail=cut(found.reason, LONGEST_DETAIL),
    )


def _cause_without_service(found: CycleSummary) -> RunCause | None:
    last = _last_report(found.runs)
    if last and last["escalation"]["needed"]:
        return RunCause.ASKED_FOR_HELP
    if found.stopped_by or (found.runs and found.runs[-1].was_stopped):
        return None
    if found.outcome != Outcome.NEEDS_PERSON or not found.runs:
        return RunCause.UNDECIDED if found.outcome == Outcome.NEEDS_PERSON else None
    run = found.runs[-1]
    if run.report is not None and run.status in Session.GOOD_STATUSES:
        return RunCause.UNDECIDED if run.report["services"] else RunCause.NO_SERVICES
    return run_cause(run.status, run.stop_cause)


def _could_not_run(found: CycleSummary) -> Iterator[Finding]:
    """Yields the finding of a cycle that could not run. The incidents of the services cover limits
    that people set for a higher tier."""
    named = bool(found.why_not) and found.why_not not in SET_BY_PEOPLE
    if found.outcome != Outcome.COULD_NOT_RUN and not named:
        return
    why_not = WhyNot(found.why_not or WhyNot.FAILED)
    yield could_not_run(why_not, found.scope, found.reason)


def could_not_run(why_not: WhyNot, scope: str, detail: str) -> Finding:
    # A drill says nothing about the real installation.
    is_everywhere = why_not in EVERYWHERE and not scope.startswith("drill:")
    return Finding(
        kind=Kind.COULD_NOT_RUN,
        scope=INSTALLATION if is_everywhere else scope,
        cause=why_not,
        title=COULD_NOT_RUN[why_not],
        severity=Severity.CRITICAL if is_everywhere else Severity.WARNING,
        detail=cut(detail, LONGEST_DETAIL),
        notifies=why_not not in NOTIFIED_ELSEWHERE,
    )


def _fixed(runs: Iterable[SessionSummary], healthy: frozenset[str]) -> dict[str, Fix]:
    """Returns the services that a higher tier changed, as the record proves, and that are healthy
    now."""
    runs = tuple(runs)
    done = [claim for run in runs if run.tier > OBSERVING_TIER for claim in proven(run.claims)]
    if not done:
        return {}
    earlier: dict[str, set[bool]] = {}
    for run in runs[:-1]:
        for cause, service in _by_cause(run.report["services"] if run.report else []).items():
            earlier.setdefault(cause, set()).add(service["status"] == HEALTHY)
    fixes = {}
    for cause in healthy:
        own = [claim for claim in done if one_spelling(claim.service) == cause]
        was_unwell = False in earlier.get(cause, set())
        if own or was_unwell:
            remedy = one_line("; ".join(claim.action for claim in own or done), LONGEST_REMEDY)
            fixes[cause] = Fix(remedy=remedy, was_unwell=was_unwell or cause not in earlier)
    return fixes


def _last_report(runs: Iterable[SessionSummary]) -> Report | None:
    return next((run.report for run in reversed(tuple(runs)) if run.report), None)


def _ended_usably(found: CycleSummary) -> bool:
    last = found.runs[-1] if found.runs else None
    return last is not None and last.status in Session.GOOD_STATUSES and last.report is not None
