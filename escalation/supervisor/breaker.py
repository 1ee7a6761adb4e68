"""Circuit breaker for watches that keep failing, and the rate limit of the account.

A cycle has worked if its last session ended with a valid report, also one that asks for a person.
It has failed if that session failed, timed out or was interrupted. A session that a person or the
rate limit stopped counts as neither.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from croniter import CroniterBadDateError, croniter
from django.conf import settings
from django.db.models import Exists, F, OuterRef, Q
from django.utils import timezone

from escalation.queue import installation_lock, start_waiting
from escalation.supervisor.decision import Ending
from sessions_app.models import Approval, Cycle, RateLimit, Session, Watch
from sessions_app.redaction.redact import redacted

if TYPE_CHECKING:
    from django.contrib.auth.models import User


LONGEST_WAIT = timedelta(hours=24)
# More than a day of due times, for a watch that runs every minute.
MOST_DOUBLINGS = 11

Outcome, Status = Cycle.Outcome, Session.Status


class CycleEvidence(StrEnum):
    """Evidence of a cycle that its watch can run."""

    WORKED = "worked"
    FAILED = "failed"
    NONE = "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class LastRun:
    """End of the last session of a cycle."""

    status: str
    has_report: bool = False
    """It left a valid report."""
    by_no_fault: bool = False
    """A person or the rate limit stopped it, or its approval expired."""


FAILED_STATUSES = (Status.FAILED, Status.TIMED_OUT, Status.INTERRUPTED, Status.EXPIRED)


def evidence_of(outcome: str, last: LastRun | None) -> CycleEvidence:
    if outcome in Cycle.GOOD_OUTCOMES:
        return CycleEvidence.WORKED
    if outcome == Outcome.COULD_NOT_RUN or last is None:
        return CycleEvidence.FAILED
    if last.status in Session.GOOD_STATUSES:
        return CycleEvidence.WORKED if last.has_report else CycleEvidence.FAILED
    if last.status in (Status.INTERRUPTED, Status.EXPIRED) and last.by_no_fault:
        return CycleEvidence.NONE
    return CycleEvidence.FAILED if last.status in FAILED_STATUSES else CycleEvidence.NONE


def note_outcome(cycle: Cycle) -> None:
    """Updates the failures and the back-off of the watch after a cycle."""
    if cycle.watch_id is None:
        return
    watch = Watch.objects.filter(pk=cycle.watch_id)
    match evidence_of(cycle.outcome, _last_run_of(cycle)):
        case CycleEvidence.WORKED:
            watch.update(failures_in_a_row=0, backed_off_until=None)
        case CycleEvidence.FAILED:
            watch.update(failures_in_a_row=F("failures_in_a_row") + 1)
            watch.update(backed_off_until=back_off_until(watch.get(), timezone.now()))


def back_off_until(watch: Watch, now: datetime) -> datetime | None:
    """Returns the end of the back-off. From the N-th failure on, it doubles up to a day."""
    beyond = watch.failures_in_a_row - settings.CLAUDEOPS_BREAKER_FAILURES
    if beyond < 0:
        return None
    doublings = min(beyond, MOST_DOUBLINGS)
    return _by_cron(watch, doublings, now) if watch.cron else _by_interval(watch, doublings, now)


def _by_interval(watch: Watch, doublings: int, now: datetime) -> datetime | None:
    interval = timedelta(minutes=watch.interval_minutes)
    if interval >= LONGEST_WAIT:
        return None  # its interval is long enough
    wait: timedelta = min(interval * 2 ** (doublings + 1), LONGEST_WAIT)
    return now + wait


def _by_cron(watch: Watch, doublings: int, now: datetime) -> datetime | None:
    """Skips 1, 2, 4 … due times, at most a day. The result is a due time itself."""
    due = _due_times(watch.cron, now)
    first = next(due, None)
    later = islice(due, 2**doublings)
    within_a_day = list(takewhile(lambda moment: moment <= now + LONGEST_WAIT, later))
    return within_a_day[-1] if within_a_day else first


def _due_times(cron: str, now: datetime) -> Iterator[datetime]:
    """Yields due times in local time, as the scheduler does."""
    times = croniter(cron, timezone.localtime(now))
    # A date such as February 30 is never due.
    with contextlib.suppress(CroniterBadDateError):
        while True:
            yield times.get_next(datetime)


def _last_run_of(cycle: Cycle) -> LastRun | None:
    unanswered = Approval.objects.filter(
        session=OuterRef("pk"), kind=Approval.Kind.TIER, state=Approval.State.EXPIRED
    )
    ended = (
        cycle.sessions.evidence()
        .annotate(has_report=Q(report__isnull=False), unanswered=Exists(unanswered))
        .order_by("-pk")
    )
    last = ended.values("status", "has_report", "stop_cause", "unanswered").first()
    if last is None:
        return None
    return LastRun(
        status=last["status"],
        has_report=last["has_report"],
        by_no_fault=last["stop_cause"] in Session.NO_FAULT_OF_THE_WATCH or last["unanswered"],
    )


LIFTED = "The rate limit was lifted. Sessions started: {count}."


def note_ending(ending: Ending) -> None:
    """Stores the rate limit that a session met, in the transaction that ends it."""
    if ending.rate_limit is None and not ending.windows and not ending.answered:
        return
    stored = RateLimit.current()
    facts = _rate_limit_facts(stored, ending)
    if any(getattr(stored, field) != value for field, value in facts.items()):
        _store(**facts)


def lift(*, by: User | None = None) -> int:
    """Lifts the rate limit. Returns how many waiting sessions got a task."""
    with installation_lock():
        _store(until=None, kind="", words="", times_in_a_row=0, lifted_by=by)
        return start_waiting()


def _rate_limit_facts(stored: RateLimit, ending: Ending) -> dict[str, object]:
    windows = {
        window.name: {"share": window.share, "resets_at": window.resets_at.timestamp()}
        for window in ending.windows
    }
    facts: dict[str, object] = {"windows": {**stored.windows, **windows}}
    limit = ending.rate_limit
    if limit is None:
        # The API answers again. While the limit holds, this session had started before it.
        return facts if stored.is_holding else {**facts, "times_in_a_row": 0}
    is_later = stored.until is None or limit.until > stored.until
    said = {"until": limit.until, "kind": limit.kind, "words": redacted(limit.words)}
    moved = said if is_later else {}
    return {**facts, **moved, "times_in_a_row": stored.times_in_a_row + 1, "lifted_by": None}


def _store(**facts: object) -> None:
    RateLimit.objects.update_or_create(
        pk=RateLimit.THE_ONE, defaults={**facts, "changed_at": timezone.now()}
    )
