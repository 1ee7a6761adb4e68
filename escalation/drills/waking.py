"""Wakes a drill: its probe fails or its alerts fire, and Tier 0 runs its remedy.

A drill has no watch, so that probe, remedy and alerts are not stored: they are played with the code
that a watch uses, and leave facts, incidents and a cycle.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone

from escalation.agent.process import Traces
from escalation.alerts.decision import is_storm
from escalation.alerts.judge import fact_of, storm_fact
from escalation.alerts.parsers import parse
from escalation.command_policy.remedies import RemedyCall
from escalation.drills.scenario import DrillAlert, DrillRemedy, Scenario
from escalation.errors import CannotRun
from escalation.incidents import recorder
from escalation.probes.kinds import CommandSandboxPool, run_probe
from escalation.probes.states import Rule, after
from escalation.probes.store import set_state, state_of
from escalation.queue import enqueue_session, installation_lock
from escalation.run.remedies import run_call
from escalation.sandbox.setup import SandboxRequest
from escalation.supervisor import remedy_runs
from escalation.supervisor.conclude import finish_cycle
from escalation.supervisor.cycles import first_session
from escalation.tiers import get_tier
from sessions_app.history.services import one_spelling
from sessions_app.models import Alert, Cycle, Incident, Probe, Remedy, RemedyRun, Watch
from sessions_app.models.alert import SourceKind
from sessions_app.models.cycle import Fact
from sessions_app.text import one_line
from sessions_app.tiers import SAFE

PROBE_SECONDS = 20
REMEDY_SECONDS = 60
AT_ONCE = timedelta(0)
LONGEST_SAID = 200


def trigger_of(scenario: Scenario) -> Cycle.Trigger:
    if scenario.probe is not None:
        return Cycle.Trigger.PROBE
    return Cycle.Trigger.ALERT if scenario.alerts else Cycle.Trigger.MANUAL


def wake(cycle: Cycle, scenario: Scenario) -> str:
    """Play what starts the drill. Return what happened in a sentence."""
    if scenario.probe is None:
        return _wake_by_alerts(cycle, scenario.alerts)
    probe = _probe_of(scenario, cycle)
    _look(probe, times=probe.fail_after)
    if probe.state != Probe.State.DOWN:
        reason = f"The probe {probe.name} did not fail: {one_line(probe.last_output, LONGEST_SAID)}"
        with installation_lock():
            finish_cycle(cycle, Cycle.Outcome.HEALTHY, reason)
        return reason
    with installation_lock():
        incidents = recorder.note_facts(None, [probe.fact], cycle)
    if scenario.remedy is not None:
        return _wake_after_tier0(cycle, scenario.remedy, probe, incidents)
    _begin(cycle, [probe.fact])
    return f"The probe {probe.name} fails: {one_line(probe.last_output, LONGEST_SAID)}"


def verify(fixes: QuerySet[Incident], scenario: Scenario, cycle: Cycle) -> None:
    """Let the probe of a drill decide at once whether the fix of its service holds."""
    scenario.write_changes(Path(cycle.workdir))
    probe = _probe_of(scenario, cycle)
    _look(probe, times=probe.fail_after)
    for incident in fixes.filter(cause=one_spelling(probe.service)):
        recorder.settle_fix(incident, [probe], within=AT_ONCE)


def _begin(cycle: Cycle, facts: Sequence[Fact]) -> None:
    """Start the first tier with the facts as its evidence."""
    with installation_lock():
        cycle.evidence = [fact.stored() for fact in facts]
        cycle.save(update_fields=["evidence"])
        enqueue_session(first_session(cycle))


# The probe.


def _probe_of(scenario: Scenario, cycle: Cycle) -> Probe:
    assert scenario.probe is not None, "the scenario has a probe"
    return Probe(
        watch=Watch(name=cycle.subject, workdir=cycle.workdir),
        name=scenario.probe.name,
        service=scenario.probe.service,
        kind=Probe.Kind.COMMAND,
        target=scenario.probe.command,
        timeout_seconds=PROBE_SECONDS,
        fail_after=scenario.probe.fail_after,
        recover_after=1,
    )


def _look(probe: Probe, times: int) -> None:
    """Run a probe until it is up, or so many times, without the time between."""
    rule = Rule(fail_after=probe.fail_after, recover_after=probe.recover_after)
    sandboxes = CommandSandboxPool(_stand_ins(probe.watch.workdir))
    try:
        for _time in range(times):
            result = asyncio.run(run_probe(probe, sandboxes))
            at = timezone.now()
            step = after(state_of(probe), is_good=result.is_good, at=at, rule=rule)
            set_state(probe, step.state, result, at)
            if step.state.state == Probe.State.UP:
                return
    finally:
        sandboxes.close()


def _stand_ins(workdir: str) -> tuple[Path, ...]:
    return (Path(workdir) / "bin",)


# Tier 0.


def _wake_after_tier0(
    cycle: Cycle, remedy: DrillRemedy, probe: Probe, incidents: Sequence[Incident]
) -> str:
    run = _tier0(cycle, remedy, probe)
    _look(probe, times=1)
    helped = probe.state == Probe.State.UP
    run.proof = RemedyRun.Proof.HELPED if helped else RemedyRun.Proof.NO_HELP
    words = f"Tier 0 ran `{run.call}`: {run.result}."
    with installation_lock():
        remedy_runs.note(incidents, words)
        if not helped:
            _begin(cycle, remedy_runs.tried(run))
            return words
        recovered = replace(probe.fact, at=timezone.now(), since=None, proves=True)
        recorder.note_facts(None, [recovered], cycle)
        finish_cycle(cycle, Cycle.Outcome.FIXED, f"{words} No session was needed.")
    return words


def _tier0(cycle: Cycle, remedy: DrillRemedy, probe: Probe) -> RemedyRun:
    run = RemedyRun(
        name=remedy.name,
        kind=Remedy.Kind.RESTART,
        service=one_spelling(probe.service),
        trigger=RemedyRun.Trigger.PROBE,
        evidence=[probe.fact.stored()],
    )
    call = RemedyCall(
        name=remedy.name,
        argv=tuple(shlex.split(remedy.command)),
        grants=frozenset(),
        seconds=REMEDY_SECONDS,
        tier=SAFE,
        looks=False,
        effects=(),
    )
    try:
        run_call(run, call, _request(cycle))
    except CannotRun as error:
        run.state, run.why = RemedyRun.State.REFUSED, str(error)
    return run


def _request(cycle: Cycle) -> SandboxRequest:
    directory = Path(settings.CLAUDEOPS_STATE_DIR) / "runs" / f"drill-{cycle.pk}"
    config = directory / "config"
    config.mkdir(mode=0o700, parents=True, exist_ok=True)
    return SandboxRequest(
        tier=get_tier(SAFE),
        workdir=Path(cycle.workdir),
        config_directory=config,
        run_directory=directory,
        run_environment=dict(os.environ),
        login={},
        traces=Traces(mark=f"drill-{cycle.pk}", tool_log=directory / "tools"),
        stand_ins=_stand_ins(cycle.workdir),
    )


# Alerts.


def _wake_by_alerts(cycle: Cycle, sent: Sequence[DrillAlert]) -> str:
    alerts = _parsed(sent, timezone.now())
    facts = _facts_of(alerts)
    with installation_lock():
        incidents = recorder.note_facts(None, facts, cycle)
        words = f"{len(alerts)} alerts became incidents: {len(incidents)}, cycles: 1."
        remedy_runs.note(incidents, f"{words} A drill sends no notification; a watch sends one.")
        _begin(cycle, facts)
    return words


def _parsed(sent: Sequence[DrillAlert], at: datetime) -> list[Alert]:
    """Read the alerts from a delivery as Alertmanager writes it."""
    body = {
        "version": "4",
        "status": "firing",
        "alerts": [
            {
                "status": "firing",
                "labels": {
                    "alertname": one.name,
                    "service": one.service,
                    "severity": one.severity,
                },
                "annotations": {"summary": one.summary},
                "startsAt": at.isoformat(),
            }
            for one in sent
        ],
    }
    return [
        Alert(
            service=one.service,
            severity=one.severity,
            summary=one.summary,
            detail=one.detail,
            labels=dict(one.labels),
            starts_at=one.starts_at,
            first_seen_at=at,
            last_seen_at=at,
        )
        for one in parse(SourceKind.ALERTMANAGER, body, at).alerts
    ]


def _facts_of(alerts: Sequence[Alert]) -> list[Fact]:
    """Return the facts; alerts of a storm share those of the worst."""
    causes = {one_spelling(alert.service) for alert in alerts}
    if not is_storm(len(causes), 0):
        return [fact_of(alert) for alert in alerts]
    lead = max(alerts, key=lambda alert: alert.severity)
    return [fact_of(lead), storm_fact(lead, [one for one in alerts if one is not lead])]
