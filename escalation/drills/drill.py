"""A drill: a real cycle on a make-believe system, with the model's side played from a scenario."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import transaction

from escalation.agent import CREDENTIALS
from escalation.errors import CannotRun
from escalation.incidents import book
from escalation.next_step.cycles import Enqueue, first_session
from escalation.next_step.verification import due, taking
from escalation.rehearsal.drills.messages_api import ScriptedApi
from escalation.rehearsal.drills.scenario import Scenario, ScenarioError, load_scenario
from escalation.tiers import HIGHEST_TIER, LOWEST_TIER
from sessions_app.models import Cycle, Incident, Session

if TYPE_CHECKING:
    from django.contrib.auth.models import User

# The scripted API takes any key; the operator's own must not be in a drill's environment.
DRILL_KEY = "drill-no-key-needed"


def start_drill(
    scenario_name: str,
    *,
    enqueue: Enqueue,
    requested_by: User | None = None,
    force_fresh: bool = False,
) -> Cycle:
    """Lay out the scenario's system and start a cycle on it. A drill has no watch."""
    scenario = load_scenario(scenario_name)
    with transaction.atomic():
        cycle = Cycle.objects.create(
            drill=scenario.name,
            trigger=Cycle.Trigger.MANUAL,
            requested_by=requested_by,
            instructions=scenario.prompt,
            max_tier=HIGHEST_TIER,
            ask=scenario.ask,
            force_fresh=force_fresh,
            budget_usd=scenario.budget,
        )
        system = drill_directory(cycle) / "system"
        system.mkdir(parents=True, exist_ok=True)
        scenario.lay_out(system)
        cycle.workdir = str(system)
        cycle.save(update_fields=["workdir"])
        enqueue(first_session(cycle))
    return cycle


def verify_drills(enqueue: Enqueue) -> list[Cycle]:
    """The rounds that were started to look whether the fixes of drills hold."""
    fixed = Cycle.objects.filter(pk__in=due().exclude(drill="").values("last_cycle"))
    started = (verify_drill(cycle, enqueue=enqueue) for cycle in fixed)
    return [cycle for cycle in started if cycle is not None]


def verify_drill(fixed: Cycle, *, enqueue: Enqueue) -> Cycle | None:
    """A fresh round on the system of a drill that fixed something; None where there is no fix."""
    fixes = Incident.objects.filter(
        state=Incident.State.VERIFYING, last_cycle=fixed, verify_at__isnull=False
    )
    try:
        scenario = load_scenario(fixed.drill)
    except ScenarioError as error:
        book.note_unverifiable(fixes, str(error))
        return None
    if not scenario.verification:
        book.note_unverifiable(fixes, "The scenario has no verification.")
        return None
    return taking(fixes, lambda: _verification(fixed, scenario, enqueue))


def _verification(fixed: Cycle, scenario: Scenario, enqueue: Enqueue) -> Cycle:
    cycle = Cycle.objects.create(
        drill=fixed.drill,
        trigger=Cycle.Trigger.VERIFICATION,
        instructions=fixed.instructions,
        workdir=fixed.workdir,
        max_tier=LOWEST_TIER,
    )
    scenario.let_time_pass(Path(fixed.workdir))
    enqueue(first_session(cycle))
    return cycle


def drill_directory(cycle: Cycle) -> Path:
    return Path(settings.CLAUDEOPS_STATE_DIR) / "drills" / f"cycle-{cycle.pk}"


@contextmanager
def drill_surroundings(session: Session) -> Iterator[dict[str, str]]:
    """Environment variables for this run: none for a real one, a scripted API for a drill."""
    if not session.is_drill:
        yield {}
        return
    try:
        scenario = load_scenario(session.cycle.drill)
    except ScenarioError as error:
        raise CannotRun(str(error)) from error
    if session.cycle.trigger == Cycle.Trigger.VERIFICATION:
        scenario = scenario.at_verification()
    earlier = session.cycle.sessions.filter(tier=session.tier)
    if earlier.filter(stop_cause=Session.StopCause.ACCOUNT_LIMIT).exists():
        scenario = scenario.after_limit(session.tier)
    request_log = drill_directory(session.cycle) / "requests.jsonl"
    request_log.parent.mkdir(parents=True, exist_ok=True)
    with ScriptedApi(scenario, request_log=request_log).serving() as api:
        yield {
            **dict.fromkeys(CREDENTIALS, ""),
            "ANTHROPIC_BASE_URL": api.base_url(scenario.name, session.tier, str(session.pk)),
            "ANTHROPIC_API_KEY": DRILL_KEY,
            "PATH": drill_path(Path(session.workdir)),
        }


def drill_path(system: Path) -> str:
    """The scenario's own programs come first, so that no drill touches a real service."""
    return f"{system}/bin:/usr/local/bin:/usr/bin:/bin"
