"""What follows a run: the supervisor's decision, as a pure function.

The model asks, the supervisor decides. Every answer carries a reason, which is stored with the
session and shown on its page.
"""

from __future__ import annotations

from dataclasses import dataclass

from escalation.next_step.after_cut_off import AskPerson, GoOnAfterCutOff
from escalation.report import HEALTHY, Report
from escalation.tiers import HIGHEST_TIER
from sessions_app.models import Cycle


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """How far a cycle may go."""

    max_tier: int
    dry_run: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEnd:
    """How a run ended, as far as the decision needs to know."""

    tier: int
    went_well: bool
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
    is_follow_up: bool = False
    """A person's question about a finished session; no report is expected."""
    resume_refused: bool = False
    tool_ran: bool = False
    turn_limit: bool = False
    may_go_on: bool = False
    """Continuations and budget are left for another run of this tier."""
    cut_off: GoOnAfterCutOff | AskPerson | None = None
    """What is to follow a run that was ended from outside."""


@dataclass(frozen=True, slots=True)
class Escalate:
    to_tier: int
    reason: str


@dataclass(frozen=True, slots=True)
class AskAgain:
    """The same tier is asked for the missing report, in the same conversation."""

    reason: str


@dataclass(frozen=True, slots=True)
class Stop:
    outcome: str
    reason: str


@dataclass(frozen=True, slots=True)
class GoOn:
    """The same tier continues after its turn limit."""

    reason: str


@dataclass(frozen=True, slots=True)
class AgainByHandoff:
    """The same tier is run again, told by handoff what it could not resume."""

    reason: str


@dataclass(frozen=True, slots=True)
class Recover:
    """The same tier goes on after it was cut off, and checks the state first."""

    reason: str


@dataclass(frozen=True, slots=True)
class Leave:
    """The cycle's outcome stands as it was."""

    reason: str


Decision = Escalate | AskAgain | GoOn | AgainByHandoff | Recover | Leave | Stop


def decide(end: RunEnd, policy: Policy) -> Decision:
    if end.resume_refused:
        return _after_refusal(end)
    if isinstance(end.cut_off, GoOnAfterCutOff):
        return Recover(f"{end.error} It {end.cut_off.reason}.")
    if end.is_follow_up:
        return Leave("The question was answered." if end.went_well else end.error)
    if end.turn_limit and end.may_go_on and end.session_id:
        return GoOn(f"Tier {end.tier} reached its turn limit and goes on in the same conversation.")
    if not end.went_well:
        return _after_failure(end)
    if end.report is None:
        return _without_report(end)
    if end.report["escalation"]["needed"]:
        return _escalation(end, end.report, policy)
    return _closing(end, end.report)


def _after_failure(end: RunEnd) -> Stop:
    if isinstance(end.cut_off, AskPerson):
        return Stop(
            Cycle.Outcome.NEEDS_PERSON,
            f"Tier {end.tier} was cut off and is not gone on with, because {end.cut_off.reason}: "
            f"{end.error}",
        )
    if end.asked_for_by_tier is not None:
        return Stop(
            Cycle.Outcome.NEEDS_PERSON,
            f"Tier {end.tier} failed after Tier {end.asked_for_by_tier} had asked for it: "
            f"{end.error}",
        )
    if end.answered or end.asked_again:
        return Stop(Cycle.Outcome.NEEDS_PERSON, f"Tier {end.tier} did not finish: {end.error}")
    return Stop(Cycle.Outcome.COULD_NOT_RUN, f"Tier {end.tier} could not run: {end.error}")


def _after_refusal(end: RunEnd) -> Decision:
    if end.tool_ran:
        return Stop(
            Cycle.Outcome.NEEDS_PERSON,
            f"The conversation broke off after Tier {end.tier} had run a tool, so it is not run "
            f"again by itself: {end.error}",
        )
    return AgainByHandoff(
        f"The conversation could not be resumed, so Tier {end.tier} is run again by handoff: "
        f"{end.error}"
    )


def _without_report(end: RunEnd) -> Decision:
    if end.asked_again:
        return Stop(
            Cycle.Outcome.NEEDS_PERSON,
            f"Tier {end.tier} gave no usable report, even when asked again: {end.report_problem}.",
        )
    if not end.session_id:
        return Stop(
            Cycle.Outcome.NEEDS_PERSON,
            f"Tier {end.tier} gave no usable report ({end.report_problem}) and cannot be asked "
            "again: the CLI reported no session id.",
        )
    return AskAgain(f"Asked again in the same conversation: {end.report_problem}.")


def _escalation(end: RunEnd, report: Report, policy: Policy) -> Decision:
    asked = f"Tier {end.tier} asked for escalation: {wanted_because(report)}"
    if policy.dry_run:
        return Stop(Cycle.Outcome.NEEDS_PERSON, f"{asked} Not escalated: this is a dry run.")
    if end.tier >= HIGHEST_TIER:
        return Stop(
            Cycle.Outcome.NEEDS_PERSON, f"{asked} Not escalated: there is no tier above {end.tier}."
        )
    if end.tier >= policy.max_tier:
        return Stop(
            Cycle.Outcome.NEEDS_PERSON,
            f"{asked} Not escalated: the policy allows no tier above {policy.max_tier}.",
        )
    return Escalate(end.tier + 1, asked)


def _closing(end: RunEnd, report: Report) -> Stop:
    if not report["services"]:
        return Stop(Cycle.Outcome.NEEDS_PERSON, f"Tier {end.tier} reported on no service at all.")
    unwell = [service for service in report["services"] if service["status"] != HEALTHY]
    if unwell:
        named = ", ".join(f"{service['name']} is {service['status']}" for service in unwell)
        return Stop(
            Cycle.Outcome.NEEDS_PERSON,
            f"Tier {end.tier} asked for no escalation, but {named}.",
        )
    done = [action for action in report["actions_taken"] if action["result"] == "succeeded"]
    if done:
        named = "; ".join(action["action"] for action in done)
        return Stop(Cycle.Outcome.FIXED, f"Tier {end.tier} fixed it: {named}.")
    return Stop(Cycle.Outcome.HEALTHY, f"Tier {end.tier} found everything healthy.")


def wanted_because(report: Report) -> str:
    """The tier's own reason, as a sentence."""
    request = report["escalation"]
    reason = request["reason"].strip() or "no reason given"
    services = f" ({', '.join(request['services'])})" if request["services"] else ""
    return f"{reason.rstrip('.')}{services}."
