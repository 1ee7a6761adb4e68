"""The circuit breaker: a watch that fails again and again is asked less often, and says so."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import F
from django.utils import timezone

from sessions_app.models import Cycle, Watch

LONGEST_WAIT = timedelta(hours=24)


def note_outcome(cycle: Cycle) -> None:
    """Called when a cycle has ended. A cycle that could not even run counts as failed."""
    if cycle.watch_id is None:
        return
    watch = Watch.objects.filter(pk=cycle.watch_id)
    if cycle.outcome != Cycle.Outcome.COULD_NOT_RUN:
        watch.update(failures_in_a_row=0, backed_off_until=None)
        return
    watch.update(failures_in_a_row=F("failures_in_a_row") + 1)
    current = watch.get()
    watch.update(backed_off_until=back_off_until(current, timezone.now()))


def back_off_until(watch: Watch, now: datetime) -> datetime | None:
    """Pure: from the N-th failure on, the wait doubles with each further one."""
    beyond = watch.failures_in_a_row - settings.CLAUDEOPS_BREAKER_FAILURES
    if beyond < 0:
        return None
    minutes = watch.interval_minutes * 2 ** min(beyond + 1, 20)
    longest = LONGEST_WAIT.total_seconds() / 60
    return now + timedelta(minutes=min(minutes, longest))
