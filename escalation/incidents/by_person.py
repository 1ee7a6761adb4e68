"""What a person does with an incident. Each leaves a step in its story with their name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from escalation.errors import OperationRefused
from escalation.incidents import standing
from escalation.incidents.rows import Page, standing_of
from escalation.incidents.standing import Change, Kept, Standing
from escalation.queue.one_at_a_time import one_at_a_time
from sessions_app.models import Incident
from sessions_app.models.account_clock import moment_text
from sessions_app.reading.incident_text import LONGEST_NOTE
from sessions_app.reading.masking import masked

if TYPE_CHECKING:
    from django.contrib.auth.models import User

Act = Callable[[Standing, datetime], Change]


def acknowledge(incident: Incident, *, by: User | None = None) -> Incident:
    return _acted(incident, by, lambda now, at: standing.acknowledged(now, _key(by), at))


def snooze(incident: Incident, until: datetime, *, by: User | None = None) -> Incident:
    words = f"until {moment_text(until)}"
    return _acted(incident, by, lambda now, at: standing.snoozed(now, _key(by), until, at), words)


def hand_over(incident: Incident, to: User | None, *, by: User | None = None) -> Incident:
    """To nobody: it is let go."""
    words = f"{to.get_username()} has it." if to else "Nobody has it."
    return _acted(incident, by, lambda now, at: standing.handed_over(now, _key(to), at), words)


def note(incident: Incident, text: str, *, by: User | None = None) -> Incident:
    return _acted(incident, by, lambda now, _at: standing.noted(now), checked_note(text))


def resolve(incident: Incident, text: str = "", *, by: User | None = None) -> Incident:
    words = checked_note(text) if text.strip() else ""
    return _acted(incident, by, lambda now, at: standing.resolved(now, _key(by), at), words)


def reopen(incident: Incident, *, by: User | None = None) -> Incident:
    return _acted(incident, by, lambda now, _at: standing.reopened(now))


def checked_note(text: str) -> str:
    """A form sends each line end as two characters and counts it as one."""
    text = text.strip().replace("\r\n", "\n")
    if not text:
        raise OperationRefused("Write a note first: an empty one says nothing.")
    if len(text) > LONGEST_NOTE:
        raise OperationRefused(
            f"A note has at most {LONGEST_NOTE:,} characters, and this one has {len(text):,}: cut "
            "it, or say where the rest can be read."
        )
    return masked(text)


def _acted(incident: Incident, by: User | None, act: Act, words: str = "") -> Incident:
    with one_at_a_time():
        current = Incident.objects.select_related("watch", "owner").get(pk=incident.pk)
        page = Page(by=by)
        change = act(standing_of(current), page.at)
        if isinstance(change, Kept):
            raise OperationRefused(
                f"Nothing was changed in incident {incident.pk}: {change.reason}."
            )
        if change.step == standing.Step.REOPENED:
            _require_no_other(current)
        page.change(current, change, words)
        page.write()
    return current


def _require_no_other(incident: Incident) -> None:
    """One per cause: what came back meanwhile is told there."""
    same = Incident.objects.filter(
        scope=incident.scope, kind=incident.kind, cause=incident.cause
    ).exclude(state=Incident.State.RESOLVED)
    if other := same.exclude(pk=incident.pk).first():
        raise OperationRefused(
            f"Incident {other.pk} is about the same and is not resolved: look at that one."
        )


def _key(user: User | None) -> int | None:
    return user.pk if user else None
