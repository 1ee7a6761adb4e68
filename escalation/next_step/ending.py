"""How a run ended, as one value: what is stored about it, and all that the decision needs.

Whatever ended a run (its own last word, a limit, a person, a crash of ours, a death that recovery
found) becomes one of these, and `conclude` is the one way on from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from escalation.agent import AccountLimit, Window
from escalation.next_step.after_cut_off import AfterCutOff
from escalation.report import Report
from sessions_app.models import Session


@dataclass(frozen=True, slots=True)
class Note:
    """A word of ours for the session's stream."""

    kind: str
    text: str
    level: str = "info"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    tier: int
    status: str
    """The session's status, before the decision makes it `escalated`."""
    error: str = ""
    report: Report | None = None
    report_problem: str = ""
    session_id: str = ""
    """The conversation's confirmed id; without it nobody can continue."""
    answered: bool = False
    """The model said something, so money was spent and tools may have run."""
    asked_again: bool = False
    """This run was itself the second request for a report."""
    asked_for_by_tier: int | None = None
    """The tier that asked for this one, when this run was an escalation."""
    is_question: bool = False
    """A person's question about a finished session; no report is expected."""
    is_plan: bool = False
    """A dry fork that was asked for its plan."""
    resume_refused: bool = False
    turn_limit: bool = False
    may_continue: bool = False
    """Continuations and budget are left for another run of this tier."""
    stopped_by: str = ""
    """The person who asked it to stop, and it was cut off by that."""
    after_cut_off: AfterCutOff | None = None
    """What is to follow a run that was ended from outside."""
    account_limit: AccountLimit | None = None
    """The account's own limit, where it ended the run."""
    windows: tuple[Window, ...] = ()
    """How much of the account's windows is used, where the API said so."""
    record_too_thin: bool = False
    """It never began: there is nothing to tell it, and the tier before must write that first."""
    why_not: str = ""
    """Why nothing was started, by name, where nothing was."""
    conversation_broken: str = ""
    """Why nobody may continue this conversation, where nobody may."""

    stored: Mapping[str, Any] = field(default_factory=dict)
    """Every fact about the run, as the session's fields."""
    notes: tuple[Note, ...] = ()

    @property
    def wants_escalation(self) -> bool:
        return self.report is not None and self.report["escalation"]["needed"]

    @property
    def claims_something(self) -> bool:
        """It says that something was done: the record is asked whether that is so."""
        return self.report is not None and bool(self.report["actions_taken"])

    @property
    def went_well(self) -> bool:
        return self.status == Session.Status.COMPLETED
