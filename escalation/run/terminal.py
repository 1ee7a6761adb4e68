"""Opens the conversation of a session in a person's terminal, as a session of its own.

The process of the terminal runs the session itself, with the sandbox, the tier and the limits of
any other. It is never queued: nobody else could talk to it.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from django.db import IntegrityError

from escalation.agent.binary import find_binary
from escalation.agent.process import Terminal
from escalation.errors import CannotRun, OperationRefused, RefusalCode
from escalation.queue import installation_lock, not_for_this_host
from escalation.resume.facts import decide_continuation
from escalation.run.prepare import effective_tier
from escalation.run.runner import admit, run_claimed, stop_on_signals
from escalation.supervisor.approvals import approved_by_starting
from escalation.supervisor.budgets import require_budget
from escalation.supervisor.manual import require_policy
from escalation.supervisor.successors import needs_approval, successor
from sessions_app.access.roles import Right, may
from sessions_app.history.resume import Guard, Resume
from sessions_app.models import PauseSwitch, Session, SessionEvent

if TYPE_CHECKING:
    from django.contrib.auth.models import User

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end the conversation. Ctrl-C in the terminal is a key for the CLI."""


def attach(session: Session, terminal: Terminal, *, by: User) -> Session:
    """Let a person talk in the conversation of an ended session, until the CLI is left.

    Raise OperationRefused if it cannot be opened; then there is no new session. A lost connection
    ends it like leaving the CLI does.
    """
    require_attachable(session, by=by)
    with stop_on_signals(Session.StopCause.FOREGROUND, "in the terminal", ENDINGS) as asked_to_stop:
        created = _claimed(session, by)
        run_claimed(created, listener=_keep_quiet, asked_to_stop=asked_to_stop, terminal=terminal)
    created.refresh_from_db()
    return created


def require_attachable(session: Session, *, by: User) -> None:
    """Check everything that can be checked before a session is created."""
    candidate = _candidate(session)
    _require_right(candidate, by)
    if session.is_open:
        raise OperationRefused(
            RefusalCode.SESSION_STATUS,
            f"Session {session.pk} is {session.get_status_display()}: only an ended session can be "
            "attached. To a running one, say something with `claudeops session tell`.",
        )
    if session.cycle.watch_id is None and not session.is_drill:
        raise OperationRefused(
            RefusalCode.WATCH_REMOVED,
            f"The watch of session {session.pk} was removed, and its grants and limits with it.",
        )
    switch = PauseSwitch.current()
    if switch.paused:
        raise OperationRefused(
            RefusalCode.PAUSED,
            f"Claude Ops is paused: {switch.reason or 'no reason given'}. Run `claudeops unpause`.",
        )
    if why := not_for_this_host(session):
        raise OperationRefused(RefusalCode.NO_CONVERSATION, f"Not on this host: {why}.")
    if session.cycle.is_active:
        raise OperationRefused(
            RefusalCode.CYCLE_ACTIVE,
            f"Cycle {session.cycle_id} is still {session.cycle.get_state_display()}; wait for it.",
        )
    require_policy(session, session.tier)
    require_budget(session.cycle)
    _require_conversation(session, candidate)


def _candidate(session: Session) -> Session:
    """Build the session as it would be, without storing it."""
    return Session(
        cycle=session.cycle,
        parent_session=session,
        tier=session.tier,
        purpose=Session.Purpose.ATTACHED,
        model=session.model,
        workdir=session.workdir,
    )


def _require_right(candidate: Session, by: User) -> None:
    right = Right.APPROVE if needs_approval(candidate) else Right.RUN
    if not may(by, right):
        raise OperationRefused(
            RefusalCode.NOT_PERMITTED,
            f"The account {by.get_username()} may not {right}, which Tier {candidate.tier} of this "
            "watch needs.",
        )


def _require_conversation(session: Session, candidate: Session) -> None:
    try:
        binary = find_binary()
    except CannotRun as missing:
        raise OperationRefused(RefusalCode.NOT_SUPPORTED, missing) from missing
    if not binary.can_fork:
        raise OperationRefused(
            RefusalCode.NOT_SUPPORTED,
            f"The CLI {binary.version} cannot fork a conversation, so the one of session "
            f"{session.pk} would be changed. Install a newer one.",
        )
    continuation, _facts = decide_continuation(candidate, effective_tier(candidate), binary)
    if isinstance(continuation, Resume):
        return
    guard = getattr(continuation, "guard", "")
    raise OperationRefused(
        RefusalCode.IN_USE if guard == Guard.IN_USE else RefusalCode.NO_CONVERSATION,
        f"The conversation of session {session.pk} cannot be resumed: {continuation.why}.",
    )


def _claimed(session: Session, by: User) -> Session:
    """Create the session and claim it for this process, or neither."""
    try:
        with installation_lock():
            if not session.cycle.reopen():
                raise OperationRefused(
                    RefusalCode.CYCLE_ACTIVE,
                    f"Cycle {session.cycle_id} has just been reopened by another request.",
                )
            created = successor(session, session.tier, Session.Purpose.ATTACHED, requested_by=by)
            if needs_approval(created):
                approved_by_starting(created, f"Tier {created.tier} needs approval.", by)
            if why := admit(created):
                raise OperationRefused(RefusalCode.IN_USE, f"It cannot start now: {why}.")
    except IntegrityError as error:
        raise OperationRefused(
            RefusalCode.CYCLE_ACTIVE,
            f"Another cycle of {session.cycle.subject} is active; wait for it to finish.",
        ) from error
    return created


def _keep_quiet(event: SessionEvent) -> None:
    """Print nothing: the terminal belongs to the CLI."""
