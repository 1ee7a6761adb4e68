"""May a queued session start now? Asked when it is taken, and again at the moment of spawn."""

from __future__ import annotations

from escalation.queue.one_at_a_time import one_at_a_time
from escalation.queue.places import Limits, running_tiers, wait_for_place
from escalation.run.heartbeat import this_runner
from sessions_app.models import PauseSwitch, Session

TAKEN = "it was already taken"


def objection(session: Session) -> str:
    """Why it must wait, or nothing."""
    switch = PauseSwitch.current()
    if switch.paused:
        return f"Claude Ops is paused: {switch.reason or 'no reason given'}"
    return Limits.configured().objection(session.tier, running_tiers(without=session))


def admit(session: Session) -> str:
    """Claim the session if it may start. An answer is the reason why it waits or is not ours.

    Counting and claiming are one transaction, one process at a time: two workers cannot both take
    the last place, and a place that is freed meanwhile is not missed by one who begins to wait.
    """
    with one_at_a_time():
        if reason := objection(session):
            wait_for_place(session)
            return reason
        if not session.claim(**this_runner(), waiting_since=None):
            return TAKEN
    return ""
