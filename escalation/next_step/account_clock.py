"""The installation's one clock for the account's limit: set by a run that met it, or lifted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import transaction
from django.utils import timezone

from escalation.next_step.ending import Ending
from escalation.queue.one_at_a_time import one_at_a_time
from escalation.queue.places import start_waiting
from sessions_app.models import AccountClock
from sessions_app.reading.masking import masked

if TYPE_CHECKING:
    from django.contrib.auth.models import User

LIFTED = "The account's limit is not waited for any more. Sessions that were called: {count}."


def note_ending(ending: Ending) -> None:
    """What a real run learned of the account, in the transaction that ends it."""
    if ending.account_limit is None and not ending.windows and not ending.answered:
        return
    clock = AccountClock.current()
    told = _told(clock, ending)
    if any(getattr(clock, field) != value for field, value in told.items()):
        _store(**told)


def lift(*, by: User | None = None) -> int:
    """A person knows better: how many waiting sessions were called."""
    with transaction.atomic(), one_at_a_time():
        _store(until=None, kind="", words="", times_in_a_row=0, lifted_by=by)
        return start_waiting()


def _told(clock: AccountClock, ending: Ending) -> dict[str, object]:
    windows = {
        window.name: {"share": window.share, "resets_at": window.resets_at.timestamp()}
        for window in ending.windows
    }
    told: dict[str, object] = {"windows": {**clock.windows, **windows}}
    limit = ending.account_limit
    if limit is None:
        # The account answers again; while the clock holds, this run had begun before it was set.
        return told if clock.is_holding else {**told, "times_in_a_row": 0}
    is_later = clock.until is None or limit.until > clock.until
    said = {"until": limit.until, "kind": limit.kind, "words": masked(limit.words)}
    moved = said if is_later else {}
    return {**told, **moved, "times_in_a_row": clock.times_in_a_row + 1, "lifted_by": None}


def _store(**facts: object) -> None:
    AccountClock.objects.update_or_create(
        pk=AccountClock.THE_ONE, defaults={**facts, "changed_at": timezone.now()}
    )
