"""An incident in words: what it wants from a person, and for how long it may be put off."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils import timezone

from sessions_app.models import Incident
from sessions_app.models.account_clock import moment_text
from sessions_app.reading.plain_text import one_line

LONGEST_NOTE = 5_000
ADVICE_LENGTH = 300
MORNING = 8
SNOOZES = {
    "1h": "1 hour",
    "8h": "8 hours",
    "tomorrow": f"until tomorrow {MORNING}:00",
    "3d": "3 days",
}
PERIODS = {"1h": timedelta(hours=1), "8h": timedelta(hours=8), "3d": timedelta(days=3)}
State, Kind = Incident.State, Incident.Kind


def snooze_until(name: str, now: datetime) -> datetime | None:
    """None for a name that is none of the above. Tomorrow begins at midnight here, not in UTC."""
    if name != "tomorrow":
        return now + PERIODS[name] if name in PERIODS else None
    here = timezone.localtime(now)
    morning = datetime.combine(here.date() + timedelta(days=1), datetime.min.time())
    return timezone.make_aware(morning.replace(hour=MORNING), here.tzinfo)


def wish_of(incident: Incident) -> str:
    """One line: what it wants from you."""
    if incident.state == State.RESOLVED:
        return f"Nothing: {incident.get_resolved_as_display()}."
    if incident.is_snoozed:
        return f"Nothing until {moment_text(incident.snoozed_until)}: it is snoozed."
    if incident.state == State.WORKING:
        return "Nothing yet: a chain is at work on it."
    if incident.state == State.VERIFYING:
        return _verifying(incident)
    if incident.seems_recovered:
        return "Nothing, if you agree: the last round found it healthy, and one more resolves it."
    if incident.state == State.ACKNOWLEDGED and incident.has_woken:
        return f"Look at it again: it was snoozed until {moment_text(incident.snoozed_until)}."
    if incident.state == State.ACKNOWLEDGED and incident.owner is not None:
        name = incident.owner.get_username()
        if incident.owner_is_gone:
            return f"Take it: {name} had it, and that account is switched off."
        return f"{name} has it."
    return _asking(incident)


def _verifying(incident: Incident) -> str:
    watch = incident.watch
    if incident.verify_at is None:
        return "Nothing yet: a fresh round is looking whether the fix holds."
    if watch is not None and not watch.enabled:
        return "Unpause the watch or run it: the round that looks whether the fix holds waits."
    when = moment_text(incident.verify_at)
    return f"Nothing yet: a fresh round looks whether the fix holds, at {when}."


def _asking(incident: Incident) -> str:
    if incident.kind == Kind.COULD_NOT_RUN:
        why = f": {one_line(incident.detail, ADVICE_LENGTH)}" if incident.detail else "."
        return f"Mend the configuration{why}{backing_off(incident)}"
    if incident.watch is None and not incident.drill:
        return "Resolve it: the watch is gone, so no round will look at it again."
    if incident.times_reopened and incident.remedy:
        return f"Look at it yourself: this did not hold: {incident.remedy}"
    if incident.verifications_tried:
        return "Look whether the fix holds: no round could say."
    return f"Look at it: nobody has it yet.{backing_off(incident)}"


def backing_off(incident: Incident) -> str:
    """The breaker, where it holds the watch back."""
    watch = incident.watch
    if watch is None or not watch.is_backed_off:
        return ""
    return (
        f" It failed {watch.failures_in_a_row} times in a row, so its schedule is skipped until "
        f"{moment_text(watch.backed_off_until)}."
    )
