"""A chain as plain data, for scripts: the commands print it as JSON."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from sessions_app.models import Cycle, Session
from sessions_app.reading.chain import Chain
from sessions_app.reading.masking import masked


def chain_as_data(chain: Chain) -> list[dict[str, Any]]:
    return [session_as_data(session) for session in chain.sessions]


def session_as_data(session: Session) -> dict[str, Any]:
    return {
        "id": session.pk,
        "cycle": session.cycle_id,
        "watch": _watch_name(session.cycle),
        "drill": session.cycle.drill or None,
        "ephemeral": session.cycle.ephemeral,
        "tier": session.tier,
        "purpose": session.purpose,
        "model": session.model,
        "max_turns": session.max_turns,
        "max_budget_usd": _number(session.max_budget_usd),
        "model_used": session.model_used,
        "status": session.status,
        "session_id": session.session_id,
        "parent_session_id": session.parent_session_id,
        "cost_usd": _number(session.cost_usd),
        "cost_basis": session.cost_basis or None,
        "reported_cost_usd": _number(session.reported_cost_usd),
        "estimated_cost_usd": _number(session.estimated_cost_usd),
        "input_tokens": session.input_tokens,
        "output_tokens": session.output_tokens,
        "cache_read_tokens": session.cache_read_tokens,
        "cache_creation_tokens": session.cache_creation_tokens,
        "turns": session.turns,
        "duration_ms": session.duration_ms,
        "exit_code": session.exit_code,
        "continued_by": session.continued_by,
        "continued_guard": session.continued_guard or None,
        "continued_why": session.continued_why,
        "context_tokens": session.context_tokens,
        "compactions": session.compactions,
        "request": session.request or None,
        "answer": answer_text(session) or None,
        "escalation_reason": session.escalation_reason,
        "error": session.error,
        **_reported(session),
        **_times(session),
        "stop_cause": session.stop_cause or None,
        "stop_requested": session.stop_requested or None,
        "host": session.host,
        "cli_version": session.cli_version,
        "workdir": session.workdir,
        "outcome": session.cycle.outcome or None,
        "outcome_reason": session.cycle.outcome_reason,
    }


def _reported(session: Session) -> dict[str, Any]:
    """What the tier itself said: whole, and what scripts look for by name."""
    report = session.report if isinstance(session.report, dict) else {}
    return {
        "report": session.report,
        "services": report.get("services", []),
        "actions": report.get("actions_taken", []),
    }


def _times(session: Session) -> dict[str, str | None]:
    moments = ("created_at", "started_at", "first_activity_at", "last_activity_at", "finished_at")
    return {
        name: at.isoformat() if (at := getattr(session, name)) is not None else None
        for name in moments
    }


def answer_text(session: Session) -> str:
    """What was answered to a question, whole; other runs have a report instead."""
    return masked(session.result).strip() if session.is_question else ""


def session_in_full(session: Session) -> dict[str, Any]:
    """Every column as well: prompt, command line, report and what was seen when it continued."""
    columns = {
        field.attname: getattr(session, field.attname) for field in Session._meta.concrete_fields
    }
    plain = {
        name: _number(value) if isinstance(value, Decimal) else value
        for name, value in columns.items()
    }
    return {**plain, **session_as_data(session), "dry_run": session.cycle.dry_run}


def _watch_name(cycle: Cycle) -> str | None:
    return cycle.watch.name if cycle.watch else cycle.watch_name or None


def _number(amount: Decimal | None) -> float | None:
    """Ten decimal places fit into a float's digits, so the printed number is the exact one."""
    return None if amount is None else float(amount)
