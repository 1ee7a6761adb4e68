"""A chain in a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from sessions_app.models import Cycle, Session
from sessions_app.reading.chain import Branch, Chain
from sessions_app.reading.cost_check import check_costs
from sessions_app.reading.dry_commands import would_have_run
from sessions_app.reading.formatting import cost, duration, money
from sessions_app.reading.plain_text import one_line

LONGEST_LINE = 200


def chain_lines(chain: Chain) -> Iterator[str]:
    cycle = chain.sessions[0].cycle
    yield f"Cycle {cycle.pk} of {cycle.subject}{remarks_on(cycle)}"
    for branch in chain.branches:
        yield from _branch_lines(branch)
    for tier_cost in chain.costs_by_tier:
        yield f"  Tier {tier_cost.tier}: {money(tier_cost.cost_usd)}"
    for check in check_costs(chain):
        yield f"  {check.sentence}"
    for command in would_have_run(chain.sessions):
        yield f"  would have run at Tier {command.tier}: {one_line(command.command, LONGEST_LINE)}"
    outcome = cycle.get_outcome_display() or cycle.get_state_display()
    yield f"{outcome.capitalize()}. {cycle.outcome_reason}".strip()


def remarks_on(cycle: Cycle) -> str:
    known = {
        "not charged": cycle.drill,
        "dry run": cycle.dry_run,
        "not kept": cycle.ephemeral,
    }
    remarks = ", ".join(remark for remark, applies in known.items() if applies)
    return f" ({remarks})" if remarks else ""


def _branch_lines(branch: Branch) -> Iterator[str]:
    indent = "  " * (branch.depth + 1)
    if branch.depth:
        origin = f"#{branch.came_from.pk}" if branch.came_from else "the beginning"
        yield f"{indent}↳ {branch.label} from {origin}"
    for session in branch.sessions:
        yield indent + _session_line(session)
        if session.error:
            yield f"{indent}   {session.error}"


def _session_line(session: Session) -> str:
    came_from = f" ← #{session.parent_session_id}" if session.parent_session_id else ""
    return (
        f"#{session.pk} Tier {session.tier} {session.model_used or session.model} "
        f"{session.get_status_display()} {cost(session.cost_usd, session.estimated_cost_usd)} "
        f"{duration(session.duration_ms)} {session.continued_by}{came_from}"
    )
