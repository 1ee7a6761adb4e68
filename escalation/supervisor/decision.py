"""Decides what follows a session, as a pure function.

The agent asks, the supervisor decides. Every decision has a reason, which is stored with the
session and shown on its page.

A session has fixed something if all services are healthy and the record shows an action that it
reports. An action that is reported as succeeded and whose command failed, was denied or was not
approved needs a person. An action that is only claimed fixes nothing: the services are healthy, and
the reason says that the record does not show it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from escalation.agent.rate_limit import RateLimitReached, Window
from escalation.report import HEALTHY, Report
from escalation.supervisor.budgets import HeldEscalation
from sessions_app.history.claims import Claim, ClaimCheck, proven
from sessions_app.models import Cycle, Session
from sessions_app.models.autonomy import Policy, objection_to
from sessions_app.models.session import EventKind
from sessions_app.tiers import LOWEST_TIER


@dataclass(frozen=True, kw_only=True, slots=True)
class Interruption:
    """Facts about a session that was ended from outside."""

    tier: int
    tool_was_running: bool
    """A tool call had started and had no result."""
    can_be_continued: bool
    """The CLI had confirmed the id of the conversation."""
    answered: bool
    """The model had answered."""
    interruptions: int
    """Interruptions of this tier in a row, with this one."""
    started_again: bool = False
    """It was the second start after one that came to nothing."""
    is_question: bool = False


@dataclass(frozen=True, slots=True)
class ContinueAfterInterruption:
    reason: str


@dataclass(frozen=True, slots=True)
class StartAgain:
    reason: str


@dataclass(frozen=True, slots=True)
class AskPerson:
    reason: str


AfterInterruption = ContinueAfterInterruption | StartAgain | AskPerson


def after_interruption(cut: Interruption, *, limit: int) -> AfterInterruption:
    """Decides what follows an interruption.

    A session that only observed continues its conversation. After a remediation that may be half
    done, a person looks first. A session that had not begun to work is started again, once.
    """
    if cut.is_question:
        return AskPerson("the question was interrupted; ask it again")
    if cut.tier > LOWEST_TIER and cut.tool_was_running:
        return AskPerson(
            f"a tool was running at Tier {cut.tier}: a remediation may be half done, so a person "
            "must look first"
        )
    if cut.interruptions > limit:
        return AskPerson(f"Tier {cut.tier} was interrupted {cut.interruptions} times")
    if cut.can_be_continued:
        return ContinueAfterInterruption("resumes the same conversation and checks the state first")
    if cut.answered:
        return AskPerson("it had begun to work, and the CLI named no conversation to resume")
    if cut.started_again:
        return AskPerson("it was interrupted twice before its conversation began")
    return StartAgain("is started again: nothing was said or done yet")


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitMet:
    """Facts about a session that the rate limit ended."""

    tier: int
    until: str
    """The end of the rate limit, as text."""
    can_be_continued: bool
    answered: bool
    times: int
    """Rate limits of this tier in a row, with this one."""
    is_question: bool = False


def after_limit(met: LimitMet, *, most: int) -> AfterInterruption:
    """Decides what follows a rate limit. No tool was running: the CLI ended by itself."""
    if met.times > most:
        return AskPerson(f"Tier {met.tier} met the rate limit {met.times} times in a row")
    if met.can_be_continued and met.answered and not met.is_question:
        return ContinueAfterInterruption(
            f"waits for the rate limit until {met.until} and then continues its conversation"
        )
    return StartAgain(f"waits for the rate limit until {met.until} and is then started again")


@dataclass(frozen=True, slots=True)
class Note:
    """Event that is added to the stream of the session."""

    kind: EventKind
    text: str
    level: str = "info"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """End of a session, whatever ended it: what is stored, and what the decision needs."""

    tier: int
    status: str
    """The status, before the decision may change it to `escalated`."""
    error: str = ""
    report: Report | None = None
    report_problem: str = ""
    session_id: str = ""
    """The confirmed id of the conversation; without it no session can continue."""
    answered: bool = False
    """The model answered, so that tools may have run."""
    asked_again: bool = False
    """This session was the second request for a report."""
    asked_for_by_tier: int | None = None
    """The tier that asked for this escalation."""
    is_question: bool = False
    """A question of a person; no report is expected."""
    is_plan: bool = False
    """A plan session."""
    attached_by: str = ""
    """The person who held the conversation in a terminal."""
    resume_refused: bool = False
    turn_limit: bool = False
    may_continue: bool = False
    """Continuations and budget are left for this tier."""
    stopped_by: str = ""
    """The person whose request stopped it."""
    after_interruption: AfterInterruption | None = None
    """What follows an interruption."""
    rate_limit: RateLimitReached | None = None
    """The rate limit that ended the session."""
    windows: tuple[Window, ...] = ()
    """The used share of each rate limit window, as the API reported it."""
    record_too_thin: bool = False
    """It did not start: the tier before must run again first."""
    why_not: str = ""
    """The cause for which it was not started."""
    conversation_broken: str = ""
    """The reason for which the conversation must not be continued."""

    stored: Mapping[str, Any] = field(default_factory=dict)
    """Values of the fields of the session."""
    notes: tuple[Note, ...] = ()

    @property
    def wants_escalation(self) -> bool:
        return self.report is not None and self.report["escalation"]["needed"]

    @property
    def claims_something(self) -> bool:
        """Returns True if the report names actions, which are checked against the record."""
        return self.report is not None and bool(self.report["actions_taken"])

    @property
    def went_well(self) -> bool:
        return self.status == Session.Status.COMPLETED


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
    held: HeldEscalation | None = None
    """The budget or cooldown that held the next tier back."""
    stopped_by: str = ""
    """The person who stopped it."""


@dataclass(frozen=True, slots=True)
class Continue:
    """The same tier continues after its turn limit."""

    reason: str


@dataclass(frozen=True, slots=True)
class AgainByHandoff:
    """The same tier runs again with a handoff instead of the conversation."""

    reason: str


@dataclass(frozen=True, slots=True)
class Recover:
    """The same tier continues after an interruption, and checks the state first."""

    reason: str


@dataclass(frozen=True, slots=True)
class RunAgain:
    """The same session starts again: its first start came to nothing."""

    reason: str


@dataclass(frozen=True, slots=True)
class RepeatTierBefore:
    """The tier before runs again, because its record is too thin to hand on."""

    reason: str


@dataclass(frozen=True, slots=True)
class Leave:
    """The outcome of the cycle stays as it was."""

    reason: str


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan session has ended; its tier still waits for approval."""

    reason: str


