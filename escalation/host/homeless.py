"""Sessions that wait for a host which nobody sees: an incident of their watch says so."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from escalation.errors import WhyNot
from escalation.incidents import book
from escalation.incidents.findings import could_not_run
from escalation.queue.hosts import homeless, live_hosts, words_of
from sessions_app.models import Session

PATIENCE = timedelta(minutes=2)
"""A host that is started again is back by then."""


def note_homeless() -> int:
    """How many sessions wait in vain."""
    bound = (
        Session.objects.filter(
            status=Session.Status.QUEUED, created_at__lt=timezone.now() - PATIENCE
        )
        .exclude(cycle__watch=None)
        .exclude(cycle__watch__hosts="")
        .select_related("cycle__watch")
    )
    hosts = live_hosts() if bound.exists() else []
    waiting = [session for session in bound if homeless(words_of(session), hosts)]
    for session in waiting:
        detail = (
            f"Session {session.pk} waits: the watch runs on {' or '.join(words_of(session))} "
            "alone, and no worker with that name or label was seen in the last minutes. Start one "
            "there (CLAUDEOPS_HOST_LABELS), or change the hosts of the watch."
        )
        finding = could_not_run(WhyNot.NO_HOST, book.scope_of(session.cycle), detail)
        book.note(finding, session.cycle.watch)
    return len(waiting)
