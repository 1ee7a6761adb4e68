"""The one clock of all hosts that share a record: the database's.

Hosts may disagree by a minute. What one of them stores and another judges by its age (a sign of
life) is stored and judged by this clock.
"""

from __future__ import annotations

from datetime import datetime

from django.db import connection
from django.utils import timezone


def shared_now() -> datetime:
    """SQLite has no clock of its own, and no second host."""
    if connection.vendor != "postgresql":
        return timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        moment: datetime = cursor.fetchone()[0]
    return moment


def awake_since() -> datetime | None:
    """When the database began to answer: before that, nobody could give it a sign of life."""
    if connection.vendor != "postgresql":
        return None
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_postmaster_start_time()")
        moment: datetime = cursor.fetchone()[0]
    return moment
