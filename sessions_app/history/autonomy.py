"""Recent requests of a watch, and their result under another autonomy level.

They are read from recorded commands, changes and escalations. `what_if` is a pure function.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import chain
from typing import Any

from django.db.models import QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.utils import timezone

from sessions_app.models import Change, Session, SessionEvent, Watch
from sessions_app.models.autonomy import AutonomyLevel, Policy
from sessions_app.models.search import LARGEST_NUMBER
from sessions_app.models.session import EventKind, SessionQuerySet, Verdict
from sessions_app.text import as_text, mapping, one_line
from sessions_app.tiers import LOWEST_TIER, highest_tier

LOOKS_BACK = timedelta(days=7)
LONGEST_RUN = timedelta(days=1)
"""Longest time from the creation of a session to its end; ids are in order of creation."""
MOST_READ = 300
"""Number of the newest rows of each kind that are read."""
EXAMPLES = 3
LONGEST = 160


class PermissionKind(StrEnum):
    COMMAND = "command"
    TIER = "tier"


class Fate(StrEnum):
    DONE = "done"
    ASKED = "asked"
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestedPermission:
    """Command or escalation that a session requested."""

    kind: PermissionKind
    what: str
    tier: int
    """Lowest tier that may do it, or the requested tier."""
    given: bool
    at: datetime
    session: int


@dataclass(frozen=True, kw_only=True, slots=True)
class WhatIf:
    """Effect that another level would have had on a record, newest first."""

    step: AutonomyLevel
    done: tuple[RequestedPermission, ...]
    """Refused as it was; done by itself under this step."""
    asked: tuple[RequestedPermission, ...]
    """A person would have been asked first."""
    prevented: tuple[RequestedPermission, ...]
    """Done as it was; refused under this step."""

    @property
    def sentence(self) -> str:
        parts = [
            f"{did} {_counted(wishes)}"
            for did, wishes in (
                ("let through", self.done),
                ("asked a person about", self.asked),
                ("refused", self.prevented),
            )
            if wishes
        ]
        return f"In the last 7 days it would have {'; '.join(parts) or 'changed nothing'}."

    @property
    def groups(
        self,
    ) -> tuple[tuple[str, tuple[RequestedPermission, ...], tuple[RequestedPermission, ...]], ...]:
        """Title, all requests, and the latest distinct ones."""
        named = (
            ("Would have been done", self.done),
            ("A person would have been asked first", self.asked),
            ("Would not have been done", self.prevented),
        )
        return tuple((title, wishes, examples(wishes)) for title, wishes in named if wishes)


def fate_of(wish: RequestedPermission, policy: Policy) -> Fate:
    if wish.tier > policy.max_tier or (policy.dry_run and wish.tier > LOWEST_TIER):
        return Fate.REFUSED
    return Fate.ASKED if wish.tier in policy.approval_tiers else Fate.DONE


def what_if(wishes: Iterable[RequestedPermission], step: AutonomyLevel) -> WhatIf:
    fates = [(wish, fate_of(wish, step.policy)) for wish in wishes]
    return WhatIf(
        step=step,
        done=tuple(wish for wish, fate in fates if fate == Fate.DONE and not wish.given),
        asked=tuple(wish for wish, fate in fates if fate == Fate.ASKED),
        prevented=tuple(wish for wish, fate in fates if fate == Fate.REFUSED and wish.given),
    )


def examples(wishes: Iterable[RequestedPermission]) -> tuple[RequestedPermission, ...]:
    """Return the latest distinct requests."""
    different = {(wish.kind, wish.what): wish for wish in reversed(list(wishes))}
    return tuple(sorted(different.values(), key=lambda wish: wish.at, reverse=True)[:EXAMPLES])


def recorded_wishes(watch: Watch, now: datetime | None = None) -> tuple[RequestedPermission, ...]:
    """Return the requests of the last days, newest first, with three queries."""
    since = (now or timezone.now()) - LOOKS_BACK
    made = Session.objects.filter(created_at__gte=since - LONGEST_RUN).order_by("created_at")
    first = Subquery(made.values("pk")[:1])
    sessions = Session.objects.filter(watch=watch, pk__gte=Coalesce(first, LARGEST_NUMBER))
    return _newest_first(
        _denied(SessionEvent.objects.filter(session__in=sessions, created_at__gte=since)),
        _changed(Change.objects.filter(watch=watch, at__gte=since)),
        _escalations(sessions.filter(finished_at__gte=since)),
    )


def wishes_of(sessions: Iterable[Session]) -> tuple[RequestedPermission, ...]:
    """Return the requests of these sessions, newest first, with three queries."""
    numbers = [session.pk for session in sessions]
    return _newest_first(
        _denied(SessionEvent.objects.filter(session__in=numbers)),
        _changed(Change.objects.filter(session__in=numbers)),
        _escalations(Session.objects.filter(pk__in=numbers, finished_at__isnull=False)),
    )


def _newest_first(*kinds: Iterable[RequestedPermission]) -> tuple[RequestedPermission, ...]:
    return tuple(sorted(chain(*kinds), key=lambda wish: wish.at, reverse=True))


def _counted(wishes: tuple[RequestedPermission, ...]) -> str:
    words = []
    for kind, name in ((PermissionKind.COMMAND, "command"), (PermissionKind.TIER, "escalation")):
        if count := sum(wish.kind == kind for wish in wishes):
            words.append(f"{count} {name}{'' if count == 1 else 's'}")
    return " and ".join(words)


def _denied(events: QuerySet[SessionEvent]) -> Iterable[RequestedPermission]:
    """Yield denied commands that a higher tier may run."""
    refused = events.filter(
        source=SessionEvent.Source.SUPERVISOR,
        kind=EventKind.COMMAND,
        payload__verdict=Verdict.DENY,
        payload__allowed_from__gt=0,
    ).order_by("-pk")
    for event in refused.only("session_id", "payload", "created_at")[:MOST_READ]:
        data = mapping(event.payload)
        yield RequestedPermission(
            kind=PermissionKind.COMMAND,
            what=one_line(as_text(data.get("command")), LONGEST),
            tier=_tier(data.get("allowed_from")),
            given=False,
            at=event.created_at,
            session=event.session_id,
        )


def _changed(changes: QuerySet[Change]) -> Iterable[RequestedPermission]:
    rows = changes.order_by("-pk").values_list("command", "session__tier", "at", "session_id")
    for command, tier, at, session in rows[:MOST_READ]:
        yield RequestedPermission(
            kind=PermissionKind.COMMAND,
            what=one_line(command, LONGEST),
            tier=tier,
            given=True,
            at=at,
            session=session,
        )


def _escalations(sessions: SessionQuerySet) -> Iterable[RequestedPermission]:
    asking = sessions.evidence().filter(tier__lt=highest_tier(), report__escalation__needed=True)
    rows = asking.order_by("-pk").values_list(
        "pk", "tier", "status", "finished_at", "report__escalation__reason"
    )
    for number, tier, status, finished_at, reason in rows[:MOST_READ]:
        assert finished_at is not None, "the query selects ended sessions"
        yield RequestedPermission(
            kind=PermissionKind.TIER,
            what=one_line(f"Tier {tier + 1}: {as_text(reason) or 'no reason given'}", LONGEST),
            tier=tier + 1,
            given=status == Session.Status.ESCALATED,
            at=finished_at,
            session=number,
        )


def _tier(value: Any) -> int:
    """Return a tier from JSON; other values are above every tier."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and value >= LOWEST_TIER else sys.maxsize
