"""Status in the header of every page, read with one query.

It counts what needs a person, and tells if Claude Ops is paused, without a worker, or blocked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import CharField, F, QuerySet, Subquery, Value
from django.db.models.functions import Cast, Coalesce

from sessions_app.models import (
    Approval,
    Channel,
    Incident,
    IncidentEvent,
    PauseSwitch,
    SandboxProof,
    WorkerHeartbeat,
)

INCIDENT, RESOLVED, APPROVAL, STEP = "incident", "resolved", "approval", "step"
PAUSED, WORKER, SANDBOX, CHANNEL = "paused", "worker", "sandbox", "channel"
NOTHING = Value("", output_field=CharField())
WHO_PAUSED = Coalesce(F("changed_by__username"), NOTHING)
Row = tuple[str, str, str]
"""Kind of the row, and up to two texts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attention:
    """Numbers of incidents and approvals that need a person, without drills."""

    problems: int = 0
    """Unowned problems of watched systems."""
    could_not_run: int = 0
    """Unowned problems of the configuration."""
    approvals: int = 0

    @property
    def incidents(self) -> int:
        return self.problems + self.could_not_run

    @property
    def total(self) -> int:
        return self.incidents + self.approvals

    @property
    def title(self) -> str:
        """Title of the browser tab."""
        return f"({self.total}) Claude Ops" if self.total else "Claude Ops"

    @property
    def sentence(self) -> str:
        if not self.total:
            return "Nothing needs you."
        return f"{self.total} {'thing needs' if self.total == 1 else 'things need'} you."


@dataclass(frozen=True, kw_only=True, slots=True)
class Pause:
    """State of the pause switch."""

    paused: bool = False
    reason: str = ""
    by: str = ""
    """Person who paused Claude Ops, if any."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeaderStatus:
    attention: Attention
    pause: Pause
    worker_is_silent: bool
    sandbox_holds: bool
    """Tiers above Tier 1 wait, because the sandbox proof got worse."""
    failing_channels: tuple[str, ...]
    """Names of channels whose last message failed."""
    last_step: int
    """Id of the last `IncidentEvent`, which shows that an incident changed."""
    resolved: int
    """Incidents that were resolved since the given time."""


def load_header_status(resolved_since: datetime | None = None) -> HeaderStatus:
    asked = [
        _named(INCIDENT, Incident.objects.waiting_for_person(), F("kind")),
        _named(APPROVAL, Approval.objects.answerable()),
        _named(STEP, _last_step(), Cast("pk", CharField())),
        _named(PAUSED, PauseSwitch.objects.filter(paused=True), F("reason"), WHO_PAUSED),
        _named(WORKER, WorkerHeartbeat.lately_seen()),
        _named(SANDBOX, SandboxProof.all_holding()),
        _named(CHANNEL, Channel.objects.filter(enabled=True, failures_in_a_row__gt=0), F("name")),
    ]
    if resolved_since:
        # `resolved_as` is part of the index.
        over = Incident.ResolvedBy.values
        lately = Incident.objects.filter(
            drill="", resolved_as__in=over, resolved_at__gte=resolved_since
        )
        asked.append(_named(RESOLVED, lately))
    return _header_status(asked[0].union(*asked[1:], all=True))


def _header_status(rows: Iterable[Row]) -> HeaderStatus:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row[0]].append(row)
    pauses = [Pause(paused=True, reason=reason, by=who) for _, reason, who in found[PAUSED]]
    return HeaderStatus(
        attention=Attention(
            problems=sum(kind == Incident.Kind.PROBLEM for _, kind, _ in found[INCIDENT]),
            could_not_run=sum(
                kind == Incident.Kind.COULD_NOT_RUN for _, kind, _ in found[INCIDENT]
            ),
            approvals=len(found[APPROVAL]),
        ),
        pause=next(iter(pauses), Pause()),
        worker_is_silent=not found[WORKER],
        sandbox_holds=bool(found[SANDBOX]),
        failing_channels=tuple(sorted(name for _, name, _ in found[CHANNEL])),
        last_step=max((int(number) for _, number, _ in found[STEP]), default=0),
        resolved=len(found[RESOLVED]),
    )


def _named(
    what: str, rows: QuerySet[Any], text: Any = NOTHING, who: Any = NOTHING
) -> QuerySet[Any, Row]:
    """Return rows with the same columns, for a union."""
    shape = {"what": Value(what, output_field=CharField()), "said": text, "who": who}
    shaped: QuerySet[Any, Row] = rows.order_by().annotate(**shape).values_list(*shape)
    return shaped


def _last_step() -> QuerySet[IncidentEvent]:
    newest = IncidentEvent.objects.order_by("-pk").values("pk")[:1]
    return IncidentEvent.objects.filter(pk=Subquery(newest))
