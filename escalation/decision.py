"""What follows a run: the supervisor's decision, as a pure function.

The model asks, the supervisor decides. Every answer carries a reason, which is stored with the
session and shown on its page.
"""

from __future__ import annotations

from dataclasses import dataclass

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


Decision = Escalate | AskAgain | Stop


def decide(end: RunEnd, policy: Policy) -> Decision:
    if not end.went_well:
        return _after_failure(end)
    if end.report is None:
        return _without_report(end)
    if end.report["escalation"]["needed"]:
        return _escalation(end, end.report, policy)
    return _closing(end, end.report)


def _after_failure(end: RunEnd) -> Stop:
    if end.asked_for_by_tier is not None:
        return Stop(
            Cycle.Outcome.NEEDS_PERSON,
            f"Tier {end.tier} failed after Tier {end.asked_for_by_tier} had asked for it: "
            f"{end.error}",
        )
    if end.answered or end.asked_again:
        return Stop(Cycle.Outcome.NEEDS_PERSON, f"Tier {end.tier} did not finish: {end.error}")
    return Stop(Cycle.Outcome.COULD_NOT_RUN, f"Tier {end.tier} could not run: {end.error}")


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
    if not end.session_id:
        return Stop(
            Cycle.Outcome.NEEDS_PERSON,
            f"{asked} Not escalated: the CLI reported no session id, so the conversation cannot "
            "be continued.",
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
