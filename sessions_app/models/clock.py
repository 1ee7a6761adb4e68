"""The one clock of all hosts that share a record: the database's.

Hosts may disagree by a minute. What one of them stores and another judges by its age (a sign of
life) is stored and judged by this clock.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import connection
from django.db.models import DurationField, ExpressionWrapper, F, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Now
from django.utils import timezone


def shared_now() -> datetime:
    """SQLite has no clock of its own, and no second host."""
    if connection.vendor != "postgresql":
        return timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        moment: datetime = cursor.fetchone()[0]
    return moment


def shared_moment(ago: timedelta = timedelta(0)) -> datetime | Combinable:
    """For a query to compare with: the database looks at its clock while it answers."""
    return Now() - ago if connection.vendor == "postgresql" else timezone.now() - ago


def shared_age(field: str) -> Combinable:
    """For a query to tell: how long ago a moment was."""
    now = Now() if connection.vendor == "postgresql" else Value(timezone.now())
    return ExpressionWrapper(now - F(field), output_field=DurationField())


def awake_since() -> datetime | None:
    """When the database began to answer: before that, nobody could give it a sign of life."""
    if connection.vendor != "postgresql":
        return None
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_postmaster_start_time()")
        moment: datetime = cursor.fetchone()[0]
    return moment
