"""What a round says about each cause: a pure function over what its runs left behind.

All reports of a round are read together, and of each service the latest word counts. A service
that none of them mentions is not healthy: nothing is known of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from escalation.errors import WhyNot
from escalation.incidents.causes import (
    COULD_NOT_RUN,
    EVERYWHERE,
    INSTALLATION,
    SEVERITIES,
    TITLES,
    RunCause,
    run_cause,
)
from escalation.report import HEALTHY, Action, Report, Service
from sessions_app.models import Cycle, Incident, Session
from sessions_app.reading.plain_text import cut, one_line
from sessions_app.reading.service_names import one_spelling

Kind, Severity, Outcome = Incident.Kind, Incident.Severity, Cycle.Outcome

LONGEST_TITLE, LONGEST_REMEDY, LONGEST_DETAIL = 200, 300, 4_000
OBSERVING_TIER = 1
BY_STATUS = {"down": Severity.CRITICAL, "degraded": Severity.WARNING, "unknown": Severity.WARNING}
BY_LEVEL = {"critical": Severity.CRITICAL, "warning": Severity.WARNING}


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """What one run of a round left behind."""

    tier: int
    status: str = Session.Status.COMPLETED
    stop_cause: str = ""
    report: Report | None = None
    said_something: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """A round that has ended, or that is about to go on with a higher tier."""

    scope: str
    runs: tuple[Run, ...]
    outcome: str = ""
    """Nothing while it goes on."""
    reason: str = ""
    why_not: str = ""
    """Why its last run was not started, by name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Something that is not as it should be."""

    kind: str
    scope: str
    cause: str
    title: str
    severity: int
    detail: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.scope, self.kind, self.cause


@dataclass(frozen=True, kw_only=True, slots=True)
class Fix:
    """A service that is healthy after something was done about it."""

    remedy: str
    was_unwell: bool
    """An earlier run of the same round had found it not healthy, or nobody had looked before."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Findings:
    seen: tuple[Finding, ...] = ()
    healthy: frozenset[str] = frozenset()
    """Causes, in one spelling."""
    fixed: Mapping[str, Fix] = field(default_factory=dict)
    mentioned: Mapping[str, Service] = field(default_factory=dict)
    """Of each service the latest word, well or not."""
    ran: bool = False
    """The model was reached: what keeps runs from starting is over."""
    ended_usably: bool = False
    """Its last run came to an end with a report."""


def findings_of(found: Round) -> Findings:
    mentioned = _mentioned(found.runs)
    unwell = tuple(_services(found, mentioned))
    about_runs = () if unwell else tuple(_about_the_run(found))
    seen = (*unwell, *about_runs, *_could_not_run(found))
    causes = {finding.cause for finding in unwell}
    healthy = frozenset(
        cause
        for cause, service in mentioned.items()
        if service.get("status") == HEALTHY and cause not in causes
    )
    return Findings(
        seen=seen,
        healthy=healthy,
        fixed=_fixed(found.runs, healthy),
        mentioned=mentioned,
        ran=any(run.said_something or run.report for run in found.runs),
        ended_usably=_ended_usably(found),
    )


def _mentioned(runs: Iterable[Run]) -> dict[str, Service]:
    """Of each service the latest word, and of two in one report the worse."""
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


def _rank(service: Service) -> int:
    return BY_STATUS.get(service["status"], Severity.NOTICE)


def _services(found: Round, mentioned: Mapping[str, Service]) -> Iterator[Finding]:
    last = _last_report(found.runs)
    asked_for = last["escalation"] if last and last["escalation"]["needed"] else None
    named = {one_spelling(name): name for name in (asked_for["services"] if asked_for else [])}
    for cause in dict.fromkeys((*mentioned, *named)):
        service = mentioned.get(cause)
        is_well = service is None or service["status"] == HEALTHY
        if is_well and cause not in named:
            continue
        name = service["name"] if service else named[cause]
        status = "not well" if service is None or is_well else service["status"]
        yield Finding(
            kind=Kind.PROBLEM,
            scope=found.scope,
            cause=cause,
            title=one_line(f"{name} is {status}", LONGEST_TITLE),
            severity=_severity(cause, service, found.runs),
            detail=_detail(service, last, found.reason),
        )


def _severity(cause: str, service: Service | None, runs: Iterable[Run]) -> int:
    """By the state of the service and by the events that name it."""
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


def _about_the_run(found: Round) -> Iterator[Finding]:
    """A person is needed, and no service is why."""
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


def _cause_without_service(found: Round) -> RunCause | None:
    last = _last_report(found.runs)
    if last and last["escalation"]["needed"]:
        return RunCause.ASKED_FOR_HELP
    if found.outcome != Outcome.NEEDS_PERSON or not found.runs:
        return RunCause.UNDECIDED if found.outcome == Outcome.NEEDS_PERSON else None
    run = found.runs[-1]
    if run.report is not None and run.status in Session.GOOD_STATUSES:
        return RunCause.UNDECIDED if run.report["services"] else RunCause.NO_SERVICES
    return run_cause(run.status, run.stop_cause)


def _could_not_run(found: Round) -> Iterator[Finding]:
    """The configuration is to blame, not the system. What the policy forbids to a higher tier is
    told by the incidents of the services."""
    named = bool(found.why_not) and found.why_not != WhyNot.POLICY
    if found.outcome != Outcome.COULD_NOT_RUN and not named:
        return
    why_not = WhyNot(found.why_not or WhyNot.FAILED)
    yield could_not_run(why_not, found.scope, found.reason)


def could_not_run(why_not: WhyNot, scope: str, detail: str) -> Finding:
    # A drill has an installation of its own, as it were: it says nothing about the real one.
    is_everywhere = why_not in EVERYWHERE and not scope.startswith("drill:")
    return Finding(
        kind=Kind.COULD_NOT_RUN,
        scope=INSTALLATION if is_everywhere else scope,
        cause=why_not,
        title=COULD_NOT_RUN[why_not],
        severity=Severity.CRITICAL if is_everywhere else Severity.WARNING,
        detail=cut(detail, LONGEST_DETAIL),
    )


def _fixed(runs: Iterable[Run], healthy: frozenset[str]) -> dict[str, Fix]:
    """Healthy now, and something was done about it. Observing changes nothing, whatever it says."""
    runs = tuple(runs)
    done = [action for run in runs if run.tier > OBSERVING_TIER for action in _succeeded(run)]
    if not done:
        return {}
    earlier: dict[str, set[bool]] = {}
    for run in runs[:-1]:
        for cause, service in _by_cause(run.report["services"] if run.report else []).items():
            earlier.setdefault(cause, set()).add(service["status"] == HEALTHY)
    fixes = {}
    for cause in healthy:
        own = [action for action in done if one_spelling(action.get("service", "")) == cause]
        was_unwell = False in earlier.get(cause, set())
        if own or was_unwell:
            remedy = one_line("; ".join(a["action"] for a in own or done), LONGEST_REMEDY)
            fixes[cause] = Fix(remedy=remedy, was_unwell=was_unwell or cause not in earlier)
    return fixes


def _succeeded(run: Run) -> list[Action]:
    actions = run.report["actions_taken"] if run.report else []
    return [action for action in actions if action["result"] == "succeeded"]


def _last_report(runs: Iterable[Run]) -> Report | None:
    return next((run.report for run in reversed(tuple(runs)) if run.report), None)


def _ended_usably(found: Round) -> bool:
    last = found.runs[-1] if found.runs else None
    return last is not None and last.status in Session.GOOD_STATUSES and last.report is not None
