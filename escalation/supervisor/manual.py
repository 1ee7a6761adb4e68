"""Actions of a person: follow up, fork, retry, escalate, allow once, stop and expire.

The first five create a session in the same cycle, which is reopened, so that the chain stays one
tree and a watch has one active cycle. If the tier needs approval, a start that is confirmed by an
account that may approve counts as approval; for any other account it is requested.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING

from django.db import IntegrityError

from escalation.errors import OperationRefused, RefusalCode, WhyNot
from escalation.incidents import recorder
from escalation.queue import enqueue_session, installation_lock, start_waiting
from escalation.supervisor import approvals
from escalation.supervisor.budgets import require_budget
from escalation.supervisor.conclude import finish_chain, finish_cycle
from escalation.supervisor.successors import AS_USUAL, RunChoice, begin, give_up, sibling, successor
from escalation.tiers import get_tier
from sessions_app.history.chain import chain_of
from sessions_app.history.commands import denied_commands
from sessions_app.history.session_actions import LONGEST_REASON, LONGEST_REQUEST, withheld_tier
from sessions_app.models import Approval, Cycle, Session
from sessions_app.models.autonomy import refusal
from sessions_app.models.session import RETRIED, EventKind, IllegalTransition, purposes_where
from sessions_app.redaction.redact import redacted
from sessions_app.text import estimated_tokens, token_limit

if TYPE_CHECKING:
    from django.contrib.auth.models import User


FOR_REAL = "Carry out for real what you proposed in the dry run, as far as it is still needed."


def stop(session: Session, *, by: str) -> bool:
    """Asks a running session to stop. Returns False if it is not running or was asked before.

    It ends as interrupted, and its cycle needs a person.
    """
    return bool(
        Session.objects.filter(pk=session.pk).ask_to_stop(Session.StopCause.PERSON, redacted(by))
    )


TOLD = "Session {session} is told it before its next request."
TOLD_BY_RESUME = (
    "Session {session} is stopped after its current step and continued with the message: its CLI "
    "takes no messages while it runs."
)


def tell(session: Session, text: str, *, by: str) -> str:
    """Tells a running session something. Returns a sentence that says how.

    Its runner passes it on before the next request; a CLI that takes no messages is stopped at the
    next turn, and the session that continues it gets the message. Secrets are redacted for the
    agent, too.
    """
    said = _checked(text, LONGEST_REQUEST)
    if not said:
        raise OperationRefused(RefusalCode.TEXT_MISSING, "Say what to tell the session.")
    with installation_lock():
        # The row is locked: a session that ends meanwhile has it in its record, or is refused.
        row = Session.objects.select_for_update(of=("self",), no_key=True).get(pk=session.pk)
        if row.status != Session.Status.RUNNING or row.stop_cause:
            raise OperationRefused(
                RefusalCode.SESSION_STATUS,
                f"Session {session.pk} is {row.get_status_display()}, or is being stopped: only a "
                "running session can be told something.",
            )
        if not row.can_be_told:
            raise OperationRefused(
                RefusalCode.NOT_SUPPORTED,
                f"Session {session.pk} cannot be told anything: it has not begun yet, or its CLI "
                "takes no messages while it runs and its conversation cannot be continued. Wait "
                "for its end, or stop it.",
            )
        row.note(EventKind.TOLD, redacted(said), by=redacted(by))
    return (TOLD if row.takes_messages else TOLD_BY_RESUME).format(session=session.pk)


def follow_up(
    session: Session,
    question: str,
    *,
    requested_by: User | None = None,
    choice: RunChoice = AS_USUAL,
) -> Session:
    """Asks a question in the same conversation, with reading tools only, whatever the policy."""
    _require_text(question, "a question")
    return _asked(session, Session.Purpose.FOLLOW_UP, question, requested_by, choice)


def fork(
    session: Session,
    request: str,
    *,
    requested_by: User | None = None,
    choice: RunChoice = AS_USUAL,
    confirmed: bool = False,
) -> Session:
    """Tries another approach from the end of the session. The original stays as it is."""
    _require_text(request, "what to try instead")
    require_policy(session, session.tier)
    return _asked(session, Session.Purpose.FORK, request, requested_by, choice, confirmed=confirmed)


def retry(
    session: Session,
    *,
    requested_by: User | None = None,
    force_fresh: bool = False,
    choice: RunChoice = AS_USUAL,
    confirmed: bool = False,
) -> Session:
    """Runs the same tier again, from the end of its parent."""
    if session.status not in RETRIED or session.is_interactive:
        raise OperationRefused(
            RefusalCode.SESSION_STATUS,
            f"Session {session.pk} is {session.get_status_display()}: only a session that did not "
            "end well, and was not in a terminal, can be retried.",
        )
    # A question stays a question: a retry must not get the tools of the tier.
    purpose = Session.Purpose.FOLLOW_UP if session.is_question else Session.Purpose.RETRY
    if not session.is_question:
        require_policy(session, session.tier)
    return _started(
        session,
        lambda: sibling(
            session,
            purpose=purpose,
            requested_by=requested_by,
            force_fresh=force_fresh,
            **choice.fields(session.tier),
        ),
        by=requested_by,
        confirmed=confirmed,
    )


def escalate(
    session: Session,
    reason: str,
    *,
    requested_by: User | None = None,
    force_fresh: bool = False,
    choice: RunChoice = AS_USUAL,
    confirmed: bool = False,
) -> Session:
    """Starts the next tier with the findings of the session. Of two requests, one wins."""
    _require_text(reason, "a reason", at_most=LONGEST_REASON)
    require_policy(session, session.tier + 1)

    def next_tier() -> Session:
        if not session.mark_escalated(redacted(f"Escalated by hand: {reason}")):
            raise OperationRefused(
                RefusalCode.SESSION_STATUS,
                f"Session {session.pk} is {session.get_status_display()}: it has been escalated "
                "already, or cannot be.",
            )
        recorder.note_escalation(session, session.tier + 1)
        return successor(
            session,
            session.tier + 1,
            Session.Purpose.TIER,
            request=reason,
            requested_by=requested_by,
            force_fresh=force_fresh,
            **choice.fields(session.tier + 1),
        )

    return _started(session, next_tier, by=requested_by, confirmed=confirmed)


def allow_once(
    session: Session,
    *,
    by: User,
    way: str = "",
    note: str = "",
    budget_usd: Decimal | None = None,
) -> Session:
    """Starts the tier that was withheld after a session, by one approval of a person.

    The tier continues the same conversation, whatever the policy of the watch and the budget of
    the chain; it may spend `budget_usd`. Every other limit applies. A tier that ran as a dry run is
    run for real. Without a note it is told which denied commands it may run now. Of two requests,
    one wins.
    """
    said_note = _checked(note, LONGEST_REASON)

    def withheld() -> Session:
        runs = chain_of(session).sessions
        own = next(run for run in runs if run.pk == session.pk)
        found = withheld_tier(own, runs, denied_commands(runs))
        if found is None:
            raise OperationRefused(
                RefusalCode.SESSION_STATUS,
                f"Session {session.pk} is {session.get_status_display()}: no tier waits to be "
                "allowed after it, or it has run already.",
            )
        origin, tier = found.origin, found.tier
        note = said_note or found.request
        why = origin.escalation_reason or f"Tier {tier} did not follow."
        if not found.is_dry_run:
            said = f"Tier {tier} was allowed once by {by.get_username()}. {note}".strip()
            origin.mark_escalated(redacted(said))
        recorder.note_escalation(origin, tier)
        limit = budget_usd if budget_usd is not None else get_tier(tier).max_budget_usd
        created = successor(
            origin,
            tier,
            Session.Purpose.FORK if found.is_dry_run else Session.Purpose.TIER,
            request=note or (FOR_REAL if found.is_dry_run else ""),
            requested_by=by,
            allowed_once=True,
            **RunChoice(max_budget_usd=limit).fields(tier),
        )
        approval = approvals.allowed_once(created, why, by=by, way=way, note=note)
        recorder.note_answer(approval)
        return created

    return _started(session, withheld, by=by, confirmed=True, with_chain_budget=False)


def require_policy(session: Session, tier: int) -> None:
    if why := refusal(tier, session.cycle.current_policy()):
        raise OperationRefused(RefusalCode.POLICY, why)


def _asked(
    session: Session,
    purpose: str,
    request: str,
    requested_by: User | None,
    choice: RunChoice,
    *,
    confirmed: bool = False,
) -> Session:
    """Runs the same tier with a request of a person, from the end of the session."""
    if session.cycle.ephemeral:
        raise OperationRefused(
            RefusalCode.NO_CONVERSATION,
            f"The conversation of session {session.pk} was not kept, so nothing can be added to "
            "it. Run a new cycle, without --ephemeral.",
        )
    return _started(
        session,
        lambda: successor(
            session,
            session.tier,
            purpose,
            request=request,
            requested_by=requested_by,
            in_branch=session.in_branch or purpose == Session.Purpose.FORK,
            **choice.fields(session.tier),
        ),
        by=requested_by,
        confirmed=confirmed,
    )


def _started(
    session: Session,
    create: Callable[[], Session],
    *,
    by: User | None,
    confirmed: bool,
    with_chain_budget: bool = True,
) -> Session:
    if session.cycle.is_active:
        raise OperationRefused(
            RefusalCode.CYCLE_ACTIVE,
            f"Cycle {session.cycle_id} is still {session.cycle.get_state_display()}; wait for it.",
        )
    require_budget(session.cycle, with_chain=with_chain_budget)
    try:
        with installation_lock():
            if not session.cycle.reopen():
                raise OperationRefused(
                    RefusalCode.CYCLE_ACTIVE,
                    f"Cycle {session.cycle_id} has just been reopened by another request.",
                )
            created = create()
            if created.allowed_once:
                enqueue_session(created)
            else:
                begin(created, by=by, confirmed=confirmed)
    except IntegrityError as error:
        raise OperationRefused(
            RefusalCode.CYCLE_ACTIVE,
            f"Another cycle of {session.cycle.subject} is active; wait for it to finish.",
        ) from error
    return created


def _require_text(text: str, what: str, at_most: int = LONGEST_REQUEST) -> None:
    if not _checked(text, at_most, what):
        raise OperationRefused(RefusalCode.TEXT_MISSING, f"Say {what}.")


def _checked(text: str, at_most: int, what: str = "it") -> str:
    """Returns the stripped text."""
    said = text.strip()
    if (found := estimated_tokens(said)) > at_most:
        raise OperationRefused(
            RefusalCode.TEXT_TOO_LONG,
            f"Say {what} in {token_limit(at_most)}: this has about {found:,} tokens.",
        )
    return said


Status = Session.Status
ENDING_CYCLES = purposes_where(lambda traits: traits.ends_cycle)
WAITING = (Status.QUEUED, Status.AWAITING_APPROVAL)


class Stopped(StrEnum):
    STOPPING = "stopping"
    """A running session was asked to stop."""
    CANCELLED = "cancelled"
    """Only waiting sessions were cancelled."""
    NOTHING = "nothing"
    """There was nothing to stop."""


def stop_cycle(cycle: Cycle, *, by: str) -> Stopped:
    """Stops a chain: running sessions are asked to stop, waiting ones are cancelled.

    A session that ends at the same moment either sees the request, or `conclude` finds it and
    starts no successor, or the successor exists already and is cancelled here.
    """
    by = redacted(by)
    with installation_lock():
        runs = Session.objects.filter(cycle=cycle)
        runs.ask_to_stop(Session.StopCause.PERSON, by)
        cancelled = [run for run in _waiting_in(cycle) if _cancelled(run, by)]
        if _still_works(cycle):
            return Stopped.STOPPING
        if not cancelled:
            return _closed_empty(cycle, by)
        _end(cycle, cancelled, by)
        start_waiting()
    return Stopped.CANCELLED


def _waiting_in(cycle: Cycle) -> list[Session]:
    found = Session.objects.filter(cycle=cycle, status__in=WAITING)
    return list(found.select_related("cycle__watch").order_by("pk"))


def _cancelled(session: Session, by: str) -> bool:
    """Cancels a waiting session. Returns False if a worker has just taken it."""
    facts = {"stop_cause": Session.StopCause.PERSON, "stop_requested": by}
    try:
        session.finish(Status.CANCELLED, f"stopped by {by}", **facts)
    except IllegalTransition:
        Session.objects.filter(pk=session.pk).ask_to_stop(Session.StopCause.PERSON, by)
        return False
    for approval in session.approvals.filter(state=Approval.State.WAITING):
        approvals.close(approval, Approval.State.WITHDRAWN)
        give_up(approval)
    return True


def _still_works(cycle: Cycle) -> bool:
    """Returns True if a running session will end the cycle. A plan session does not."""
    running = Session.objects.filter(cycle=cycle, status=Status.RUNNING)
    return running.filter(purpose__in=ENDING_CYCLES).exists()


def _end(cycle: Cycle, cancelled: list[Session], by: str) -> None:
    """Ends the cycle. A cancelled question keeps the outcome before it."""
    if all(session.is_question for session in cancelled):
        cycle.close_again()
        return
    working = [session for session in cancelled if not session.is_plan] or cancelled
    named = f"Tier {max(run.tier for run in working)}" if not working[0].is_plan else "the next run"
    reason = f"Stopped by {by} before {named} began."
    finish_chain(working[-1], Cycle.Outcome.NEEDS_PERSON, reason, stopped_by=by)


def _closed_empty(cycle: Cycle, by: str) -> Stopped:
    """Ends an active cycle that has no session."""
    if not cycle.is_active or cycle.sessions.exists():
        return Stopped.NOTHING
    reason = f"Stopped by {by} before anything began."
    finish_cycle(cycle, Cycle.Outcome.NEEDS_PERSON, reason, stopped_by=by)
    return Stopped.CANCELLED


def expire_queued(session: Session, reason: str) -> None:
    """Expires a queued session and ends its cycle.

    Raises IllegalTransition if a worker has just taken it.
    """
    with installation_lock():
        session.finish(Status.EXPIRED, reason, error=reason, escalation_reason="")
        if session.is_question:
            session.cycle.close_again()
        else:
            finish_chain(session, Cycle.Outcome.COULD_NOT_RUN, reason, WhyNot.WORKER)


def expire_interrupted(session: Session, reason: str) -> bool:
    """Expires an interrupted session. Returns False if it is not interrupted any more."""
    with installation_lock():
        return session.expire(reason)


def expire(session: Session, *, by: str) -> None:
    """Expires a queued or interrupted session. Raises OperationRefused for any other."""
    reason = f"expired by {by}"
    if session.status == Status.QUEUED:
        try:
            return expire_queued(session, reason)
        except IllegalTransition as moved_on:
            raise OperationRefused(RefusalCode.SESSION_STATUS, f"{moved_on}.") from moved_on
    if not expire_interrupted(session, reason):
        raise OperationRefused(
            RefusalCode.SESSION_STATUS,
            f"Session {session.pk} is {session.get_status_display()}: only a queued or "
            "interrupted session can expire.",
        )
    return None
