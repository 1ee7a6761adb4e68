"""The circuit breaker: a watch that fails again and again is tried less often, and says so.

What counts is whether a cycle came to a usable end. One that found a real problem and asks a person
through a valid report has done its work; one whose last run failed, timed out or was cut off has
not, however much it had said before. A run that somebody stopped, or that met the account's own
limit, speaks neither for nor against.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice, takewhile

from croniter import CroniterBadDateError, croniter
from django.conf import settings
from django.db.models import Exists, F, OuterRef, Q
from django.utils import timezone

from sessions_app.models import Approval, Cycle, Session, Watch

LONGEST_WAIT = timedelta(hours=24)
# Due times of more than a day, for a watch of every minute.
MOST_DOUBLINGS = 11

Outcome, Status = Cycle.Outcome, Session.Status


class Evidence(StrEnum):
    """What the end of a cycle says about whether its watch can be run at all."""

    WORKED = "worked"
    FAILED = "failed"
    NONE = "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class LastRun:
    """How the last run of a cycle ended."""

    status: str
    has_report: bool = False
    """It left a report that was checked and stored."""
    by_no_fault: bool = False
    """Somebody stopped it, or the account's limit did; or nobody approved it in time."""


FAILED_STATUSES = (Status.FAILED, Status.TIMED_OUT, Status.INTERRUPTED, Status.EXPIRED)


def evidence_of(outcome: str, last: LastRun | None) -> Evidence:
    if outcome in Cycle.GOOD_OUTCOMES:
        return Evidence.WORKED
    if outcome == Outcome.COULD_NOT_RUN or last is None:
        return Evidence.FAILED
    if last.status in Session.GOOD_STATUSES:
        return Evidence.WORKED if last.has_report else Evidence.FAILED
    if last.status in (Status.INTERRUPTED, Status.EXPIRED) and last.by_no_fault:
        return Evidence.NONE
    return Evidence.FAILED if last.status in FAILED_STATUSES else Evidence.NONE


def note_outcome(cycle: Cycle) -> None:
    """Called when a cycle has ended."""
    if cycle.watch_id is None:
        return
    watch = Watch.objects.filter(pk=cycle.watch_id)
    match evidence_of(cycle.outcome, _last_run_of(cycle)):
        case Evidence.WORKED:
            watch.update(failures_in_a_row=0, backed_off_until=None)
        case Evidence.FAILED:
            watch.update(failures_in_a_row=F("failures_in_a_row") + 1)
            watch.update(backed_off_until=back_off_until(watch.get(), timezone.now()))


def back_off_until(watch: Watch, now: datetime) -> datetime | None:
    """Pure: from the N-th failure on, the wait doubles with each further one, up to a day."""
    beyond = watch.failures_in_a_row - settings.CLAUDEOPS_BREAKER_FAILURES
    if beyond < 0:
        return None
    doublings = min(beyond, MOST_DOUBLINGS)
    return _by_cron(watch, doublings, now) if watch.cron else _by_interval(watch, doublings, now)


def _by_interval(watch: Watch, doublings: int, now: datetime) -> datetime | None:
    interval = timedelta(minutes=watch.interval_minutes)
    if interval >= LONGEST_WAIT:
        return None  # its next due time is late enough
    wait: timedelta = min(interval * 2 ** (doublings + 1), LONGEST_WAIT)
    return now + wait


def _by_cron(watch: Watch, doublings: int, now: datetime) -> datetime | None:
    """After 1, 2, 4 … due times that are skipped, within a day; but the next one at the earliest.

    It is always a due time itself: a moment after one would skip that one too.
    """
    due = _due_times(watch.cron, now)
    first = next(due, None)
    later = islice(due, 2**doublings)
    within_a_day = list(takewhile(lambda moment: moment <= now + LONGEST_WAIT, later))
    return within_a_day[-1] if within_a_day else first


def _due_times(cron: str, now: datetime) -> Iterator[datetime]:
    """In local time, as the scheduler reads the expression."""
    times = croniter(cron, timezone.localtime(now))
    # One like the 30th of February is never due.
    with contextlib.suppress(CroniterBadDateError):
        while True:
            yield times.get_next(datetime)


def _last_run_of(cycle: Cycle) -> LastRun | None:
    unanswered = Approval.objects.filter(
        session=OuterRef("pk"), kind=Approval.Kind.TIER, state=Approval.State.EXPIRED
    )
    ended = cycle.sessions.annotate(
        has_report=Q(report__isnull=False), unanswered=Exists(unanswered)
    ).order_by("-pk")
    last = ended.values("status", "has_report", "stop_cause", "unanswered").first()
    if last is None:
        return None
    return LastRun(
        status=last["status"],
        has_report=last["has_report"],
        by_no_fault=last["stop_cause"] in Session.NO_FAULT_OF_THE_WATCH or last["unanswered"],
    )
