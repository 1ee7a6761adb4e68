"""The chain above a session: loaded once, then asked as often as needed."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from itertools import takewhile

from sessions_app.models import Session
from sessions_app.reading.chain import chain_of

Purpose, Status = Session.Purpose, Session.Status


@dataclass(frozen=True, slots=True)
class Lineage:
    """Pure: all questions are answered from the rows that were loaded."""

    path: tuple[Session, ...]
    """From the first run of the chain to the session itself."""
    relatives: tuple[Session, ...] = ()
    """All runs of the chain, its branches included."""

    @property
    def session(self) -> Session:
        return self.path[-1]

    @property
    def parent(self) -> Session | None:
        return self.path[-2] if len(self.path) > 1 else None

    @property
    def runs_of_this_tier(self) -> tuple[Session, ...]:
        """The session and the runs that it continues within its tier, newest first."""
        newest_first = reversed(self.path)
        return tuple(takewhile(lambda run: run.tier == self.session.tier, newest_first))

    @property
    def tier_that_asked(self) -> int | None:
        """The tier whose request for escalation led here, past other runs of this tier."""
        above = self.path[: len(self.path) - len(self.runs_of_this_tier)]
        return above[-1].tier if above else None

    @property
    def interruptions(self) -> int:
        """How often this tier has been cut off in a row, the session included."""
        _own, *before = self.runs_of_this_tier
        in_a_row = takewhile(lambda run: run.status == Status.INTERRUPTED, before)
        return 1 + sum(not run.met_account_limit for run in in_a_row)

    @property
    def limits_met(self) -> int:
        """How often this tier has met the account's limit in a row, the session included."""
        of_tier = [run for run in self.relatives if run.tier == self.session.tier]
        before = [run for run in of_tier if run.pk < self.session.pk and run.started_at]
        newest_first = sorted(before, key=lambda run: -run.pk)
        return 1 + len(list(takewhile(lambda run: run.met_account_limit, newest_first)))

    @property
    def continuations(self) -> int:
        """How often this tier has continued after its turn limit."""
        return sum(run.purpose == Purpose.CONTINUATION for run in self.runs_of_this_tier)

    @property
    def attempts(self) -> tuple[Session, ...]:
        """Runs at this same point that were started before, for the same: what is tried again."""

        def point(run: Session) -> tuple[int | None, int, str, bool]:
            return run.parent_session_id, run.tier, run.request, run.is_question

        mine = point(self.session)
        earlier = (run for run in self.relatives if run.pk < self.session.pk and run.started_at)
        return tuple(sorted((run for run in earlier if point(run) == mine), key=lambda run: run.pk))

    @property
    def started_again(self) -> bool:
        """The same run was cut off before already, and this is its second start."""
        return any(
            run.status == Status.INTERRUPTED
            and not run.met_account_limit
            and run.purpose == self.session.purpose
            for run in self.attempts
        )

    @property
    def spent_before_usd(self) -> Decimal:
        """What the runs that the session continues within its tier have cost."""
        _own, *before = self.runs_of_this_tier
        spent = (run.cost_usd or run.estimated_cost_usd or Decimal(0) for run in before)
        return sum(spent, Decimal(0))


def lineage_of(session: Session) -> Lineage:
    """One query. The parents along the path are at hand afterwards without another."""
    chain = chain_of(session)
    path = chain.path_to(session)
    for parent, child in zip(path, path[1:], strict=False):
        child.parent_session = parent
    return Lineage(path=path, relatives=chain.sessions)
