"""The lock of the installation, and the order in which locks are taken.

A transaction that changes more than one row takes its locks in this order:

1. the lock of the installation (`installation_lock`), before it changes or locks any row;
2. rows of sessions, cycles, approvals, conversations, incidents, watches and sums, in any order:
   no other transaction that takes several of them is inside at the same time.

A transaction without this lock changes the rows of one table by one statement (a heartbeat, a
request to stop one session), adds rows (events, messages), or saves a watch and then its schedule.
It never enters `installation_lock` afterwards: a transaction that holds a row and waits for this
lock, while the holder of the lock waits for the row, is a deadlock. A row that other rows refer to
is locked with `no_key=True`, so that adding an event to a session does not wait for it.

Messages are sent, tested and routed without this lock. Such a transaction locks or changes the row
of the channel before it writes a message of it.

`tests/escalation/web/test_acting_at_once.py` races every pair of acting endpoints.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction

INSTALLATION_LOCK = 0x636C61756465
"""The key of the advisory lock in PostgreSQL: any number that nothing else there uses."""


@contextmanager
def installation_lock() -> Iterator[None]:
    """Opens a transaction that excludes every other holder of the lock. Reentrant.

    SQLite takes its write lock at the beginning of a transaction. PostgreSQL takes an advisory
    lock, which ends with the transaction.
    """
    with transaction.atomic():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", [INSTALLATION_LOCK])
        yield
