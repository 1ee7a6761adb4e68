"""Starts cycles: for a schedule, for a person, and for facts of probes and alerts.

The database allows one active cycle per watch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from django.db import IntegrityError
from django.db.models import Max

from escalation.agent.binary import credentials_configured, no_credentials
from escalation.errors import CycleActive, OperationRefused, RefusalCode
from escalation.incidents import recorder
from escalation.queue import installation_lock
from escalation.supervisor import remedy_runs
from escalation.supervisor.budgets import require_budget
from escalation.supervisor.remedy_runs import Tier0
from escalation.supervisor.successors import AS_USUAL, RunChoice, begin
from sessions_app.models import (
    Cycle,
    Incident,
    Maintenance,
    PauseSwitch,
    Probe,
    RemedyRun,
    Session,
    Watch,
)
from sessions_app.models.autonomy import refusal
from sessions_app.models.cycle import Fact
from sessions_app.redaction.redact import redacted
from sessions_app.text import cut
from sessions_app.tiers import LOWEST_TIER

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def start(
    watch: Watch,
    *,
    trigger: str,
    requested_by: User | None = None,
    prompt: str = "",
    tier: int = LOWEST_TIER,
    force_fresh: bool = False,
    ephemeral: bool = False,
    max_tier: int | None = None,
    choice: RunChoice = AS_USUAL,
    confirmed: bool = False,
    evidence: Sequence[Fact] = (),
) -> Cycle:
    """Creates a cycle with its first session and enqueues it, in one transaction."""
    if why := refusal(tier, watch.policy):
        raise OperationRefused(RefusalCode.POLICY, why)
    require_budget(Cycle(watch=watch))
    cycle = Cycle(
        watch=watch,
        watch_name=watch.name,
        trigger=trigger,
        requested_by=requested_by,
        prompt=prompt,
        evidence=[fact.stored() for fact in evidence or _failing(watch, trigger)],
        workdir=watch.workdir,
        instructions=watch.instructions,
        first_tier=tier,
        max_tier=watch.max_tier if max_tier is None else min(max_tier, watch.max_tier),
        dry_run=watch.dry_run,
        approval=watch.approval,
        ask=watch.ask,
        force_fresh=force_fresh,
        ephemeral=ephemeral,
    )
    try:
        with installation_lock():
            if not Watch.objects.filter(pk=watch.pk).exists():
                raise OperationRefused(
                    RefusalCode.WATCH_REMOVED,
                    f"Nothing was started: the watch {watch.name} was removed.",
                )
            cycle.save()
            begin(
                first_session(cycle, choice),
                by=requested_by,
                confirmed=confirmed,
            )
    except IntegrityError as error:
        active = Cycle.active_of(watch)
        if active is None:
            raise
        raise CycleActive(
            f"Cycle {active.pk} of {watch.name} is still {active.get_state_display()}; "
            "wait for it to finish."
        ) from error
    return cycle


def _failing(watch: Watch, trigger: str) -> list[Fact]:
    """Returns the probes that fail now; a verification is told nothing."""
    if trigger == Cycle.Trigger.VERIFICATION:
        return []
    return [_safe(probe.fact) for probe in Probe.objects.failing().filter(watch=watch)]


def first_session(cycle: Cycle, choice: RunChoice = AS_USUAL) -> Session:
    return Session.objects.create(
        cycle=cycle,
        tier=cycle.first_tier,
        workdir=cycle.workdir,
        continued_by=Session.ContinuedBy.FRESH,
        continued_why="first run of the cycle",
        **choice.fields(cycle.first_tier),
    )


LONGEST_OUTPUT = 2_000
REDACTED_LENGTH = 10_000
"""More is redacted than is stored, so that no secret is cut in half and missed."""
GOOD = (Cycle.Outcome.HEALTHY, Cycle.Outcome.FIXED, Cycle.Outcome.NEEDS_PERSON)


@dataclass(frozen=True, kw_only=True, slots=True)
class Woken:
    """Effect of facts: the cycle that they started or joined, or why there is none."""

    cycle: Cycle | None = None
    is_new: bool = False
    why_not: str = ""
    incidents: Sequence[Incident] = field(default_factory=list)


def wake(watch: Watch, facts: Sequence[Fact]) -> Woken:
    """Records facts of probes and alerts as incidents, and starts a cycle if one is failing.

    While a cycle of the watch is active no other is started: it keeps the facts for its next tier,
    and if none follows, another cycle starts at its end. A paused watch, the pause of everything, a
    back-off and a spent budget leave the incident to a person and to the next cycle.
    """
    facts = [_safe(fact) for fact in facts]
    failing = [fact for fact in facts if fact.is_failing]
    with installation_lock():
        active = Cycle.active_of(watch)
        if active is not None:
            active.add_facts(facts)
            return Woken(cycle=active, incidents=recorder.note_facts(watch, facts, active))
        tier0 = remedy_runs.begin_tier0(watch, facts) if failing else Tier0()
        if tier0.run is not None:
            return _with_tier0(tier0.run, recorder.note_facts(watch, facts))
        started, why_not = _started(watch, failing, facts) if failing else (None, "")
        incidents = recorder.note_facts(watch, facts, started)
        if tier0.objection:
            words = f"Tier 0 did not run `{tier0.call}`: {tier0.objection}."
            remedy_runs.note(incidents, words)
    return Woken(cycle=started, is_new=started is not None, why_not=why_not, incidents=incidents)


def _with_tier0(run: RemedyRun, incidents: Sequence[Incident]) -> Woken:
    run.incident = next(iter(incidents), None)
    run.save(update_fields=["incident"])
    return Woken(why_not=f"Tier 0 runs `{run.call}` first", incidents=incidents)


def after_tier0(run: RemedyRun) -> Cycle | None:
    """Begins a cycle after a remedy of Tier 0 that did not help, and tells it what was tried."""
    if run.trigger != RemedyRun.Trigger.PROBE or run.proof == RemedyRun.Proof.HELPED:
        return None
    with installation_lock():
        facts = remedy_runs.tried(run)
        cycle = Cycle.active_of(run.watch)
        if cycle is not None:
            cycle.add_facts(facts)
        else:
            cycle, _why_not = _started(run.watch, facts, facts)
        run.cycle = cycle
        run.save(update_fields=["cycle"])
    return cycle


def wake_again(cycle: Cycle) -> Cycle | None:
    """Starts a cycle for failing facts that came too late for the sessions of this one.

    The caller has ended the cycle in its transaction. A cycle without a prompt starts no other: it
    would end like this one.
    """
    if cycle.watch is None or cycle.stopped_by or cycle.outcome not in GOOD:
        return None
    told = cycle.sessions.aggregate(most=Max("facts_told"))["most"]
    cycle.refresh_from_db(fields=["evidence"])
    if told is None or told >= len(cycle.evidence):
        return None
    untold = cycle.facts[told:]
    last = {(fact.source, fact.name): fact for fact in untold}
    failing = [fact for fact in last.values() if fact.is_failing]
    return _started(cycle.watch, failing, failing)[0] if failing else None


def _started(
    watch: Watch, failing: Sequence[Fact], facts: Sequence[Fact]
) -> tuple[Cycle | None, str]:
    """Returns the new cycle, or None and the reason."""
    watch.refresh_from_db()
    if not watch.enabled:
        return None, f"the watch {watch.name} is paused"
    if PauseSwitch.is_on():
        return None, "Claude Ops is paused"
    if any(window.holds_now and not window.service for window in Maintenance.windows_of(watch)):
        return None, f"the watch {watch.name} is in maintenance"
    if watch.is_backed_off:
        return None, f"the watch {watch.name} failed too often and waits"
    if not credentials_configured():
        recorder.note_no_credentials(no_credentials())
        return None, no_credentials()
    try:
        return start(watch, trigger=failing[0].source, evidence=facts), ""
    except OperationRefused as refused:
        return None, str(refused)


def _safe(fact: Fact) -> Fact:
    output = cut(redacted(fact.output[:REDACTED_LENGTH]), LONGEST_OUTPUT)
    return replace(fact, name=redacted(fact.name)[:200], output=output)