Decision = (
    Escalate
    | AskAgain
    | Continue
    | AgainByHandoff
    | Recover
    | RunAgain
    | RepeatTierBefore
    | Leave
    | Planned
    | Stop
)


def decide(
    end: Ending, policy: Policy, held: HeldEscalation | None = None, claims: Sequence[Claim] = ()
) -> Decision:
    """Decides what follows. `claims`: those of the report, checked against the record."""
    if end.is_plan:
        return Planned("The plan is shown with the approval." if end.went_well else end.error)
    if end.attached_by:
        return Leave(f"Attached by {end.attached_by}. {end.error}".strip())
    if end.stopped_by and not end.is_question:
        reason = f"Tier {end.tier} was stopped by {end.stopped_by}."
        return Stop(Cycle.Outcome.NEEDS_PERSON, reason, stopped_by=end.stopped_by)
    return _after_work(end, policy, held, claims)


def _after_work(
    end: Ending, policy: Policy, held: HeldEscalation | None, claims: Sequence[Claim]
) -> Decision:
    if end.record_too_thin:
        return RepeatTierBefore(end.error)
    if end.resume_refused:
        return _after_refusal(end)
    match end.after_interruption:
        case ContinueAfterInterruption(reason=reason):
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
    if isinstance(end.after_interruption, AskPerson):
        return Stop(
            Cycle.Outcome.NEEDS_PERSON,
            f"Tier {end.tier} was interrupted and does not continue by itself, because "
            f"{end.after_interruption.reason}: {end.error}",
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
    """Runs the tier again: a session with a refused resume has done nothing."""
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


def _escalation(
    end: Ending, report: Report, policy: Policy, held: HeldEscalation | None
) -> Decision:
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
        if claim.finding is ClaimCheck.OTHERWISE:
            return Stop(Cycle.Outcome.NEEDS_PERSON, _contradiction(end, claim))
    done = [action for action in report["actions_taken"] if action["result"] == "succeeded"]
    named = "; ".join(action["action"] for action in done)
    if proven(claims):
        return Stop(Cycle.Outcome.FIXED, f"Tier {end.tier} fixed it: {named}.")
    unproven = f" Only claimed, and not in the record: {named}." if done else ""
    return Stop(Cycle.Outcome.HEALTHY, f"Tier {end.tier} found everything healthy.{unproven}")


def _contradiction(end: Ending, claim: Claim) -> str:
    seen = f": {claim.evidence.action} ({claim.evidence.told})" if claim.evidence else ""
    return (
        f"Tier {end.tier} reports that “{claim.action}” succeeded, and the record says "
        f"otherwise{seen}."
    )


def wanted_because(report: Report) -> str:
    """Returns the reason of the tier as a sentence."""
    request = report["escalation"]
    reason = request["reason"].strip() or "no reason given"
    services = f" ({', '.join(request['services'])})" if request["services"] else ""
    return f"{reason.rstrip('.')}{services}."
