"""May a queued session start now? Asked when it is taken, and again at the moment of spawn."""

from __future__ import annotations

from django.conf import settings
from django.db import transaction

from escalation.run.heartbeat import this_runner
from escalation.tiers import HIGHEST_TIER
from sessions_app.models import PauseSwitch, Session


def objection(session: Session) -> str:
    """Why it must wait, or nothing."""
    if PauseSwitch.is_on():
        return f"Claude Ops is paused: {PauseSwitch.current().reason or 'no reason given'}"
    running = Session.objects.filter(status=Session.Status.RUNNING).exclude(pk=session.pk)
    if running.count() >= settings.CLAUDEOPS_MAX_SESSIONS:
        return f"{settings.CLAUDEOPS_MAX_SESSIONS} sessions are running (CLAUDEOPS_MAX_SESSIONS)"
    highest = running.filter(tier=HIGHEST_TIER).count()
    if session.tier == HIGHEST_TIER and highest >= settings.CLAUDEOPS_MAX_TIER3_SESSIONS:
        return (
            f"{settings.CLAUDEOPS_MAX_TIER3_SESSIONS} Tier 3 sessions are running "
            "(CLAUDEOPS_MAX_TIER3_SESSIONS)"
        )
    return ""


def admit(session: Session) -> str:
    """Claim the session if it may start. An answer is the reason why it waits or is not ours.

    Counting and claiming are one transaction: SQLite takes the write lock at its start, PostgreSQL
    the lock on the switch's row, so two workers cannot both take the last place.
    """
    with transaction.atomic():
        PauseSwitch.objects.get_or_create(pk=PauseSwitch.THE_ONE)
        PauseSwitch.objects.select_for_update().get(pk=PauseSwitch.THE_ONE)
        if reason := objection(session):
            return reason
        if not session.claim(**this_runner()):
            return "it was already taken"
    return ""
