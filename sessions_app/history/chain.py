"""Chain of the sessions of a cycle, its branches and its costs.

One query reads the sessions of a cycle; `parent_session` gives their order. Sessions that the
supervisor adds form one line. Sessions that a person adds (follow-up, fork, retry) start branches,
so the chain is a tree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sessions_app.models import Cycle, Session
from sessions_app.redaction.redact import redacted
from sessions_app.text import cost, estimate, money

DEEPEST_INDENT = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class TierCost:
    tier: int
    cost_usd: Decimal
    runs: int
    share: Decimal
    """Share of the total of the chain, from 0 to 1."""
    cost_text: str
    """The cost, with what is missing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Branch:
    """Sessions that follow each other in one line."""

    sessions: tuple[Session, ...]
    depth: int
    """0 for the first line, 1 for its branches, and so on."""
    came_from: Session | None

    @property
    def label(self) -> str:
        """Purpose of the first session."""
        return str(self.sessions[0].get_purpose_display())

    @property
    def outcome(self) -> str:
        """Its own outcome; empty while it runs, and for lines that decide on the cycle."""
        return self.sessions[0].branch_outcome

    @property
    def outcome_text(self) -> str:
        return str(self.sessions[0].get_branch_outcome_display())

    @property
    def reason(self) -> str:
        return self.sessions[0].branch_reason

    @property
    def indent(self) -> int:
        """Steps by which a page indents the line."""
        return min(self.depth, DEEPEST_INDENT)


@dataclass(frozen=True, kw_only=True, slots=True)
class Chain:
    sessions: tuple[Session, ...]
    """Sessions, parents before their children."""

    @property
    def total_cost_usd(self) -> Decimal:
        return sum((session.cost_usd or Decimal(0) for session in self.sessions), Decimal(0))

    @property
    def estimated_cost_usd(self) -> Decimal:
        """Sum of the estimates of sessions without a reported cost."""
        guesses = (s.estimated_cost_usd for s in self.sessions if s.cost_usd is None)
        return sum((guess or Decimal(0) for guess in guesses), Decimal(0))

    @property
    def cost_is_complete(self) -> bool:
        """True if the cost of every session is known."""
        return all(session.cost_usd is not None for session in self.sessions)

    @property
    def cost_text(self) -> str:
        """The total, with what is missing."""
        total = money(self.total_cost_usd)
        if self.cost_is_complete:
            return total
        if any(session.is_open for session in self.sessions):
            return f"{total} so far" if self.total_cost_usd else "pending"
        parts = [total] if any(session.cost_usd is not None for session in self.sessions) else []
        if self.estimated_cost_usd:
            parts.append(estimate(self.estimated_cost_usd))
        missing = (session for session in self.sessions if session.cost_usd is None)
        if any(session.estimated_cost_usd is None for session in missing):
            parts.append("unknown")
        return " + ".join(parts) or "unknown"

    @property
    def duration_ms(self) -> int:
        return sum(session.duration_ms or 0 for session in self.sessions)

    @property
    def total_tokens(self) -> int:
        return sum(session.total_tokens for session in self.sessions)

    @property
    def costs_by_tier(self) -> tuple[TierCost, ...]:
        by_tier: dict[int, list[Session]] = defaultdict(list)
        for session in self.sessions:
            by_tier[session.tier].append(session)
        total = self.total_cost_usd
        return tuple(
            TierCost(
                tier=tier,
                cost_usd=own.total_cost_usd,
                runs=len(own.sessions),
                share=own.total_cost_usd / total if total else Decimal(0),
                cost_text=own.cost_text,
            )
            for tier in sorted(by_tier)
            for own in [Chain(sessions=tuple(by_tier[tier]))]
        )

    @property
    def branches(self) -> tuple[Branch, ...]:
        """The lines of the tree; a branch follows the line that it starts from."""
        children = _children_by_parent(self.sessions)
        branches = []
        waiting: list[tuple[Session | None, Session, int]] = [
            (None, root, int(root.traits.starts_branch)) for root in _roots(self.sessions)
        ]
        while waiting:
            came_from, first, depth = waiting.pop(0)
            line = _line_from(first, children)
            branches.append(Branch(sessions=tuple(line), depth=depth, came_from=came_from))
            waiting[:0] = [
                (parent, child, depth + 1)
                for parent in line
                for child in children[parent.pk]
                if child not in line
            ]
        return tuple(branches)

    @property
    def leaves(self) -> tuple[Session, ...]:
        parents = {session.parent_session_id for session in self.sessions}
        return tuple(session for session in self.sessions if session.pk not in parents)

    def path_to(self, session: Session) -> tuple[Session, ...]:
        """Return the sessions from the root to a session, both included."""
        by_id = {member.pk: member for member in self.sessions}
        path = [session]
        while (parent := by_id.get(path[0].parent_session_id or 0)) and parent not in path:
            path.insert(0, parent)
        return tuple(path)

    def branch_of(self, session: Session) -> tuple[Session, ...]:
        """Return the sessions from the one that begins the branch of a session to the session.

        Empty for a session that is in no branch.
        """
        branch: list[Session] = []
        for run in reversed(self.path_to(session)):
            if not run.in_branch:
                break
            branch.insert(0, run)
            if run.purpose == Session.Purpose.FORK:
                break
        return tuple(branch)

    def branches_on_path(self, session: Session) -> tuple[int, ...]:
        """Return the numbers of the sessions before a session, with it, that are in a branch."""
        return tuple(run.pk for run in self.path_to(session) if run.in_branch)


