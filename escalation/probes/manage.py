"""Adds, mutes and removes probes, and starts and ends maintenance, for terminal and pages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from escalation.errors import OperationRefused, RefusalCode
from escalation.probes.targets import BadTarget, check_target, checked_options
from sessions_app.models import Maintenance, Probe, Watch

if TYPE_CHECKING:
    from django.contrib.auth.models import User

DURATION = re.compile(r"([0-9]{1,6})\s*(s|m|h|d)?")
UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
LONGEST_MUTE = timedelta(days=365)


def seconds_in(text: str) -> int:
    """Reads `90`, `60s`, `5m`, `2h` or `1d`. Raises OperationRefused."""
    found = DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise OperationRefused(
            RefusalCode.INVALID_CHOICE, f"{text!r} is not a time: write it like 60s, 5m, 2h or 1d."
        )
    return int(found[1]) * UNITS[found[2] or "s"]


def add(
    watch: Watch,
    *,
    needs: Sequence[str] = (),
    options: Mapping[str, object] | None = None,
    **fields: Any,
) -> Probe:
    """Adds a probe to a watch. Raises OperationRefused with everything that is wrong."""
    return change(Probe(watch=watch), needs=needs, options=options, **fields)


def change(
    probe: Probe,
    *,
    needs: Sequence[str] = (),
    options: Mapping[str, object] | None = None,
    **fields: Any,
) -> Probe:
    """Gives a probe all of its settings, and stores it. Its state and history stay.

    Raises OperationRefused with everything that is wrong.
    """
    for name, value in fields.items():
        setattr(probe, name, value)
    try:
        check_target(probe.kind, probe.target)
        probe.options = checked_options(probe.kind, options or {})
        probe.full_clean(exclude=["token"])
    except BadTarget as bad:
        raise OperationRefused(RefusalCode.INVALID_CHOICE, str(bad)) from bad
    except ValidationError as bad:
        raise OperationRefused(RefusalCode.INVALID_CHOICE, " ".join(bad.messages)) from bad
    parents = [_named(probe.watch, name) for name in needs]
    try:
        with transaction.atomic():
            probe.save()
            probe.needs.set(parents)
    except IntegrityError as error:
        raise OperationRefused(
            RefusalCode.INVALID_CHOICE, f"{probe.watch.name} has a probe {probe.name} already."
        ) from error
    return probe


def _named(watch: Watch, name: str) -> Probe:
    probe = Probe.objects.filter(watch=watch, name=name).first()
    if probe is None:
        known = ", ".join(Probe.objects.filter(watch=watch).values_list("name", flat=True))
        raise OperationRefused(
            RefusalCode.NOT_FOUND, f"{watch.name} has no probe {name}; it has: {known or 'none'}."
        )
    return probe


def heartbeat_address(probe: Probe) -> str:
    """Returns the address that the job calls: that of alerts, which serves heartbeats too."""
    return f"{settings.CLAUDEOPS_INGRESS_URL.rstrip('/')}/heartbeat/{probe.token}"


def mute(probe: Probe, seconds: int) -> Probe:
    """Lets failures start nothing for a time; 0 ends a mute."""
    if timedelta(seconds=seconds) > LONGEST_MUTE:
        raise OperationRefused(
            RefusalCode.INVALID_CHOICE, f"Mute it for at most {LONGEST_MUTE.days} days."
        )
    probe.muted_until = timezone.now() + timedelta(seconds=seconds) if seconds else None
    probe.save(update_fields=["muted_until", "changed_at"])
    return probe


def ask_for_run(probe: Probe) -> None:
    """Asks the worker to run a probe within seconds."""
    Probe.objects.filter(pk=probe.pk).update(run_asked_at=timezone.now())


def remove(probe: Probe) -> None:
    probe.delete()


def start_maintenance(
    watch: Watch,
    *,
    service: str = "",
    seconds: int | None = None,
    is_weekly: bool = False,
    reason: str = "",
    by: User | None = None,
    starts_at: datetime | None = None,
) -> Maintenance:
    """Starts maintenance now or at a time; without a duration it holds until it is ended."""
    start = starts_at or timezone.now()
    window = Maintenance(
        watch=watch,
        service=service.strip(),
        starts_at=start,
        ends_at=start + timedelta(seconds=seconds) if seconds is not None else None,
        is_weekly=is_weekly,
        reason=reason.strip()[:200],
        started_by=by,
    )
    try:
        window.full_clean()
    except ValidationError as bad:
        raise OperationRefused(RefusalCode.INVALID_CHOICE, " ".join(bad.messages)) from bad
    window.save()
    return window


def moment_in(text: str) -> datetime | None:
    """Reads `2026-11-22 03:00` on the clock of the installation; nothing if there is no text.

    Raises OperationRefused for another text and for a time that is over.
    """
    if not text.strip():
        return None
    try:
        found = parse_datetime(text.strip())
        at = timezone.make_aware(found) if found and timezone.is_naive(found) else found
    except (ValueError, OverflowError):
        at = None
    if at is None:
        raise OperationRefused(
            RefusalCode.INVALID_CHOICE, f"{text!r} is not a time: write it like 2026-11-22 03:00."
        )
    if at < timezone.now() - timedelta(minutes=1):
        raise OperationRefused(
            RefusalCode.INVALID_CHOICE, f"{text} is over: name the next time that it begins."
        )
    return at


def cancel_maintenance(watch: Watch, number: int) -> Maintenance:
    """Removes one window of a watch, also a planned one. Raises OperationRefused."""
    window = Maintenance.objects.filter(watch=watch, pk=number).first()
    if window is None:
        raise OperationRefused(
            RefusalCode.NOT_FOUND, f"{watch.name} has no maintenance window {number}."
        )
    window.delete()
    window.pk = number
    return window


def end_maintenance(watch: Watch) -> list[Maintenance]:
    """Ends all maintenance of a watch that holds now. A weekly window comes back next week no more.

    Raises OperationRefused if there is none.
    """
    holding = [window for window in Maintenance.windows_of(watch) if window.holds_now]
    if not holding:
        raise OperationRefused(RefusalCode.NOT_FOUND, f"{watch.name} is not in maintenance.")
    for window in holding:
        window.is_weekly, window.ends_at = False, timezone.now()
        window.save(update_fields=["is_weekly", "ends_at"])
    return holding
