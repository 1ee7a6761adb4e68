"""How often somebody may try to log in.

Counted in the database, so that every web process knows what the others saw, and counted before the
password is looked at, so that many attempts at once gain nothing. Three counts stand beside each
other: a name from one address (guessing one password), an address (guessing names), and a name from
everywhere (guessing from many machines; high, or anybody could lock an administrator out).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Q, QuerySet
from django.utils import timezone

from sessions_app.models import LoginFailure

WINDOW = timedelta(minutes=15)
KEPT = timedelta(days=1)
PER_NAME_AND_ADDRESS = 5
PER_ADDRESS = 20
PER_NAME = 50

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Attempt:
    username: str
    address: str

    @classmethod
    def of(cls, username: str, address: str) -> Attempt:
        """Cut to what the table holds: names from outside have any length."""
        return cls(username.replace("\x00", "")[:150], address[:45])


def begin(attempt: Attempt) -> bool:
    """Count it, and say whether the password may be looked at.

    Written first and counted up to its own row: of many at once, the same few are let through. One
    that is refused is not kept, or whoever tries again and again would never be let in.
    """
    now = timezone.now()
    # What lies in the future was counted by a clock that was wrong: it would lock for as long.
    LoginFailure.objects.filter(Q(at__lt=now - KEPT) | Q(at__gt=now + WINDOW)).delete()
    row = LoginFailure.objects.create(username=attempt.username, address=attempt.address, at=now)
    if not _too_many(LoginFailure.objects.filter(at__gt=now - WINDOW, pk__lte=row.pk), attempt):
        return True
    row.delete()
    logger.warning("Login refused after too many: %r from %s", *_named(attempt))
    return False


def succeeded(attempt: Attempt) -> None:
    """Whoever knows the password was no guesser; what others tried stays counted."""
    LoginFailure.objects.filter(username=attempt.username, address=attempt.address).delete()
    logger.info("Login: %r from %s", *_named(attempt))


def failed(attempt: Attempt) -> None:
    logger.warning("Login failed: %r from %s", *_named(attempt))


def unlock(name_or_address: str = "") -> int:
    """Forget failed attempts of a name, of an address, or all; how many there were."""
    failures = LoginFailure.objects.all()
    if name_or_address:
        failures = failures.filter(Q(username=name_or_address) | Q(address=name_or_address))
    return failures.delete()[0]


def _too_many(recent: QuerySet[LoginFailure], attempt: Attempt) -> bool:
    by_name = recent.filter(username=attempt.username)
    by_address = recent.filter(address=attempt.address)
    return (
        by_name.filter(address=attempt.address).count() > PER_NAME_AND_ADDRESS
        or by_address.count() > PER_ADDRESS
        or by_name.count() > PER_NAME
    )


def _named(attempt: Attempt) -> tuple[str, str]:
    return attempt.username, attempt.address
