"""How this installation stands, for one screen: what runs, what needs a person, what is next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.conf import settings
from django.db.models import Sum
from django.utils import timezone

from escalation.agent import NO_CREDENTIALS, credentials_configured
from escalation.host.health import readiness
from escalation.management.address import address_of
from sessions_app.models import (
    AccountClock,
    Approval,
    PauseSwitch,
    PeriodCost,
    Session,
    WallsProof,
    Watch,
)
from sessions_app.reading.unresolved_incidents import unresolved_incidents

NEXT_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Need:
    """Something that waits for a person."""

    kind: str
    what: str
    why: str
    address: str


@dataclass(frozen=True, slots=True)
class Status:
    version: str
    running: tuple[Session, ...]
    queued: int
    held_back: str
    """Why no new tier starts, or nothing."""
    needs: tuple[Need, ...]
    next_runs: tuple[tuple[Watch, datetime], ...]
    cost_today_usd: Decimal
    runs_today: int


def status_now() -> Status:
    open_sessions = Session.objects.filter(status=Session.Status.RUNNING)
    today = PeriodCost.objects.real().days_since(timezone.localdate())
    cost, runs = Sum("cost_usd", default=Decimal(0)), Sum("runs", default=0)
    spent = today.aggregate(cost=cost, runs=runs)
    return Status(
        version=settings.CLAUDEOPS_VERSION,
        running=tuple(open_sessions.select_related("cycle__watch").order_by("pk")),
        queued=Session.objects.filter(status=Session.Status.QUEUED).count(),
        held_back=_held_back(),
        needs=tuple(_needs()),
        next_runs=tuple(_next_runs()),
        cost_today_usd=spent["cost"],
        runs_today=spent["runs"],
    )


def _held_back() -> str:
    switch = PauseSwitch.current()
    if switch.paused:
        return f"paused: {switch.reason}"
    clock = AccountClock.holding()
    return clock.sentence if clock else ""


def _needs() -> Iterator[Need]:
    for check in readiness():
        if not check.ok:
            yield Need("installation", check.name, check.said, address_of())
    if Watch.objects.exists() and not credentials_configured():
        yield Need("installation", "API key", NO_CREDENTIALS, address_of())
    if proof := WallsProof.holding():
        yield Need("walls", "the walls got worse", str(proof), address_of("/walls/"))
    waiting = Approval.objects.filter(state=Approval.State.WAITING).select_related("session")
    for approval in waiting:
        address = address_of(approval.get_absolute_url())
        yield Need("approval", str(approval), approval.why, address)
    yield from _troubles()


def _troubles() -> Iterator[Need]:
    for incident in unresolved_incidents().filter(drill=""):
        if not incident.is_snoozed:
            address = address_of(incident.get_absolute_url())
            yield Need("incident", incident.subject, incident.title, address)


def _next_runs() -> list[tuple[Watch, datetime]]:
    watches = Watch.objects.filter(enabled=True).select_related("schedule")
    due = [(watch, watch.next_run) for watch in watches]
    known = [(watch, at) for watch, at in due if at is not None]
    return sorted(known, key=lambda pair: pair[1])[:NEXT_SHOWN]
