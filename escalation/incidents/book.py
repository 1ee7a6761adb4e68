"""The book of incidents: what a round found is entered in the transaction that ends it.

Nothing is entered twice and nothing is lost, whatever dies: either the cycle has ended and its
incidents say so, or neither has happened.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from django.conf import settings
from django.db.models import F

from escalation.errors import WhyNot
from escalation.incidents import standing
from escalation.incidents.causes import INSTALLATION, is_of_a_run
from escalation.incidents.findings import (
    Finding,
    Findings,
    Fix,
    Round,
    Run,
    could_not_run,
    findings_of,
)
from escalation.incidents.rows import Page, standing_of, unresolved
from escalation.queue.one_at_a_time import one_at_a_time
from sessions_app.models import Cycle, Incident, ServiceState, Session, Watch
from sessions_app.models.service_state import Said
from sessions_app.reading.plain_text import one_line
from sessions_app.reading.service_names import one_spelling

Kind, State = Incident.Kind, Incident.State
Book = dict[tuple[str, str, str], Incident]

DRILL_VERIFIED_AFTER = timedelta(seconds=3)
NOT_MENTIONED = "The chain ended without a word of its state."


def scope_of(cycle: Cycle) -> str:
    if cycle.drill:
        return f"drill:{cycle.drill}"
    return f"watch:{cycle.watch_id}" if cycle.watch_id else f"removed:{cycle.watch_name}"


def note_escalation(session: Session, to_tier: int) -> None:
    """A tier asked for a higher one and gets it: what it named is being worked on."""
    cycle = session.cycle
    found = findings_of(Round(scope=scope_of(cycle), runs=_runs_of(cycle)))
    if not found.seen:
        return
    with one_at_a_time():
        page, book = Page(cycle=cycle, session=session), _book_of(cycle)
        for finding in found.seen:
            incident = book.get(finding.key)
            if incident is None:
                incident = page.open(finding)
            else:
                _see(page, incident, finding)
            words = f"Tier {to_tier} takes it on. {session.escalation_reason}"
            page.change(incident, standing.worked_on(standing_of(incident)), words)
        page.write()


def note_outcome(cycle: Cycle, why_not: str = "") -> None:
    """A cycle has ended: each cause that it saw, saw healthy, fixed or left."""
    found = findings_of(
        Round(
            scope=scope_of(cycle),
            runs=_runs_of(cycle),
            outcome=cycle.outcome,
            reason=cycle.outcome_reason,
            why_not=why_not,
        )
    )
    with one_at_a_time():
        page, book = Page(cycle=cycle), _book_of(cycle)
        _enter_seen(page, book, found.seen)
        _enter_fixed(page, book, found, scope_of(cycle))
        seen = {finding.key for finding in found.seen}
        for key, incident in book.items():
            if key not in seen:
                _enter_unseen(page, incident, found)
        page.write()
        ServiceState.enter(cycle, _said(found))


def _said(found: Findings) -> dict[str, Said]:
    """Of each service that the round named, for the page of services."""
    return {
        cause: Said(
            name=one_line(service["name"], ServiceState.LONGEST_NAME),
            status=service["status"],
            detail=one_line(service.get("detail", ""), ServiceState.LONGEST_DETAIL),
        )
        for cause, service in found.mentioned.items()
    }


def note_cooldown(session: Session, service: str, reason: str) -> None:
    """A remedy was stopped: whatever the run reports afterwards, somebody has to look."""
    finding = Finding(
        kind=Incident.Kind.PROBLEM,
        scope=scope_of(session.cycle),
        cause=one_spelling(service),
        title=f"{service} is not mended again by itself"[:200],
        severity=Incident.Severity.WARNING,
        detail=reason,
    )
    with one_at_a_time():
        page = Page(cycle=session.cycle, session=session)
        _enter_seen(page, _book_of(session.cycle), [finding])
        page.write()


def note_no_credentials(detail: str) -> None:
    """A schedule was skipped. One for the installation, however many watches are."""
    note(could_not_run(WhyNot.NO_CREDENTIALS, INSTALLATION, detail))


def note_unverifiable(incidents: Iterable[Incident], why: str) -> None:
    """Nobody will look whether these fixes hold, so a person must."""
    with one_at_a_time():
        page = Page()
        for incident in incidents:
            page.change(incident, standing.not_verified(standing_of(incident), None), why)
        page.write()


def note(finding: Finding, watch: Watch | None = None) -> None:
    """Without a round: only its first sight is a step of the story, or it would be all there is."""
    with one_at_a_time():
        page, book = Page(watch=watch), unresolved(finding.scope)
        incident = book.get(finding.key)
        if incident is None:
            page.open(finding)
        elif incident.healthy_rounds:
            _see(page, incident, finding)
        else:
            again = Incident.objects.filter(pk=incident.pk)
            again.update(last_seen_at=page.at, times_seen=F("times_seen") + 1)
        page.write()


def _book_of(cycle: Cycle) -> Book:
    """What its outcome may concern. A drill says nothing of the installation."""
    scopes = [scope_of(cycle)] if cycle.drill else [scope_of(cycle), INSTALLATION]
    return unresolved(*scopes)


def _runs_of(cycle: Cycle) -> tuple[Run, ...]:
    rows = cycle.sessions.exclude(purpose=Session.Purpose.FOLLOW_UP).order_by("pk")
    facts = rows.values_list("tier", "status", "stop_cause", "report", "messages")
    return tuple(
        Run(tier=tier, status=status, stop_cause=stop, report=report, said_something=messages > 0)
        for tier, status, stop, report, messages in facts
        if status not in Session.OPEN_STATUSES
    )


def _enter_seen(page: Page, book: Book, seen: Iterable[Finding]) -> None:
    for finding in seen:
        incident = book.get(finding.key)
        if incident is None:
            page.open(finding)
        else:
            _see(page, incident, finding)


def _see(page: Page, incident: Incident, finding: Finding) -> None:
    cycle = page.cycle.pk if page.cycle else None
    now = standing_of(incident)
    change = standing.seen(
        now, page.at, finding.severity, is_new_round=incident.last_cycle_id != cycle
    )
    incident.title, incident.detail = finding.title, finding.detail
    # The story remembers which remedy it was: the next one must not be the same.
    words = now.remedy if now.state == State.VERIFYING else finding.detail
    got_worse = isinstance(change, standing.Changed) and change.step == standing.Step.WORSE
    page.change(incident, change, f"It got worse. {words}" if got_worse else words)


def _enter_fixed(page: Page, book: Book, found: Findings, scope: str) -> None:
    for cause, fix in found.fixed.items():
        incident = book.get((scope, Kind.PROBLEM, cause))
        if incident is None and fix.was_unwell and not _had_one(page.cycle, cause):
            incident = page.open(_mended(cause, scope))
        if incident is not None:
            _fix(page, incident, fix)


def _fix(page: Page, incident: Incident, fix: Fix) -> None:
    wait = timedelta(seconds=settings.CLAUDEOPS_VERIFY_AFTER)
    due = page.at + (DRILL_VERIFIED_AFTER if incident.drill else wait)
    page.change(incident, standing.fixed(standing_of(incident), due, fix.remedy), fix.remedy)


def _mended(cause: str, scope: str) -> Finding:
    """It was not healthy when a higher tier began, and nobody had looked before."""
    return Finding(
        kind=Kind.PROBLEM,
        scope=scope,
        cause=cause,
        title=f"{cause} was not healthy",
        severity=Incident.Severity.WARNING,
    )


def _had_one(cycle: Cycle | None, cause: str) -> bool:
    """A person has resolved it while the chain was still at work."""
    return cycle is not None and cycle.incidents.filter(cause=cause).exists()


def _enter_unseen(page: Page, incident: Incident, found: Findings) -> None:
    """Found healthy, or not mentioned: then nothing is known, and nobody works on it any more."""
    if incident.pk in page.changed:
        return  # it was fixed in this round
    is_healthy, now = _is_healthy(incident, found), standing_of(incident)
    if _is_verification(page.cycle, incident):
        _enter_verification(page, incident, is_healthy)
    elif is_healthy:
        page.change(incident, standing.seen_healthy(now, page.at))
    else:
        page.change(incident, standing.work_ended(now), NOT_MENTIONED)


def _is_healthy(incident: Incident, found: Findings) -> bool:
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


def _enter_verification(page: Page, incident: Incident, is_healthy: bool) -> None:
    now = standing_of(incident)
    if is_healthy:
        page.change(incident, standing.verified(now, page.at), f"It holds: {now.remedy}")
        return
    again = page.at + timedelta(seconds=settings.CLAUDEOPS_VERIFY_AFTER)
    words = "The round that was to look at it did not run, or said nothing of it."
    page.change(incident, standing.not_verified(now, again), words)
