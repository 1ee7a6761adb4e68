"""The chain of a session: where it came from, what came of it, and what each tier cost.

The sessions of a cycle are its chain, so one query finds them all; parent links give the order.
Costs stay with the run that caused them and are only ever added up for display.

The runs that the supervisor adds follow each other in one line. What a person adds (a question,
another approach, another try) leaves that line: it is a branch, and the chain is a tree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from sessions_app.models import Cycle, Session

BRANCHING = (
    *(Session.Purpose.FOLLOW_UP, Session.Purpose.FORK, Session.Purpose.RETRY),
    Session.Purpose.PLAN,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TierCost:
    tier: int
    cost_usd: Decimal
    runs: int
    share: Decimal
    """Part of the chain's total, from 0 to 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Branch:
    """Runs that follow each other in one line."""

    sessions: tuple[Session, ...]
    depth: int
    """0 is the line that the chain began with, 1 what leaves it, and so on."""
    came_from: Session | None

    @property
    def label(self) -> str:
        """What the branch is for: the purpose of its first run."""
        return str(self.sessions[0].get_purpose_display())


@dataclass(frozen=True, kw_only=True, slots=True)
class Chain:
    sessions: tuple[Session, ...]
    """Parents before their children."""

    @property
    def total_cost_usd(self) -> Decimal:
        return sum((session.cost_usd or Decimal(0) for session in self.sessions), Decimal(0))

    @property
    def estimated_cost_usd(self) -> Decimal:
        """What runs without a figure have cost at least, as far as the stream proves it."""
        guesses = (s.estimated_cost_usd for s in self.sessions if s.cost_usd is None)
        return sum((guess or Decimal(0) for guess in guesses), Decimal(0))

    @property
    def cost_is_complete(self) -> bool:
        """False while a run has not reported, or when it never did."""
        return all(session.cost_usd is not None for session in self.sessions)

    @property
    def duration_ms(self) -> int:
        return sum(session.duration_ms or 0 for session in self.sessions)

    @property
    def total_tokens(self) -> int:
        return sum(session.total_tokens for session in self.sessions)

    @property
    def costs_by_tier(self) -> tuple[TierCost, ...]:
        costs: dict[int, Decimal] = defaultdict(Decimal)
        runs: dict[int, int] = defaultdict(int)
        for session in self.sessions:
            costs[session.tier] += session.cost_usd or Decimal(0)
            runs[session.tier] += 1
        total = self.total_cost_usd
        return tuple(
            TierCost(
                tier=tier,
                cost_usd=costs[tier],
                runs=runs[tier],
                share=costs[tier] / total if total else Decimal(0),
            )
            for tier in sorted(costs)
        )

    @property
    def branches(self) -> tuple[Branch, ...]:
        """The tree, line by line; a branch stands below the line that it left."""
        children = _children_by_parent(self.sessions)
        branches = []
        waiting: list[tuple[Session | None, Session, int]] = [
            (None, root, int(root.purpose in BRANCHING)) for root in _roots(self.sessions)
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
        """From the root to a session, both included."""
        by_id = {member.pk: member for member in self.sessions}
        path = [session]
        while (parent := by_id.get(path[0].parent_session_id or 0)) and parent not in path:
            path.insert(0, parent)
        return tuple(path)


def chain_of(session: Session) -> Chain:
    """The whole chain that a session is part of, in two directions and one query."""
    relatives = list(
        Session.objects.filter(cycle=session.cycle_id).select_related("cycle__watch").order_by("id")
    )
    return Chain(sessions=tuple(_parents_first(relatives)))


def chain_of_cycle(cycle: Cycle) -> Chain:
    """All runs of a cycle, with those who asked for them: one query."""
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
    """Where a chain began; a first run that was tried again has no parent either."""
    sessions = list(sessions)
    known = {session.pk for session in sessions}
    return [session for session in sessions if session.parent_session_id not in known]


def _line_from(first: Session, children: dict[int | None, list[Session]]) -> list[Session]:
    """Of two that could continue a line, the later one does: the earlier one led nowhere."""
    line = [first]
    while heirs := [child for child in children[line[-1].pk] if _goes_on(line[-1], child)]:
        line.append(heirs[-1])
    return line


def _goes_on(parent: Session, child: Session) -> bool:
    """Whether a child stays in its parent's line. A question after a question does."""
    is_next_question = child.purpose == parent.purpose == Session.Purpose.FOLLOW_UP
    return child.purpose not in BRANCHING or is_next_question
