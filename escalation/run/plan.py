"""The plan of a run: everything that it will be, decided before anything is started. Pure.

`prepare` looks up what a plan needs and carries out what must be there before the process starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from escalation.agent import ClaudeBinary, RunRequest, Traces, build_argv, conversation_id
from escalation.continuity.guards import Continuation, Fresh, Handoff, Resume
from escalation.next_step.lineage import Lineage
from escalation.report import REPORT_SCHEMA_JSON
from escalation.run.budget import RunBudget
from escalation.run.walls import WallsWanted
from escalation.tiers import Tier
from sessions_app.models import Session

# These spend what their tier has left; a run that a person starts has a budget of its own.
CONTINUING = (
    Session.Purpose.CONTINUATION,
    Session.Purpose.REPORT,
    Session.Purpose.RECOVERY,
)
SMALLEST_BUDGET = Decimal("0.01")
CONTINUED_BY = {
    Fresh: Session.ContinuedBy.FRESH,
    Resume: Session.ContinuedBy.RESUME,
    Handoff: Session.ContinuedBy.HANDOFF,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Circumstances:
    """What was found, looked up and decided for one run."""

    tier: Tier
    budget: RunBudget
    binary: ClaudeBinary
    fingerprint: str
    host: str
    config_directory: Path
    environment: Mapping[str, str]
    walls: WallsWanted
    walls_in_force: Mapping[str, Any]
    traces: Traces
    new_session_id: str
    continuation: Continuation
    continuation_facts: Mapping[str, Any]
    baseline_cost_usd: Decimal | None
    record: Mapping[str, Any] | None
    """The handoff, where the conversation cannot be had."""
    prompt: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    tier: Tier
    budget: RunBudget
    argv: list[str]
    environment: Mapping[str, str]
    """Without the way to the API, which the walls give."""
    walls: WallsWanted
    workdir: Path
    prompt: str
    traces: Traces
    session_id: str
    """The id that the conversation will have."""
    stored: Mapping[str, Any]
    """What the record knows before the process exists: a crash cannot lose it."""
    announcement: str


def plan_run(lineage: Lineage, found: Circumstances) -> Plan:
    session, tier = lineage.session, found.tier
    request = RunRequest(
        tier=tier,
        session_id=found.new_session_id,
        resumes=found.continuation.session_id if isinstance(found.continuation, Resume) else None,
        report_schema=None if session.is_question else REPORT_SCHEMA_JSON,
        max_budget_usd=found.budget.left,
        is_kept=not session.cycle.ephemeral,
        sealed=str(found.config_directory),
    )
    argv = build_argv(found.binary, request)
    session_id = conversation_id(found.binary, request)
    return Plan(
        tier=tier,
        budget=found.budget,
        argv=argv,
        environment=found.environment,
        walls=found.walls,
        workdir=Path(session.workdir),
        prompt=found.prompt,
        traces=found.traces,
        session_id=session_id,
        stored={
            "session_id": session_id,
            "prompt": found.prompt,
            "argv": argv,
            "host": found.host,
            "cli_path": found.binary.path,
            "cli_version": found.binary.version,
            "cli_fingerprint": found.fingerprint,
            "baseline_cost_usd": found.baseline_cost_usd,
            "config_dir": str(found.config_directory),
            "run_mark": found.traces.mark,
            "walls": found.walls_in_force,
            "continued_by": CONTINUED_BY[type(found.continuation)],
            "continued_why": found.continuation.why,
            "continued_guard": getattr(found.continuation, "guard", ""),
            "continuation_facts": found.continuation_facts,
            "handoff": found.record,
        },
        announcement=_announcement(found),
    )


def budget_of(lineage: Lineage, tier: Tier) -> Decimal:
    """A run that continues its tier spends what the tier has left; any other has all of it."""
    if lineage.session.purpose not in CONTINUING:
        return tier.max_budget_usd
    return max(SMALLEST_BUDGET, tier.max_budget_usd - lineage.spent_before_usd)


def _announcement(found: Circumstances) -> str:
    match found.continuation:
        case Resume(session_id=session_id, why=why):
            how = f"resumes {session_id} ({why})"
        case Handoff(why=why):
            how = f"starts by handoff, because {why}"
        case Fresh(why=why):
            how = f"starts with a fresh conversation ({why})"
    return (
        f"Tier {found.tier.number} ({found.tier.model}) {how}. "
        f"CLI {found.binary.version}, {found.binary.source}."
    )
