"""What every page says before anything else, all of it in one query: how much wants a person, and
whether something keeps Claude Ops itself from its work."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import CharField, F, QuerySet, Subquery, Value
from django.db.models.functions import Cast, Coalesce
from django.utils import timezone

from sessions_app.models import (
    Approval,
    Incident,
    IncidentEvent,
    PauseSwitch,
    Target,
    WallsProof,
    WorkerBeat,
)
from sessions_app.reading.unresolved_incidents import asks_for_person

INCIDENT, RESOLVED, APPROVAL, STEP = "incident", "resolved", "approval", "step"
PAUSED, WORKER, WALLS, TARGET = "paused", "worker", "walls", "target"
NOTHING = Value("", output_field=CharField())
WHO_PAUSED = Coalesce(F("changed_by__username"), NOTHING)
Row = tuple[str, str, str]
"""What it is of, and up to two things that it says."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attention:
    """Drills are not counted: nobody has to get up for them."""

    problems: int = 0
    """Open problems of the system that nobody has."""
    could_not_run: int = 0
    """Problems of the configuration."""
    approvals: int = 0

    @property
    def incidents(self) -> int:
        return self.problems + self.could_not_run

    @property
    def total(self) -> int:
        return self.incidents + self.approvals

    @property
    def title(self) -> str:
        """Of the browser's tab."""
        return f"({self.total}) Claude Ops" if self.total else "Claude Ops"

    @property
    def sentence(self) -> str:
        if not self.total:
            return "Nothing needs you."
        return f"{self.total} {'thing needs' if self.total == 1 else 'things need'} you."


@dataclass(frozen=True, kw_only=True, slots=True)
class Pause:
    """The switch that stops all new tiers, as the pages speak of it."""

    paused: bool = False
    reason: str = ""
    by: str = ""
    """Who paused it, where a person did."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Glance:
    attention: Attention
    pause: Pause
    worker_is_silent: bool
    walls_hold: bool
    """Tier 2 and 3 wait, because the walls got worse."""
    failing_targets: tuple[str, ...]
    """Names of those whom no word reaches."""
    last_step: int
    """Every change of an incident adds a step to its story, so the last one's number tells."""
    resolved: int
    """Incidents since the time that was asked for."""


def load_glance(resolved_since: datetime | None = None) -> Glance:
    real = Incident.objects.filter(drill="")
    asked = [
        _named(INCIDENT, real.filter(asks_for_person(timezone.now())), F("kind")),
        _named(APPROVAL, answerable_approvals()),
        _named(STEP, _last_step(), Cast("pk", CharField())),
        _named(PAUSED, PauseSwitch.objects.filter(paused=True), F("reason"), WHO_PAUSED),
        _named(WORKER, WorkerBeat.lately_seen()),
        _named(WALLS, WallsProof.all_holding()),
        _named(TARGET, Target.objects.filter(enabled=True, failures_in_a_row__gt=0), F("name")),
    ]
    if resolved_since:
        # By how it ended, which is an index with the time: almost all incidents are over.
        over = Incident.ResolvedBy.values
        lately = real.filter(resolved_as__in=over, resolved_at__gte=resolved_since)
        asked.append(_named(RESOLVED, lately))
    return _glance(asked[0].union(*asked[1:], all=True))


def answerable_approvals() -> QuerySet[Approval]:
    return Approval.objects.filter(
        state=Approval.State.WAITING, expires_at__gt=timezone.now(), session__cycle__drill=""
    )


def _glance(rows: Iterable[Row]) -> Glance:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row[0]].append(row)
    pauses = [Pause(paused=True, reason=reason, by=who) for _, reason, who in found[PAUSED]]
    return Glance(
        attention=Attention(
            problems=sum(kind == Incident.Kind.PROBLEM for _, kind, _ in found[INCIDENT]),
            could_not_run=sum(
                kind == Incident.Kind.COULD_NOT_RUN for _, kind, _ in found[INCIDENT]
            ),
            approvals=len(found[APPROVAL]),
        ),
        pause=next(iter(pauses), Pause()),
        worker_is_silent=not found[WORKER],
        walls_hold=bool(found[WALLS]),
        failing_targets=tuple(sorted(name for _, name, _ in found[TARGET])),
        last_step=max((int(number) for _, number, _ in found[STEP]), default=0),
        resolved=len(found[RESOLVED]),
    )


def _named(
    what: str, rows: QuerySet[Any], text: Any = NOTHING, who: Any = NOTHING
) -> QuerySet[Any, Row]:
    """As rows of one shape, so that all can be read together."""
    shape = {"what": Value(what, output_field=CharField()), "said": text, "who": who}
    shaped: QuerySet[Any, Row] = rows.order_by().annotate(**shape).values_list(*shape)
    return shaped


def _last_step() -> QuerySet[IncidentEvent]:
    newest = IncidentEvent.objects.order_by("-pk").values("pk")[:1]
    return IncidentEvent.objects.filter(pk=Subquery(newest))
