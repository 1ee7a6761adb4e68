"""Check that the costs of sessions add up to what the CLI reported for their conversations.

A path is the sessions from the root of a chain to a leaf. A resumed session belongs to the
conversation of its parent; any other starts a new one. The reported cost of a conversation is

- the cost that the last session reported, if the CLI counts the whole conversation;
- the sum of all reported costs, if the CLI counts each session separately.

A session with cost 0 and without a report does not belong to the conversation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from sessions_app.history.chain import Chain
from sessions_app.models import Session
from sessions_app.text import exact_money, money

# Each stored amount is a float of the CLI, rounded to ten places.
COUNTED = (Session.CostBasis.MEASURED, Session.CostBasis.TELEMETRY)
"""Bases of a cost without a result of the CLI."""
ROUNDING = Decimal("1e-10")


class CostCheckResult(StrEnum):
    EQUAL = "equal"
    DIFFERENT = "different"
    PENDING = "pending"
    UNKNOWN = "unknown"
    ESTIMATED = "estimated"
    MEASURED = "measured"
    NOT_REPORTED = "not_reported"


@dataclass(frozen=True, kw_only=True, slots=True)
class CostCheck:
    path: tuple[Session, ...]
    finding: CostCheckResult
    sum_usd: Decimal
    reported_usd: Decimal | None
    missing: tuple[Session, ...] = ()
    """Sessions that prevent the check."""
    conversations: int = 1

    @property
    def is_proven(self) -> bool:
        return self.finding == CostCheckResult.EQUAL

    @property
    def sentence(self) -> str:
        runs = ", ".join(f"#{session.pk}" for session in self.missing)
        total = exact_money(self.sum_usd)
        reported = exact_money(self.reported_usd)
        what = "conversation" if self.conversations == 1 else f"{self.conversations} conversations"
        match self.finding:
            case CostCheckResult.EQUAL:
                return f"Sum of tiers {total} = what the CLI reported for the {what} {reported} ✓"
            case CostCheckResult.DIFFERENT:
                return (
                    f"Sum of tiers {total} ≠ what the CLI reported for the {what} {reported}: "
                    f"{exact_money(abs(self.sum_usd - (self.reported_usd or Decimal(0))))} apart"
                )
            case CostCheckResult.PENDING:
                return f"Sum of tiers {total} so far. It is checked after the end of {runs}."
            case CostCheckResult.ESTIMATED:
                guess = money(_sum(session.estimated_cost_usd for session in self.missing))
                return (
                    f"Sum of tiers {total}, without {runs}: no result was printed, and ≈ {guess} "
                    "is an estimate. The total cannot be checked."
                )
            case CostCheckResult.MEASURED:
                measured = exact_money(_sum(session.cost_usd for session in self.missing))
                return (
                    f"Sum of tiers {total}. {measured} of it, in {runs}, are measured, because no "
                    "result was printed: by the telemetry of the CLI, or tokens at its prices."
                )
            case CostCheckResult.UNKNOWN:
                return (
                    f"Sum of tiers {total}, without {runs}, whose cost is unknown. "
                    "The total cannot be checked."
                )
        return f"Sum of tiers {total}. The record holds no reported figure to check it against."


def check_costs(chain: Chain) -> tuple[CostCheck, ...]:
    """Return one check for each leaf of the chain."""
    return tuple(check_path(chain.path_to(leaf)) for leaf in chain.leaves)


def check_path(path: Sequence[Session]) -> CostCheck:
    conversations = _conversations(path)
    total = _sum(session.cost_usd for session in path)
    reported = _sum(_reported_for(runs) for runs in conversations)
    is_equal = abs(total - reported) <= ROUNDING * len(path)
    finding, missing = _obstacle(path) or (
        CostCheckResult.EQUAL if is_equal else CostCheckResult.DIFFERENT,
        (),
    )
    return CostCheck(
        path=tuple(path),
        finding=finding,
        sum_usd=total,
        reported_usd=None if missing else reported,
        missing=missing,
        conversations=len(conversations),
    )


def _obstacle(path: Sequence[Session]) -> tuple[CostCheckResult, tuple[Session, ...]] | None:
    """Return why a path cannot be checked, or None."""
    without = tuple(session for session in path if session.cost_usd is None)
    if running := tuple(session for session in without if session.is_open):
        return CostCheckResult.PENDING, running
    if without:
        guessed = all(session.estimated_cost_usd is not None for session in without)
        return CostCheckResult.ESTIMATED if guessed else CostCheckResult.UNKNOWN, without
    silent = tuple(s for s in path if s.reported_cost_usd is None and not _did_nothing(s))
    if not silent:
        return None
    measured = all(session.cost_basis in COUNTED for session in silent)
    return CostCheckResult.MEASURED if measured else CostCheckResult.NOT_REPORTED, silent


def _conversations(path: Sequence[Session]) -> list[list[Session]]:
    conversations: list[list[Session]] = []
    for session in path:
        if session.continued_by == Session.ContinuedBy.RESUME and conversations:
            conversations[-1].append(session)
        else:
            conversations.append([session])
    return conversations


def _reported_for(conversation: Sequence[Session]) -> Decimal:
    total = Decimal(0)
    for session in conversation:
        if _did_nothing(session):
            continue
        counted_before = total if session.cost_basis == Session.CostBasis.PER_RUN else Decimal(0)
        total = counted_before + (session.reported_cost_usd or Decimal(0))
    return total


def _did_nothing(session: Session) -> bool:
    return session.cost_usd == 0 and not session.reported_cost_usd


def _sum(amounts: Iterable[Decimal | None]) -> Decimal:
    return sum((amount or Decimal(0) for amount in amounts), Decimal(0))
