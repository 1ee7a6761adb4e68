"""What is stored about a finished run: the stream's facts as the session's fields."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from escalation.agent.contract import contract_of
from escalation.agent.stream import RunFacts, Tokens
from escalation.run.cost import OwnCost, last_unit_price, own_cost
from escalation.run.preparation import Preparation
from sessions_app.models import Session


def stored_facts(session: Session, preparation: Preparation, facts: RunFacts) -> dict[str, Any]:
    cost = cost_of(session, preparation, facts)
    reports_per_run = cost.basis == Session.CostBasis.PER_RUN and "modelUsage" in facts.result
    tokens = facts.reported_tokens if reports_per_run else facts.own_tokens
    stop_reason = facts.result.get("terminal_reason") or facts.result.get("stop_reason") or ""
    return {
        "model_used": facts.model[:100],
        **spent_fields(cost, tokens),
        "context_tokens": facts.context_tokens,
        "context_window": facts.context_window,
        "compactions": facts.compactions,
        "turns": facts.turns,
        "messages": facts.messages,
        "first_activity_at": session.started_at,
        "last_activity_at": timezone.now(),
        "stop_reason": str(stop_reason)[:100],
        "result": facts.result_text,
    }


def spent_fields(cost: OwnCost, tokens: Tokens) -> dict[str, Any]:
    """Money and tokens as the session stores them."""
    return {
        "cost_usd": cost.cost_usd,
        "reported_cost_usd": cost.reported_cost_usd,
        "baseline_cost_usd": cost.baseline_cost_usd,
        "estimated_cost_usd": cost.estimated_cost_usd,
        "cost_basis": cost.basis,
        "input_tokens": tokens.input,
        "output_tokens": tokens.output,
        "cache_read_tokens": tokens.cache_read,
        "cache_creation_tokens": tokens.cache_creation,
    }


def cost_of(session: Session, preparation: Preparation, facts: RunFacts) -> OwnCost:
    def accumulates() -> bool | None:
        contract = contract_of(preparation.binary)
        if not contract.works:
            return None
        forked = preparation.conversation_id == preparation.request.session_id
        return contract.accumulates_on_fork if forked else contract.accumulates_on_resume

    return own_cost(
        facts,
        resumed=preparation.resumes,
        accumulates=accumulates,
        baseline=lambda: preparation.baseline,
        unit_price=lambda: last_unit_price(session.model),
    )
