"""Whether the page of a watch would look different by now: a token, from a few short reads."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery
from django.utils import timezone

from sessions_app.models import Approval, Change, Cycle, Session, Watch
from sessions_app.reading.glance import Glance

LAST_ROUNDS = 3
"""Those before have ended, and stay as they are."""
NEWS = ("newest_change", "newest_session", "newest_status")


def watches_with_news() -> QuerySet[Watch, Any]:
    """Each with what came last to it."""
    changes = Change.objects.filter(watch=OuterRef("pk")).order_by("-id")
    sessions = Session.objects.filter(watch=OuterRef("pk")).order_by("-id")
    return Watch.objects.select_related("schedule").annotate(
        newest_change=Subquery(changes.values("pk")[:1]),
        newest_session=Subquery(sessions.values("pk")[:1]),
        newest_status=Subquery(sessions.values("status")[:1]),
    )


def waiting_approvals_of(watch: Watch) -> QuerySet[Approval]:
    return Approval.objects.filter(state=Approval.State.WAITING, session__watch=watch)


def current_token(watch: Watch, glance: Glance) -> str:
    """That of the page as it would be now, without loading one: two queries."""
    latest = watch.cycles.order_by("-id").only("watch", "state", "outcome")[:LAST_ROUNDS]
    approvals = waiting_approvals_of(watch).values_list("pk", flat=True)
    return token_of(watch, glance, list(latest)[::-1], approvals)


def token_of(
    watch: Watch, glance: Glance, rounds: Sequence[Cycle], approvals: Iterable[int]
) -> str:
    """The minute is part of it because the page says "3 min ago"."""
    facts = (
        timezone.localtime().strftime("%Y-%m-%d %H:%M"),
        [getattr(watch, field.attname) for field in Watch._meta.fields],
        [getattr(watch, name) for name in NEWS],
        watch.schedule and watch.schedule.next_run,
        (glance.attention, glance.last_step),
        [(cycle.pk, cycle.state, cycle.outcome) for cycle in rounds[-LAST_ROUNDS:]],
        sorted(approvals),
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
