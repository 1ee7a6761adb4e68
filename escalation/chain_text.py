"""A chain in a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from sessions_app.chain import Chain
from sessions_app.formatting import duration, money
from sessions_app.models import Session


def chain_lines(chain: Chain) -> Iterator[str]:
    cycle = chain.sessions[0].cycle
    yield f"Cycle {cycle.pk} of {cycle.subject}{' (no real cost)' if cycle.drill else ''}"
    for session in chain.sessions:
        yield from _session_lines(session)
    for cost in chain.costs_by_tier:
        yield f"  Tier {cost.tier}: {money(cost.cost_usd)}"
    yield f"  Total: {money(chain.total_cost_usd)}"
    outcome = cycle.get_outcome_display() or cycle.get_state_display()
    yield f"{outcome.capitalize()}. {cycle.outcome_reason}".strip()


def _session_lines(session: Session) -> Iterator[str]:
    came_from = f" ← #{session.parent_session_id}" if session.parent_session_id else ""
    yield (
        f"  #{session.pk} Tier {session.tier} {session.model_used or session.model} "
        f"{session.get_status_display()} {money(session.cost_usd)} "
        f"{duration(session.duration_ms)} {session.continued_by}{came_from}"
    )
    if session.error:
        yield f"     {session.error}"
