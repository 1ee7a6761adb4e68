"""Which remedies of a watch are used up for now, and until when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from escalation.policy.change_record import counting
from escalation.policy.cooldowns import DONE, Done, Limits, left, limits_of, used
from escalation.policy.effects import EVERYTHING
from sessions_app.models import Cycle, Watch


@dataclass(frozen=True, kw_only=True, slots=True)
class CooldownRow:
    service: str
    done: str
    """restarted or redeployed"""
    times: int
    allowed: int
    hours: int
    is_reached: bool
    until: datetime
    """When the oldest of them counts no more."""


def cooldowns_now(watch: Watch) -> tuple[CooldownRow, ...]:
    """Every remedy that counts, those that are used up first: one query."""
    now, limits = timezone.now(), limits_of(watch)
    return rows_of(counting(Cycle(watch=watch), limits, now), limits, now)


def rows_of(record: list[Done], limits: Limits, now: datetime) -> tuple[CooldownRow, ...]:
    remedies = {(done.kind, done.service) for done in record if _counts(done, limits, now)}
    rows = (_row(kind, service, record, limits, now) for kind, service in remedies)
    return tuple(sorted(rows, key=lambda row: (not row.is_reached, row.service, row.done)))


def _counts(done: Done, limits: Limits, now: datetime) -> bool:
    return done.kind in limits and done.at > now - timedelta(hours=limits[done.kind].hours)


def _row(kind: str, service: str, record: list[Done], limits: Limits, now: datetime) -> CooldownRow:
    limit = limits[kind]
    oldest = min(
        done.at
        for done in record
        if done.kind == kind
        and done.service in {service, EVERYTHING}
        and _counts(done, limits, now)
    )
    return CooldownRow(
        service="everything" if service == EVERYTHING else service,
        done=DONE[kind],
        times=used(kind, service, record, limits, now),
        allowed=limit.allowed,
        hours=limit.hours,
        is_reached=not left(kind, service, record, limits, now),
        until=oldest + timedelta(hours=limit.hours),
    )
