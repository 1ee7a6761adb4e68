"""The one place that numbers the events of a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from django.db import IntegrityError, models, transaction

from sessions_app.models.daily_verdict import DailyVerdict

if TYPE_CHECKING:
    from sessions_app.models.event import SessionEvent
    from sessions_app.models.session import Session


class EventLog:
    """Appends events to a session's stream: in order, and none under a number that is taken.

    The last number is remembered, so that a run that prints much does not ask for it each time.
    Another writer (a person's act, a recovery) may have been faster: then it is looked up again.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._last: int | None = None

    def append(self, events: Sequence[SessionEvent]) -> None:
        try:
            self._insert(events)
        except IntegrityError:
            self._last = None
            self._insert(events)

    def _insert(self, events: Sequence[SessionEvent]) -> None:
        last = self._last_number() if self._last is None else self._last
        for number, event in enumerate(events, start=last + 1):
            event.sequence = number
            event.pk = None  # a failed attempt may have left a number on it
        is_final = not transaction.get_connection().in_atomic_block
        with transaction.atomic():
            self._session.events.model.objects.bulk_create(events)
            DailyVerdict.count_events(events)
        # What may still be rolled back must not be counted on.
        self._last = last + len(events) if is_final else None

    def _last_number(self) -> int:
        return self._session.events.aggregate(last=models.Max("sequence"))["last"] or 0
