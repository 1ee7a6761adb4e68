"""The receipt of an escalation: who asked for a run and why, and what it got that the one before
it had not. From the record alone: the command lines, the walls and the facts that were seen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from sessions_app.models import Session
from sessions_app.reading.guard_lines import GuardLine, guard_lines
from sessions_app.reading.plain_text import as_text
from sessions_app.reading.report_text import read_report
from sessions_app.reading.walls import read_walls


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    gained: tuple[str, ...]
    lost: tuple[str, ...]

    @property
    def is_none(self) -> bool:
        return not self.gained and not self.lost


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    parent: Session
    asked_by: str
    why: str
    guards: tuple[GuardLine, ...]
    tools: Difference | None
    """None where one of the two runs has no record of it."""
    doors: Difference | None
    model_before: str
    model_now: str
    context_tokens: int
    context_share: Decimal | None
    """Of the new model's window, when this run began."""
    budget_usd: Decimal | None
    """What it was given."""
    left_usd: Decimal | None


def receipt_of(session: Session, parent: Session | None) -> Receipt | None:
    if parent is None:
        return None
    asked_by, why = _asked(session, parent)
    budget = _budget(session)
    spent = session.cost_usd if session.cost_usd is not None else session.spent_so_far_usd
    return Receipt(
        parent=parent,
        asked_by=asked_by,
        why=why,
        guards=guard_lines(session.continuation_facts, session.continued_guard),
        tools=_difference(_tools(parent), _tools(session)),
        doors=_difference(_doors(parent), _doors(session)),
        model_before=parent.model_used or parent.model,
        model_now=session.model_used or session.model,
        context_tokens=parent.context_tokens,
        context_share=_share(session, parent),
        budget_usd=budget,
        left_usd=None if budget is None or spent is None else max(Decimal(0), budget - spent),
    )


def flag(argv: Any, name: str) -> str | None:
    """The word after a flag of a recorded command line."""
    words = [as_text(word) for word in argv] if isinstance(argv, list) else []
    place = words.index(name) + 1 if name in words else len(words)
    return words[place] if place < len(words) else None


def _asked(session: Session, parent: Session) -> tuple[str, str]:
    if session.requested_by is not None:
        return session.requested_by.get_username(), session.request
    report = read_report(parent.report)
    if session.tier > parent.tier and report and report.wants_escalation:
        return f"Tier {parent.tier}", report.escalation or parent.escalation_reason
    return "Claude Ops", parent.escalation_reason


def _difference(before: set[str] | None, now: set[str] | None) -> Difference | None:
    if before is None or now is None:
        return None
    return Difference(gained=_sorted(now - before), lost=_sorted(before - now))


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names))


def _tools(session: Session) -> set[str] | None:
    given = flag(session.argv, "--tools")
    return None if given is None else set(filter(None, given.split(",")))


def _doors(session: Session) -> set[str] | None:
    walls = read_walls(session.walls)
    return set(walls.doors) if walls and walls.doors is not None else None


def _share(session: Session, parent: Session) -> Decimal | None:
    facts = session.continuation_facts if isinstance(session.continuation_facts, dict) else {}
    run = facts.get("run")
    window = run.get("context_window") if isinstance(run, dict) else None
    is_number = isinstance(window, int) and not isinstance(window, bool) and window > 0
    return Decimal(parent.context_tokens) / Decimal(window) if window and is_number else None


def _budget(session: Session) -> Decimal | None:
    try:
        given = Decimal(flag(session.argv, "--max-budget-usd") or "")
    except InvalidOperation:
        return session.max_budget_usd
    return given if given.is_finite() else None
