"""What a person can do with a finished session: ask, try another way, try again, escalate.

Each creates a run in the same cycle, reopened for it, so that the chain stays one tree and the
database still allows only one active cycle per watch. Where its tier needs approval, somebody who
may approve and confirms the start has given it thereby; for anybody else it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from django.db import IntegrityError, transaction

from escalation.errors import OperationRefused
from escalation.incidents import book
from escalation.next_step.cycles import Enqueue
from escalation.next_step.run_choice import AS_USUAL, RunChoice
from escalation.next_step.starting import begin
from escalation.next_step.successors import sibling, successor
from escalation.policy.budgets import require_budget
from sessions_app.models import Session
from sessions_app.models.policy import refusal
from sessions_app.models.transitions import RETRIED
from sessions_app.reading.masking import masked
from sessions_app.reading.session_actions import LONGEST_REASON, LONGEST_REQUEST

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def stop(session: Session, *, by: str) -> bool:
    """Ask a running session to stop. False: it is not running, or was asked already.

    It ends as interrupted and its cycle needs a person: who stops a run wants to look first.
    """
    return bool(
        Session.objects.filter(pk=session.pk).ask_to_stop(Session.StopCause.PERSON, masked(by))
    )


def follow_up(
    session: Session,
    question: str,
    *,
    enqueue: Enqueue,
    requested_by: User | None = None,
    choice: RunChoice = AS_USUAL,
) -> Session:
    """A question in the same conversation, answered with reading tools only: any tier may be asked,
    whatever the policy."""
    _require_text(question, "a question")
    return _asked(session, Session.Purpose.FOLLOW_UP, question, enqueue, requested_by, choice)


def fork(
    session: Session,
    request: str,
    *,
    enqueue: Enqueue,
    requested_by: User | None = None,
    choice: RunChoice = AS_USUAL,
    confirmed: bool = False,
) -> Session:
    """Another approach from where the session ended; the original stays as it is."""
    _require_text(request, "what to try instead")
    require_policy(session, session.tier)
    return _asked(
        session, Session.Purpose.FORK, request, enqueue, requested_by, choice, confirmed=confirmed
    )


def retry(
    session: Session,
    *,
    enqueue: Enqueue,
    requested_by: User | None = None,
    force_fresh: bool = False,
    choice: RunChoice = AS_USUAL,
    confirmed: bool = False,
) -> Session:
    """The same tier once more, from the state that its parent left."""
    if session.status not in RETRIED:
        raise OperationRefused(
            f"Session {session.pk} is {session.get_status_display()}: only a run that did not end "
            "well can be tried again."
        )
    # A question stays one: trying it again must not give it the tier's tools.
    purpose = Session.Purpose.FOLLOW_UP if session.is_question else Session.Purpose.RETRY
    if not session.is_question:
        require_policy(session, session.tier)
    return _started(
        session,
        enqueue,
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
    enqueue: Enqueue,
    requested_by: User | None = None,
    force_fresh: bool = False,
    choice: RunChoice = AS_USUAL,
    confirmed: bool = False,
) -> Session:
    """A person sends the findings on to the next tier. Of two at once, one wins."""
    _require_text(reason, "a reason", at_most=LONGEST_REASON)
    require_policy(session, session.tier + 1)

    def next_tier() -> Session:
        if not session.mark_escalated(masked(f"Escalated by hand: {reason}")):
            raise OperationRefused(
                f"Session {session.pk} is {session.get_status_display()}: it has been escalated "
                "already, or cannot be."
            )
        book.note_escalation(session, session.tier + 1)
        return successor(
            session,
            session.tier + 1,
            Session.Purpose.TIER,
            request=reason,
            requested_by=requested_by,
            force_fresh=force_fresh,
            **choice.fields(session.tier + 1),
        )

    return _started(session, enqueue, next_tier, by=requested_by, confirmed=confirmed)


def require_policy(session: Session, tier: int) -> None:
    if why := refusal(tier, session.cycle.current_policy()):
        raise OperationRefused(why)


def _asked(
    session: Session,
    purpose: str,
    request: str,
    enqueue: Enqueue,
    requested_by: User | None,
    choice: RunChoice,
    *,
    confirmed: bool = False,
) -> Session:
    """The same tier once more, with a person's words, from where the session ended."""
    if session.cycle.ephemeral:
        raise OperationRefused(
            f"The conversation of session {session.pk} was not kept, so nothing can be added to "
            "it. Run a new cycle, without --ephemeral."
        )
    return _started(
        session,
        enqueue,
        lambda: successor(
            session,
            session.tier,
            purpose,
            request=request,
            requested_by=requested_by,
            **choice.fields(session.tier),
        ),
        by=requested_by,
        confirmed=confirmed,
    )


def _started(
    session: Session,
    enqueue: Enqueue,
    create: Callable[[], Session],
    *,
    by: User | None,
    confirmed: bool,
) -> Session:
    if session.cycle.is_active:
        raise OperationRefused(
            f"Cycle {session.cycle_id} is still {session.cycle.get_state_display()}; wait for it."
        )
    require_budget(session.cycle)
    try:
        with transaction.atomic():
            if not session.cycle.reopen():
                raise OperationRefused(f"Somebody else has just reopened cycle {session.cycle_id}.")
            created = create()
            begin(created, enqueue=enqueue, by=by, confirmed=confirmed)
    except IntegrityError as error:
        raise OperationRefused(
            f"Another cycle of {session.cycle.subject} is under way; wait for it to finish."
        ) from error
    return created


def _require_text(text: str, what: str, at_most: int = LONGEST_REQUEST) -> None:
    # A form sends each line end as two characters and counts it as one.
    said = text.strip().replace("\r\n", "\n")
    if not said:
        raise OperationRefused(f"Say {what}.")
    if len(said) > at_most:
        raise OperationRefused(f"Say {what} in at most {at_most} characters: this has {len(said)}.")
