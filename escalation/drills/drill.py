"""Drills: real cycles on a simulated system, with the model's answers from a scenario."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import transaction
from django_q.tasks import async_task

from escalation.drills import waking
from escalation.drills.scenario import Scenario, ScenarioError, load_scenario
from escalation.drills.scripted_api import ScriptedApi
from escalation.errors import CannotRun, WhyNot
from escalation.incidents import recorder
from escalation.queue import enqueue_session
from escalation.supervisor.conclude import finish_cycle
from escalation.supervisor.cycles import first_session
from escalation.supervisor.verification import due, taking
from sessions_app.credentials import API_KEY, BASE_URL, LOGINS
from sessions_app.models import Cycle, Incident, Session
from sessions_app.tiers import LOWEST_TIER, highest_tier

if TYPE_CHECKING:
    from django.contrib.auth.models import User

# The scripted API takes any key; the operator's key must not be in a drill's environment.
DRILL_KEY = "drill-no-key-needed"
WAKE_DRILL = "escalation.tasks.wake_drill"


def start_drill(
    scenario_name: str,
    *,
    requested_by: User | None = None,
    force_fresh: bool = False,
    in_foreground: bool = False,
) -> Cycle:
    """Write the scenario's system to disk and start a cycle on it, without a watch.

    If a probe or alerts wake the cycle, the worker plays them, or the caller by `wake_drill`.
    """
    scenario = load_scenario(scenario_name)
    with transaction.atomic():
        cycle = Cycle.objects.create(
            drill=scenario.name,
            trigger=waking.trigger_of(scenario),
            requested_by=requested_by,
            instructions=scenario.prompt,
            max_tier=highest_tier(),
            ask=scenario.ask,
            force_fresh=force_fresh,
            budget_usd=scenario.budget,
        )
        system = drill_directory(cycle) / "system"
        system.mkdir(parents=True, exist_ok=True)
        scenario.write_system(system)
        cycle.workdir = str(system)
        cycle.save(update_fields=["workdir"])
        if not scenario.is_woken:
            enqueue_session(first_session(cycle))
        elif not in_foreground:
            async_task(WAKE_DRILL, cycle.pk, task_name=f"wake-drill-{cycle.pk}")
    return cycle


def wake_drill(cycle: Cycle) -> str:
    """Play the probe or the alerts that start a drill. Return what happened in a sentence.

    Without a session so far, it may be repeated after the death of a worker.
    """
    if not cycle.is_active or cycle.sessions.exists():
        return f"Cycle {cycle.pk} was already woken."
    try:
        scenario = load_scenario(cycle.drill)
    except ScenarioError as error:
        finish_cycle(cycle, Cycle.Outcome.COULD_NOT_RUN, str(error), WhyNot.DRILL)
        return str(error)
    return waking.wake(cycle, scenario)


def verify_drills() -> list[Cycle]:
    """Start the verification cycles of drills that are due."""
    fixed = Cycle.objects.filter(pk__in=due().exclude(drill="").values("last_cycle"))
    started = (verify_drill(cycle) for cycle in fixed)
    return [cycle for cycle in started if cycle is not None]


def verify_drill(fixed: Cycle) -> Cycle | None:
    """Start a verification cycle for a drill that fixed something, or return None."""
    fixes = Incident.objects.filter(
        state=Incident.State.VERIFYING, last_cycle=fixed, verify_at__isnull=False
    )
    try:
        scenario = load_scenario(fixed.drill)
    except ScenarioError as error:
        recorder.note_unverifiable(fixes, str(error))
        return None
    if scenario.probe is not None:
        waking.verify(fixes, scenario, fixed)
        if not fixes.exists():
            return None
    if not scenario.verification:
        recorder.note_unverifiable(fixes, "The scenario has no verification.")
        return None
    return taking(fixes, lambda: _verification(fixed, scenario))


def _verification(fixed: Cycle, scenario: Scenario) -> Cycle:
    cycle = Cycle.objects.create(
        drill=fixed.drill,
        trigger=Cycle.Trigger.VERIFICATION,
        instructions=fixed.instructions,
        workdir=fixed.workdir,
        max_tier=LOWEST_TIER,
    )
    scenario.write_changes(Path(fixed.workdir))
    enqueue_session(first_session(cycle))
    return cycle


def drill_directory(cycle: Cycle) -> Path:
    return Path(settings.CLAUDEOPS_STATE_DIR) / "drills" / f"cycle-{cycle.pk}"


@contextmanager
def drill_environment(session: Session) -> Iterator[dict[str, str]]:
    """Serve the scripted API for a drill's session; yield its environment variables."""
    if not session.is_drill:
        yield {}
        return
    try:
        scenario = load_scenario(session.cycle.drill)
    except ScenarioError as error:
        raise CannotRun(str(error), WhyNot.DRILL) from error
    if session.cycle.trigger == Cycle.Trigger.VERIFICATION:
        scenario = scenario.at_verification()
    earlier = session.cycle.sessions.filter(tier=session.tier)
    if earlier.filter(stop_cause=Session.StopCause.RATE_LIMIT).exists():
        scenario = scenario.after_limit(session.tier)
    request_log = drill_directory(session.cycle) / "requests.jsonl"
    request_log.parent.mkdir(parents=True, exist_ok=True)
    with ScriptedApi(scenario, request_log=request_log).serving() as api:
        yield {
            **dict.fromkeys(LOGINS, ""),
            BASE_URL: api.base_url(scenario.name, session.tier, str(session.pk)),
            API_KEY: DRILL_KEY,
            "PATH": drill_path(Path(session.workdir)),
        }


def drill_path(system: Path) -> str:
    """PATH with the scenario's programs first, so that no drill touches a real service."""
    return f"{system}/bin:/usr/local/bin:/usr/bin:/bin"
