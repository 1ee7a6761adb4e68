"""The check line: what the runs cost, added up, is what the CLI reported for the conversation.

Both figures are stored as they came, so the page can prove the one by the other. A path is all
runs from the root of a chain to one of its leaves. A run that resumed is part of the conversation
before it; any other begins a conversation of its own. What the CLI reported for a conversation is

- the last run's figure, where the CLI counts the whole conversation;
- the sum of all figures, where it reports each run by itself.

A run that did nothing (it cost 0, and 0 or nothing was reported) never entered the conversation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from sessions_app.models import Session
from sessions_app.reading.chain import Chain
from sessions_app.reading.formatting import exact_money, money

# Each stored figure is a float of the CLI, rounded to ten places.
ROUNDING = Decimal("1e-10")


class Finding(StrEnum):
    EQUAL = "equal"
    DIFFERENT = "different"
    PENDING = "pending"
    UNKNOWN = "unknown"
    ESTIMATED = "estimated"
    NOT_REPORTED = "not_reported"


@dataclass(frozen=True, kw_only=True, slots=True)
class CostCheck:
    path: tuple[Session, ...]
    finding: Finding
    sum_usd: Decimal
    reported_usd: Decimal | None
    missing: tuple[Session, ...] = ()
    """The runs because of which nothing can be said."""
    conversations: int = 1

    @property
    def is_proven(self) -> bool:
        return self.finding == Finding.EQUAL

    @property
    def sentence(self) -> str:
        runs = ", ".join(f"#{session.pk}" for session in self.missing)
        total = exact_money(self.sum_usd)
        reported = exact_money(self.reported_usd)
        what = "conversation" if self.conversations == 1 else f"{self.conversations} conversations"
        match self.finding:
            case Finding.EQUAL:
                return f"Sum of tiers {total} = what the CLI reported for the {what} {reported} ✓"
            case Finding.DIFFERENT:
                return (
                    f"Sum of tiers {total} ≠ what the CLI reported for the {what} {reported}: "
                    f"{exact_money(abs(self.sum_usd - (self.reported_usd or Decimal(0))))} apart"
                )
            case Finding.PENDING:
                return f"Sum of tiers {total} so far. It is checked after the end of {runs}."
            case Finding.ESTIMATED:
                guess = money(_sum(session.estimated_cost_usd for session in self.missing))
                return (
                    f"Sum of tiers {total}, without {runs}: no result was printed, and ≈ {guess} "
                    "is an estimate. The total cannot be checked."
                )
            case Finding.UNKNOWN:
                return (
                    f"Sum of tiers {total}, without {runs}, whose cost is unknown. "
                    "The total cannot be checked."
                )
        return f"Sum of tiers {total}. The record holds no reported figure to check it against."


def check_costs(chain: Chain) -> tuple[CostCheck, ...]:
    """One line for each branch, since each ends in a conversation of its own."""
    return tuple(check_path(chain.path_to(leaf)) for leaf in chain.leaves)


def check_path(path: Sequence[Session]) -> CostCheck:
    conversations = _conversations(path)
    total = _sum(session.cost_usd for session in path)
    reported = _sum(_reported_for(runs) for runs in conversations)
    is_equal = abs(total - reported) <= ROUNDING * len(path)
    finding, missing = _obstacle(path) or (Finding.EQUAL if is_equal else Finding.DIFFERENT, ())
    return CostCheck(
        path=tuple(path),
        finding=finding,
        sum_usd=total,
        reported_usd=None if missing else reported,
        missing=missing,
        conversations=len(conversations),
    )


def _obstacle(path: Sequence[Session]) -> tuple[Finding, tuple[Session, ...]] | None:
    """What keeps a path from being checked, if anything does."""
    without = tuple(session for session in path if session.cost_usd is None)
    if running := tuple(session for session in without if session.is_open):
        return Finding.PENDING, running
    if without:
        guessed = all(session.estimated_cost_usd is not None for session in without)
        return Finding.ESTIMATED if guessed else Finding.UNKNOWN, without
    silent = tuple(s for s in path if s.reported_cost_usd is None and not _did_nothing(s))
    return (Finding.NOT_REPORTED, silent) if silent else None


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