def own_branch(session: Session) -> tuple[int, ...]:
    """Return `branches_on_path`, without a query for a session that is in no branch."""
    return chain_of(session).branches_on_path(session) if session.in_branch else ()


def session_cost(session: Session) -> str:
    """Format the cost of a session: "pending" while it is open, "unknown" without a figure."""
    if session.cost_usd is None and session.is_open:
        return "pending"
    is_measured = session.cost_basis == Session.CostBasis.MEASURED and session.cost_usd
    mark = " (measured)" if is_measured else ""
    return f"{cost(session.cost_usd, session.estimated_cost_usd)}{mark}"


def chain_of(session: Session) -> Chain:
    """Return the chain of a session, with one query."""
    relatives = list(
        Session.objects.filter(cycle=session.cycle_id).select_related("cycle__watch").order_by("id")
    )
    return Chain(sessions=tuple(_parents_first(relatives)))


def chain_of_cycle(cycle: Cycle) -> Chain:
    """Return the chain of a cycle with the accounts that requested sessions, with one query."""
    runs = list(cycle.sessions.select_related("requested_by").order_by("id"))
    for run in runs:
        run.cycle = cycle
    return Chain(sessions=tuple(_parents_first(runs)))


def _parents_first(relatives: list[Session]) -> list[Session]:
    children = _children_by_parent(relatives)
    ordered, waiting = [], _roots(relatives)
    while waiting:
        session = waiting.pop(0)
        ordered.append(session)
        waiting = children[session.pk] + waiting
    return ordered


def _children_by_parent(sessions: Iterable[Session]) -> dict[int | None, list[Session]]:
    children: dict[int | None, list[Session]] = defaultdict(list)
    for session in sessions:
        children[session.parent_session_id].append(session)
    return children


def _roots(sessions: Iterable[Session]) -> list[Session]:
    """Return the sessions without a parent: the first one and its retries."""
    sessions = list(sessions)
    known = {session.pk for session in sessions}
    return [session for session in sessions if session.parent_session_id not in known]


def _line_from(first: Session, children: dict[int | None, list[Session]]) -> list[Session]:
    """Return a line. Of two sessions that could continue it, the later one does."""
    line = [first]
    while heirs := [child for child in children[line[-1].pk] if _goes_on(line[-1], child)]:
        line.append(heirs[-1])
    return line


def _goes_on(parent: Session, child: Session) -> bool:
    """Return True if a child continues the line of its parent, as a second question does."""
    is_next_question = child.is_question and parent.is_question
    return not child.traits.starts_branch or is_next_question


def chain_as_data(chain: Chain) -> list[dict[str, Any]]:
    """Return a chain as plain data, which commands print as JSON."""
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
        "telemetry_cost_usd": _number(session.telemetry_cost_usd),
        "telemetry_differs": session.telemetry_differs,
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
        "in_branch": session.in_branch,
        "branch_outcome": session.branch_outcome or None,
        "branch_reason": session.branch_reason,
    }


def _reported(session: Session) -> dict[str, Any]:
    """Return the report, and its services and actions by name."""
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
    """Return the redacted answer to a question; empty for other sessions."""
    return redacted(session.result).strip() if session.is_question else ""


def session_in_full(session: Session) -> dict[str, Any]:
    """Return a session as plain data with all columns."""
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
    """Return an amount as a float, which is exact for ten decimal places."""
    return None if amount is None else float(amount)
