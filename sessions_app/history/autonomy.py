"""What a watch's runs wanted lately, and what would have become of it with more or less trust.

From the record alone: commands as the gate judged them, changes that were made, and what the tiers
asked for. `what_if` is pure.
"""

from __future__ import annotations

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
from sessions_app.models.numbers import LARGEST_NUMBER
from sessions_app.models.policy import HIGHEST_TIER, LOWEST_TIER, Policy
from sessions_app.models.trust import Step
from sessions_app.reading.plain_text import as_text, one_line
from sessions_app.reading.stream_shape import mapping
from sessions_app.reading.walls import DENY, GATE

LOOKS_BACK = timedelta(days=7)
LONGEST_RUN = timedelta(days=1)
"""What ended in those days was made at most so long before; rows are numbered as they are made."""
MOST_READ = 300
"""Of each kind, the newest."""
EXAMPLES = 3
LONGEST = 160


class Kind(StrEnum):
    COMMAND = "command"
    TIER = "tier"


class Fate(StrEnum):
    DONE = "done"
    ASKED = "asked"
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """Something that a run wanted, given or not."""

    kind: Kind
    what: str
    tier: int
    """The lowest tier that may do it, or the one that was asked for."""
    given: bool
    at: datetime
    session: int


@dataclass(frozen=True, kw_only=True, slots=True)
class WhatIf:
    """What a step would have changed about a record: newest first."""

    step: Step
    done: tuple[Wish, ...]
    """Refused as it was; done by itself under this step."""
    asked: tuple[Wish, ...]
    """A person would have been asked first."""
    prevented: tuple[Wish, ...]
    """Done as it was; refused under this step."""

    @property
    def makes_a_difference(self) -> bool:
        return bool(self.done or self.asked or self.prevented)

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
    def groups(self) -> tuple[tuple[str, tuple[Wish, ...], tuple[Wish, ...]], ...]:
        """Title, all, and the latest different ones."""
        named = (
            ("Would have been done", self.done),
            ("A person would have been asked first", self.asked),
            ("Would not have been done", self.prevented),
        )
        return tuple((title, wishes, examples(wishes)) for title, wishes in named if wishes)


def fate_of(wish: Wish, policy: Policy) -> Fate:
    if wish.tier > policy.max_tier or (policy.dry_run and wish.tier > LOWEST_TIER):
        return Fate.REFUSED
    return Fate.ASKED if wish.tier in policy.approval_tiers else Fate.DONE


def what_if(wishes: Iterable[Wish], step: Step) -> WhatIf:
    fates = [(wish, fate_of(wish, step.policy)) for wish in wishes]
    return WhatIf(
        step=step,
        done=tuple(wish for wish, fate in fates if fate == Fate.DONE and not wish.given),
        asked=tuple(wish for wish, fate in fates if fate == Fate.ASKED),
        prevented=tuple(wish for wish, fate in fates if fate == Fate.REFUSED and wish.given),
    )


def examples(wishes: Iterable[Wish]) -> tuple[Wish, ...]:
    """The latest of each: the same command in every round is one example."""
    different = {(wish.kind, wish.what): wish for wish in reversed(list(wishes))}
    return tuple(sorted(different.values(), key=lambda wish: wish.at, reverse=True)[:EXAMPLES])


def recorded_wishes(watch: Watch, now: datetime | None = None) -> tuple[Wish, ...]:
    """Of the last days: three queries, newest first."""
    since = (now or timezone.now()) - LOOKS_BACK
    made = Session.objects.filter(created_at__gte=since - LONGEST_RUN).order_by("created_at")
    first = Subquery(made.values("pk")[:1])
    sessions = Session.objects.filter(watch=watch, pk__gte=Coalesce(first, LARGEST_NUMBER))
    return _newest_first(
        _denied(SessionEvent.objects.filter(session__in=sessions, created_at__gte=since)),
        _changed(Change.objects.filter(watch=watch, at__gte=since)),
        _escalations(sessions.filter(finished_at__gte=since)),
    )


def wishes_of(sessions: Iterable[Session]) -> tuple[Wish, ...]:
    """Of these runs alone: three queries, newest first."""
    numbers = [session.pk for session in sessions]
    return _newest_first(
        _denied(SessionEvent.objects.filter(session__in=numbers)),
        _changed(Change.objects.filter(session__in=numbers)),
        _escalations(Session.objects.filter(pk__in=numbers, finished_at__isnull=False)),
    )


def _newest_first(*kinds: Iterable[Wish]) -> tuple[Wish, ...]:
    return tuple(sorted(chain(*kinds), key=lambda wish: wish.at, reverse=True))


def _counted(wishes: tuple[Wish, ...]) -> str:
    words = []
    for kind, name in ((Kind.COMMAND, "command"), (Kind.TIER, "escalation")):
        if count := sum(wish.kind == kind for wish in wishes):
            words.append(f"{count} {name}{'' if count == 1 else 's'}")
    return " and ".join(words)


def _denied(events: QuerySet[SessionEvent]) -> Iterable[Wish]:
    """Commands that a tier in reach of more trust would have run."""
    refused = events.filter(
        source=SessionEvent.Source.SUPERVISOR,
        kind=GATE,
        payload__verdict=DENY,
        payload__allowed_from__gt=0,
    ).order_by("-pk")
    for event in refused.only("session_id", "payload", "created_at")[:MOST_READ]:
        data = mapping(event.payload)
        yield Wish(
            kind=Kind.COMMAND,
            what=one_line(as_text(data.get("command")), LONGEST),
            tier=_tier(data.get("allowed_from")),
            given=False,
            at=event.created_at,
            session=event.session_id,
        )


def _changed(changes: QuerySet[Change]) -> Iterable[Wish]:
    rows = changes.order_by("-pk").values_list("command", "session__tier", "at", "session_id")
    for command, tier, at, session in rows[:MOST_READ]:
        yield Wish(
            kind=Kind.COMMAND,
            what=one_line(command, LONGEST),
            tier=tier,
            given=True,
            at=at,
            session=session,
        )


def _escalations(sessions: QuerySet[Session]) -> Iterable[Wish]:
    asking = sessions.filter(tier__lt=HIGHEST_TIER, report__escalation__needed=True)
    rows = asking.order_by("-pk").values_list(
        "pk", "tier", "status", "finished_at", "report__escalation__reason"
    )
    for number, tier, status, finished_at, reason in rows[:MOST_READ]:
        assert finished_at is not None, "only what has ended is asked for"
        yield Wish(
            kind=Kind.TIER,
            what=one_line(f"Tier {tier + 1}: {as_text(reason) or 'no reason given'}", LONGEST),
            tier=tier + 1,
            given=status == Session.Status.ESCALATED,
            at=finished_at,
            session=number,
        )


def _tier(value: Any) -> int:
    """Out of JSON: whatever is no tier is out of reach."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and value >= LOWEST_TIER else HIGHEST_TIER + 1
