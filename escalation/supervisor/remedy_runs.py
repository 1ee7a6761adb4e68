"""Runs of remedies without an agent: for a person, or at Tier 0 for a failing probe.

Tier 0 runs the remedy that names the failing probe, at once and without a model. The probe decides
whether it helped; if not, a cycle begins and its first tier is told what was tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.utils import timezone
from django_q.brokers import get_broker
from django_q.tasks import async_task

from escalation.command_policy.decision import forbids
from escalation.command_policy.remedies import REMEDY
from escalation.command_policy.understanding import EVERYTHING, CommandEffect
from escalation.errors import OperationRefused, RefusalCode
from escalation.queue import installation_lock, queue_of
from escalation.supervisor import cooldowns
from escalation.supervisor.cooldowns import Reached, service_behind
from sessions_app.models import (
    Incident,
    IncidentEvent,
    PauseSwitch,
    Remedy,
    RemedyRun,
    SandboxProof,
    Watch,
)
from sessions_app.models.autonomy import Policy
from sessions_app.models.cycle import Fact
from sessions_app.models.remedy import Parameter
from sessions_app.models.watch import read_ask_rules, read_host_words
from sessions_app.tiers import LOWEST_TIER

RUN_REMEDY = "escalation.tasks.run_remedy"
PROBE = "probe"
REMOVED = "The remedy or its watch was removed meanwhile. Nothing was done."


def ask(
    remedy: Remedy,
    arguments: Sequence[str],
    *,
    by: User | None,
    by_name: str,
    incident: Incident | None = None,
    in_foreground: bool = False,
    undoes: RemedyRun | None = None,
) -> RemedyRun:
    """Store a run that a person asked for, and enqueue it unless the caller runs it.

    The caller has checked the arguments. `undoes`: the run that this one undoes, once.
    """
    run = RemedyRun(
        **_fields(remedy, arguments), incident=incident, by=by, by_name=by_name, undoes=undoes
    )
    with installation_lock():
        if undoes is not None and is_undone(undoes):
            raise OperationRefused(RefusalCode.CHANGE_UNDONE, f"{undoes.call} is undone already.")
        if was_removed(remedy):
            raise OperationRefused(RefusalCode.NOT_FOUND, REMOVED)
        if not in_foreground:
            return _enqueued(run)
        run.save()
    return run


def is_undone(run: RemedyRun) -> bool:
    """Tell whether another run undid this one, or is about to."""
    current = RemedyRun.objects.with_undo().filter(pk=run.pk).first()
    return current is None or current.undo_state is not None


def was_removed(remedy: Remedy) -> bool:
    """Tell whether another person removed the remedy, or its watch, since it was read."""
    if remedy._state.adding:
        return not Watch.objects.filter(pk=remedy.watch_id).exists()
    return not Remedy.objects.filter(pk=remedy.pk).exists()


def _fields(remedy: Remedy, arguments: Sequence[str]) -> dict[str, object]:
    return {
        "remedy": remedy,
        "name": remedy.name,
        "watch": remedy.watch,
        "arguments": list(arguments),
        "kind": remedy.kind,
        "service": service_of(remedy.kind, remedy.service, remedy.declared_parameters, arguments),
    }


def service_of(
    kind: str, service: str, parameters: Sequence[Parameter], arguments: Sequence[str]
) -> str:
    """Return the service that a run counts for: EVERYTHING if a restart names none."""
    pairs = zip(parameters, arguments, strict=False)
    named = next((value for parameter, value in pairs if parameter.is_service), service)
    if named:
        return service_behind(named)
    return EVERYTHING if kind in cooldowns.REMEDIES else ""


def _enqueued(run: RemedyRun) -> RemedyRun:
    run.save()
    async_task(
        RUN_REMEDY,
        run.pk,
        broker=get_broker(queue_of(read_host_words(run.watch.hosts))),
        task_name=f"remedy-run-{run.pk}",
    )
    return run


# Tier 0.


@dataclass(frozen=True, kw_only=True, slots=True)
class Tier0Facts:
    """Facts that decide whether the supervisor may run a remedy by itself."""

    policy: Policy
    tier: int
    looks: bool
    words: tuple[str, ...]
    """The call, such as `remedy restart web`."""
    ask_rules: tuple[str, ...] = ()
    hours: int
    last_at: datetime | None = None
    """The last run of this remedy at Tier 0."""
    reached: Reached | None = None
    """The cooldown that stops it."""
    stopped: str = ""
    """Why nothing runs at present: a pause, or a sandbox proof that got worse."""
    now: datetime


def tier0_objection(facts: Tier0Facts) -> str:
    """Return why Tier 0 leaves the failure to Tier 1, or an empty string. Pure."""
    policy = facts.policy
    if facts.stopped:
        return facts.stopped
    if policy.dry_run and not facts.looks:
        return "this is a dry run: it would have run"
    if facts.tier > policy.max_tier:
        return f"the watch may not go up to Tier {facts.tier} by itself"
    if facts.tier in policy.approval_tiers:
        return f"Tier {facts.tier} needs the approval of a person"
    for rule in facts.ask_rules:
        if forbids(rule, facts.words, facts.words[:2]):
            return f"it needs the approval of a person, by the rule {rule}"
    if facts.last_at and facts.last_at > facts.now - timedelta(hours=facts.hours):
        return f"it already ran within {facts.hours} h"
    return facts.reached.reason if facts.reached else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tier0:
    """Decision of Tier 0 about failing probes."""

    run: RemedyRun | None = None
    call: str = ""
    objection: str = ""
    """Why the declared remedy does not run."""


def begin_tier0(watch: Watch, facts: Sequence[Fact]) -> Tier0:
    """Enqueue the remedy that a failing probe has, if it may run. Holds the installation lock."""
    for fact in facts:
        if fact.source != PROBE or not fact.is_failing:
            continue
        remedy = Remedy.objects.filter(
            watch=watch, enabled=True, probe=fact.name, tier0_hours__isnull=False
        ).first()
        if remedy is None:
            continue
        arguments = [fact.service for _parameter in remedy.declared_parameters]
        words = (REMEDY, remedy.name, *arguments)
        objection = tier0_objection(_facts_of(remedy, words))
        if objection:
            return Tier0(call=" ".join(words), objection=objection)
        run = RemedyRun(
            **_fields(remedy, arguments),
            trigger=RemedyRun.Trigger.PROBE,
            evidence=[each.stored() for each in facts],
        )
        return Tier0(run=_enqueued(run), call=run.call)
    return Tier0()


def _facts_of(remedy: Remedy, words: tuple[str, ...]) -> Tier0Facts:
    watch, now = remedy.watch, timezone.now()
    watch.refresh_from_db()
    last = (
        RemedyRun.objects.filter(remedy=remedy, trigger=RemedyRun.Trigger.PROBE)
        .exclude(state=RemedyRun.State.REFUSED)
        .first()
    )
    limits = cooldowns.limits_of(watch)
    service = service_of(remedy.kind, remedy.service, remedy.declared_parameters, words[2:])
    effect = CommandEffect(kind=remedy.kind, service=service, action=" ".join(words))
    return Tier0Facts(
        policy=watch.policy,
        tier=remedy.tier,
        looks=remedy.kind == Remedy.Kind.LOOK,
        words=words,
        ask_rules=read_ask_rules(watch.ask),
        hours=remedy.tier0_hours or 1,
        last_at=last.asked_at if last else None,
        reached=cooldowns.objection(
            [effect], cooldowns.counting_for(watch, limits, now), limits, now
        ),
        stopped=_why_stopped(watch, remedy.tier),
        now=now,
    )


def _why_stopped(watch: Watch, tier: int) -> str:
    if PauseSwitch.is_on():
        return "Claude Ops is paused"
    if not watch.enabled:
        return f"the watch {watch.name} is paused"
    if tier > LOWEST_TIER and SandboxProof.holding():
        return "the last sandbox proof was worse than the one before"
    return ""


def note(incidents: Sequence[Incident], text: str, by: User | None = None) -> None:
    """Add a note to the story of incidents."""
    IncidentEvent.objects.bulk_create(
        IncidentEvent(incident=incident, kind=IncidentEvent.Kind.NOTED, text=text, by=by)
        for incident in incidents
    )


def tried(run: RemedyRun) -> list[Fact]:
    """Return the facts of a Tier 0 run for Tier 1, with what was tried."""
    words = f"Tier 0 ran `{run.call}`: {run.result}."
    if run.state == RemedyRun.State.REFUSED:
        words = f"Tier 0 could not run `{run.call}`: {run.why}."
    return [
        Fact.read({**stored, "output": f"{words} {stored.get('output', '')}".strip()})
        for stored in run.evidence
    ]
