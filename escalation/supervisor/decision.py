"""What follows a run: the supervisor's decision, as a pure function.

The model asks, the supervisor decides. Every answer carries a reason, which is stored with the
session and shown on its page.

A run has "fixed" something when all services are healthy, it says what it did, and the record does
not say otherwise: a claim of "succeeded" whose command failed or was denied makes it a matter for a
person. What is only claimed does not: remedies inside containers, on other hosts and in scripts
leave no trace that could be matched. It is shown as such, and the round that verifies a fix looks
at the services, not at the report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from escalation.next_step.after_cut_off import AskPerson, ContinueAfterCutOff, StartAgain
from escalation.next_step.ending import Ending
from escalation.policy.holding import Held
from escalation.report import HEALTHY, Report
from sessions_app.models import Cycle
from sessions_app.models.policy import Policy, objection_to
from sessions_app.reading.claims import Claim, Finding


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
    held: Held | None = None
    """What stopped it, where people are told of that beside the cycle's outcome."""
    stopped_by: str = ""
    """The person who wanted that, where one did."""


@dataclass(frozen=True, slots=True)
class Continue:
    """The same tier continues after its turn limit."""

    reason: str


@dataclass(frozen=True, slots=True)
class AgainByHandoff:
    """The same tier is run again, told by handoff what it could not resume."""

    reason: str


@dataclass(frozen=True, slots=True)
class Recover:
    """The same tier continues after it was cut off, and checks the state first."""

    reason: str


@dataclass(frozen=True, slots=True)
class RunAgain:
    """The same run once more, from the same point: its first start came to nothing."""

    reason: str


@dataclass(frozen=True, slots=True)
class AskForFindings:
    """The tier before is invoked again, told to write down what it found."""

    reason: str


@dataclass(frozen=True, slots=True)
class Leave:
    """The cycle's outcome stands as it was."""

    reason: str


@dataclass(frozen=True, slots=True)
class Planned:
    """A dry fork has ended; the tier that it was for still waits for a person."""

    reason: str


Decision = (
    Escalate
    | AskAgain
    | Continue
    | AgainByHandoff
    | Recover
    | RunAgain
    | AskForFindings
    | Leave
    | Planned
    | Stop
)


def decide(
    end: Ending, policy: Policy, held: Held | None = None, claims: Sequence[Claim] = ()
) -> Decision:
    """The claims are those of the report, held against the record."""
    if end.is_plan:
        return Planned("The plan is shown with the approval." if end.went_well else end.error)
    if end.stopped_by and not end.is_question:
        reason = f"Tier {end.tier} was stopped by {end.stopped_by}."
        return Stop(Cycle.Outcome.NEEDS_PERSON, reason, stopped_by=end.stopped_by)
    return _after_work(end, policy, held, claims)


def _after_work(
    end: Ending, policy: Policy, held: Held | None, claims: Sequence[Claim]
) -> Decision:
    if end.record_too_thin:
        return AskForFindings(end.error)
    if end.resume_refused:
        return _after_refusal(end)
    match end.after_cut_off:
        case ContinueAfterCutOff(reason=reason):
            return Recover(f"{end.error} It {reason}.")
        case StartAgain(reason=reason):
            return RunAgain(f"{end.error} It {reason}.")
    if end.is_question:
        return Leave("The question was answered." if end.went_well else end.error)
    if end.turn_limit and end.may_continue and end.session_id:
        return Continue(
            f"Tier {end.tier} reached its turn limit and continues in the same conversation."
        )
    if not end.went_well:
        return _after_failure(end)
    if end.report is None:
        return _without_report(end)
    if end.report["escalation"]["needed"]:
        return _escalation(end, end.report, policy, held)
    return _closing(end, end.report, claims)


def _after_failure(end: Ending) -> Stop:
    if isinstance(end.after_cut_off, AskPerson):
        return Stop(
            Cycle.Outcome.NEEDS_PERSON,
            f"Tier {end.tier} was cut off and does not continue by itself, because "
            f"{end.after_cut_off.reason}: {end.error}",
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


def _after_refusal(end: Ending) -> Decision:
    """Nothing was said or done in a refused run, so running it once more repeats nothing."""
    return AgainByHandoff(
        f"The conversation could not be resumed, so Tier {end.tier} is run again by handoff: "
        f"{end.error}"
    )


def _without_report(end: Ending) -> Decision:
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


def _escalation(end: Ending, report: Report, policy: Policy, held: Held | None) -> Decision:
    asked = f"Tier {end.tier} asked for escalation: {wanted_because(report)}"
    if why := objection_to(end.tier + 1, policy):
        return Stop(Cycle.Outcome.NEEDS_PERSON, f"{asked} Not escalated: {why}.")
    if held is not None:
        return Stop(Cycle.Outcome.NEEDS_PERSON, f"{asked} Not escalated: {held.reason}.", held)
    if policy.needs_approval(end.tier + 1):
        return Escalate(end.tier + 1, f"{asked} Tier {end.tier + 1} waits for a person's approval.")
    return Escalate(end.tier + 1, asked)


def _closing(end: Ending, report: Report, claims: Sequence[Claim]) -> Stop:
    if not report["services"]:
        return Stop(Cycle.Outcome.NEEDS_PERSON, f"Tier {end.tier} reported on no service at all.")
    unwell = [service for service in report["services"] if service["status"] != HEALTHY]
    if unwell:
        named = ", ".join(f"{service['name']} is {service['status']}" for service in unwell)
        return Stop(
            Cycle.Outcome.NEEDS_PERSON,
            f"Tier {end.tier} asked for no escalation, but {named}.",
        )
    for claim in claims:
        if claim.finding is Finding.OTHERWISE:
            return Stop(Cycle.Outcome.NEEDS_PERSON, _contradiction(end, claim))
    done = [action for action in report["actions_taken"] if action["result"] == "succeeded"]
    if done:
        named = "; ".join(action["action"] for action in done)
        return Stop(Cycle.Outcome.FIXED, f"Tier {end.tier} fixed it: {named}.")
    return Stop(Cycle.Outcome.HEALTHY, f"Tier {end.tier} found everything healthy.")


def _contradiction(end: Ending, claim: Claim) -> str:
    seen = f": {claim.evidence.action} ({claim.evidence.told})" if claim.evidence else ""
    return (
        f"Tier {end.tier} reports that “{claim.action}” succeeded, and the record says "
        f"otherwise{seen}."
    )


def wanted_because(report: Report) -> str:
    """The tier's own reason, as a sentence."""
    request = report["escalation"]
    reason = request["reason"].strip() or "no reason given"
    services = f" ({', '.join(request['services'])})" if request["services"] else ""
    return f"{reason.rstrip('.')}{services}."
