"""Creates the sessions that follow another, plan sessions, and requests for approval."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.utils import timezone

from escalation.errors import OperationRefused, RefusalCode
from escalation.incidents import recorder
from escalation.queue import enqueue_session
from escalation.supervisor.approvals import (
    LONGEST_PLAN,
    approved_by_starting,
    ask_for_tier,
    plan_in,
    tell_people,
)
from escalation.tiers import Tier, get_tier
from sessions_app.access.roles import Right, may
from sessions_app.history.chain import chain_of
from sessions_app.models import Approval, Session
from sessions_app.models.session import IllegalTransition
from sessions_app.text import exact_money
from sessions_app.tiers import LOWEST_TIER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.contrib.auth.models import User


@dataclass(frozen=True, kw_only=True, slots=True)
class RunChoice:
    """Model, turns and budget that a person chooses for a session, within the limits of the tier.

    It also holds for sessions that continue the work in the same tier.
    """

    model: str = ""
    max_turns: int | None = None
    max_budget_usd: Decimal | None = None

    def fields(self, number: int) -> dict[str, Any]:
        """Returns the fields of a session of that tier. Raises OperationRefused."""
        tier = get_tier(number)
        objections = (
            _objection_to_model(self.model, tier),
            _objection_to_turns(self.max_turns, tier),
            _objection_to_budget(self.max_budget_usd, tier),
        )
        if why := " ".join(filter(None, objections)):
            raise OperationRefused(RefusalCode.INVALID_CHOICE, why)
        return {
            "model": self.model or tier.model,
            "max_turns": self.max_turns,
            "max_budget_usd": self.max_budget_usd,
        }


AS_USUAL = RunChoice()


def carried_over(session: Session) -> dict[str, Any]:
    """Returns the choice for a session that continues this one in the same tier."""
    return {
        "model": session.model,
        "max_turns": session.max_turns,
        "max_budget_usd": session.max_budget_usd,
    }


def _objection_to_model(model: str, tier: Tier) -> str:
    """Allows the models of this tier and of lower tiers, by name."""
    allowed = models_of(tier.number)
    if not model or model in allowed:
        return ""
    return (
        f"Tier {tier.number} cannot run with the model {model}: a session uses the model of "
        f"its tier or of a lower one, here {' or '.join(allowed)}."
    )


def models_of(number: int) -> tuple[str, ...]:
    """Returns the models that the tier may use, its own first."""
    numbers = range(number, LOWEST_TIER - 1, -1)
    return tuple(dict.fromkeys(get_tier(lower).model for lower in numbers))


def _objection_to_turns(turns: int | None, tier: Tier) -> str:
    if turns is None or 1 <= turns <= tier.max_turns:
        return ""
    return f"Tier {tier.number} runs for 1 to {tier.max_turns} turns, not for {turns}."


def _objection_to_budget(budget: Decimal | None, tier: Tier) -> str:
    if budget is None or 0 < budget <= tier.max_budget_usd:
        return ""
    return (
        f"Tier {tier.number} may spend more than $0.00 and at most "
        f"{exact_money(tier.max_budget_usd)}, not {exact_money(budget)}."
    )


def successor(session: Session, tier: int, purpose: str, **fields: Any) -> Session:
    """Creates the session that continues another. How it resumes is decided at its start."""
    return Session.objects.create(
        **{
            "cycle": session.cycle,
            "parent_session": session,
            "in_branch": session.in_branch,
            "tier": tier,
            "purpose": purpose,
            "workdir": session.workdir,
            "continued_by": Session.ContinuedBy.RESUME,
            "continued_why": session.escalation_reason,
            **(carried_over(session) if tier == session.tier else AS_USUAL.fields(tier)),
            "allowed_once": session.allowed_once and Session.Purpose(purpose).traits.continues_tier,
            **fields,
        }
    )


def sibling(session: Session, **fields: Any) -> Session:
    """Creates a session that repeats another, from the same point."""
    return Session.objects.create(
        **{
            "cycle": session.cycle,
            "parent_session": session.parent_session,
            "in_branch": session.in_branch,
            "tier": session.tier,
            "purpose": session.purpose,
            "request": session.request,
            "requested_by": session.requested_by,
            "force_fresh": session.force_fresh,
            "allowed_once": session.allowed_once and "purpose" not in fields,
            **carried_over(session),
            "workdir": session.workdir,
            **fields,
        }
    )


WANTED = "Say what Tier {tier} ({name}) would do here, and why."
ANSWERED = "the approval was answered without its plan"


def can_be_planned(session: Session) -> bool:
    """Returns True if there is a conversation to fork."""
    return session.parent_session_id is not None


def ask_for_plan(approval: Approval, *, by: User | None = None) -> Session:
    """Starts a plan session, which changes nothing, in the caller's transaction.

    It forks the conversation that the waiting tier would continue. Raises OperationRefused.
    """
    waiting = approval.session
    if approval.kind != Approval.Kind.TIER or not can_be_planned(waiting):
        raise OperationRefused(
            RefusalCode.NO_CONVERSATION,
            "There is no earlier conversation to fork.",
        )
    assert waiting.parent_session is not None, "asked above"
    planning = successor(
        waiting.parent_session,
        waiting.tier,
        Session.Purpose.PLAN,
        request=WANTED.format(tier=waiting.tier, name=get_tier(waiting.tier).name),
        requested_by=by,
        force_fresh=waiting.force_fresh,
    )
    taken = Approval.objects.filter(
        pk=approval.pk, state=Approval.State.WAITING, plan_run=None
    ).update(plan_run=planning)
    if not taken:
        raise OperationRefused(
            RefusalCode.PLAN_REQUESTED,
            f"Approval {approval.pk} has been answered, or its plan was requested before.",
        )
    enqueue_session(planning)
    return planning


def planned(session: Session) -> None:
    """Adds the result of a plan session to its approval, and sends the notification."""
    said = f"The plan of Tier {session.tier}, by a plan session:\n{plan_in(session)}"
    if session.status != Session.Status.COMPLETED:
        said = f"The plan session gave no plan: {session.error}"
    for approval in Approval.objects.filter(plan_run=session, state=Approval.State.WAITING):
        approval.plan = f"{said}\n\n{approval.plan}"[:LONGEST_PLAN]
        approval.save(update_fields=["plan"])
        tell_people(approval)


def give_up(approval: Approval) -> None:
    """Stops the plan session of an approval that was answered."""
    planning = approval.plan_run
    if planning is None or not planning.is_open:
        return
    if planning.status == Session.Status.QUEUED:
        try:
            planning.finish(Session.Status.CANCELLED, ANSWERED)
            return
        except IllegalTransition:
            planning.refresh_from_db()
    Session.objects.filter(pk=planning.pk).ask_to_stop(Session.StopCause.PERSON, ANSWERED)


def begin(
    session: Session,
    *,
    why: str = "",
    by: User | None = None,
    confirmed: bool = False,
) -> None:
    """Enqueues a new session, or requests approval of its tier, in the caller's transaction.

    `by`: the account that starts it. `confirmed`: that account confirmed the start.
    """
    if not needs_approval(session):
        enqueue_session(session)
        return
    why = why or f"Tier {session.tier} needs approval."
    if confirmed and by is not None and may(by, Right.APPROVE):
        recorder.note_answer(approved_by_starting(session, why, by))
        enqueue_session(session)
        return
    session.await_approval(why)
    is_planned = settings.CLAUDEOPS_PLAN_SESSIONS and can_be_planned(session)
    approval = ask_for_tier(session, why, _plan(session), notify=not is_planned)
    if is_planned:
        ask_for_plan(approval)


def needs_approval(session: Session) -> bool:
    """Returns True if the current policy requires approval."""
    if session.traits.continues_tier or not session.traits.may_change:
        return False
    return session.cycle.current_policy().needs_approval(session.tier)


def lacks_approval(session: Session, path: Iterable[Session]) -> str:
    """Returns why the session must not start without approval, or nothing.

    `path`: from the first session of the chain to this one. A session that continues the work of
    its tier uses the approval of the session that began it.
    """
    if not session.traits.may_change:
        return ""
    needed = session.allowed_once or session.cycle.current_policy().needs_approval(session.tier)
    if not needed:
        return ""
    began = _first_of_tier(session, tuple(path))
    approved = Approval.objects.filter(
        session=began, kind=Approval.Kind.TIER, state=Approval.State.APPROVED
    )
    if approved.exists():
        return ""
    return f"Tier {session.tier} needs approval and was not approved. Start it again."


def begun(session: Session) -> None:
    """Records that an approved session has started."""
    Approval.objects.filter(
        session=session, kind=Approval.Kind.TIER, state=Approval.State.APPROVED, used_at=None
    ).update(used_at=timezone.now())


def _first_of_tier(session: Session, path: tuple[Session, ...]) -> Session:
    for run in reversed(path):
        if run.tier != session.tier:
            break
        session = run
        if not run.traits.continues_tier:
            break
    return session


def _plan(session: Session) -> str:
    asked = f"Asked for: {session.request}" if session.request else ""
    parent = session.parent_session
    reported = f"Tier {parent.tier} reported: {plan_in(parent)}" if parent else ""
    words = session.cycle.prompt if parent is None else ""
    return "\n".join(filter(None, (asked, reported, words)))


def what_it_waits_for(session: Session) -> str:
    """Returns the message after a start."""
    if session.status == Session.Status.AWAITING_APPROVAL:
        return f"Session {session.pk} waits for approval of Tier {session.tier}."
    return f"Session {session.pk} is queued."


Purpose, Status = Session.Purpose, Session.Status


@dataclass(frozen=True, slots=True)
class Lineage:
    """Chain above a session, loaded once."""

    path: tuple[Session, ...]
    """From the first session of the chain to the session itself."""
    relatives: tuple[Session, ...] = ()
    """All sessions of the chain, with its branches."""

    @property
    def session(self) -> Session:
        return self.path[-1]

    @property
    def parent(self) -> Session | None:
        return self.path[-2] if len(self.path) > 1 else None

    @property
    def runs_of_this_tier(self) -> tuple[Session, ...]:
        """The session and those that it continues within its tier, newest first."""
        newest_first = reversed(self.path)
        return tuple(takewhile(lambda run: run.tier == self.session.tier, newest_first))

    @property
    def tier_that_asked(self) -> int | None:
        """The tier that asked for the escalation to this one."""
        above = self.path[: len(self.path) - len(self.runs_of_this_tier)]
        return above[-1].tier if above else None

    @property
    def interruptions(self) -> int:
        """Interruptions of this tier in a row, with the session."""
        _own, *before = self.runs_of_this_tier
        in_a_row = takewhile(lambda run: run.status == Status.INTERRUPTED, before)
        return 1 + sum(not (run.met_rate_limit or run.was_told) for run in in_a_row)

    @property
    def limits_met(self) -> int:
        """Rate limits of this tier in a row, with the session."""
        of_tier = [run for run in self.relatives if run.tier == self.session.tier]
        before = [run for run in of_tier if run.pk < self.session.pk and run.started_at]
        newest_first = sorted(before, key=lambda run: -run.pk)
        return 1 + len(list(takewhile(lambda run: run.met_rate_limit, newest_first)))

    @property
    def continuations(self) -> int:
        """Continuations of this tier after its turn limit."""
        return sum(run.purpose == Purpose.CONTINUATION for run in self.runs_of_this_tier)

    @property
    def attempts(self) -> tuple[Session, ...]:
        """Earlier sessions that started at the same point for the same request."""

        def point(run: Session) -> tuple[int | None, int, str, bool]:
            return run.parent_session_id, run.tier, run.request, run.is_question

        mine = point(self.session)
        earlier = (run for run in self.relatives if run.pk < self.session.pk and run.started_at)
        same = (run for run in earlier if point(run) == mine and not run.is_interactive)
        return tuple(sorted(same, key=lambda run: run.pk))

    @property
    def started_again(self) -> bool:
        """True if an earlier start of the same session was interrupted."""
        return any(
            run.status == Status.INTERRUPTED
            and not (run.met_rate_limit or run.was_told)
            and run.purpose == self.session.purpose
            for run in self.attempts
        )

    @property
    def spent_before_usd(self) -> Decimal:
        """Costs of the sessions that this one continues within its tier."""
        _own, *before = self.runs_of_this_tier
        spent = (run.cost_usd or run.estimated_cost_usd or Decimal(0) for run in before)
        return sum(spent, Decimal(0))


def lineage_of(session: Session) -> Lineage:
    """Loads the chain with one query."""
    chain = chain_of(session)
    path = chain.path_to(session)
    for parent, child in zip(path, path[1:], strict=False):
        child.parent_session = parent
    return Lineage(path=path, relatives=chain.sessions)
