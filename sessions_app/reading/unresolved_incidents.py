"""The incidents that are not over, for the inbox and for the terminal."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Q, QuerySet

from sessions_app.models import Incident


def unresolved_incidents() -> QuerySet[Incident]:
    """The worst first, and of those the oldest."""
    rows = Incident.objects.filter(state__in=Incident.UNRESOLVED_STATES)
    return rows.select_related("watch", "owner").order_by("-severity", "first_seen_at", "pk")


def asks_for_person(now: datetime) -> Q:
    """As `Incident.asks_for_person` says of one."""
    awake = Q(snoozed_until=None) | Q(snoozed_until__lte=now)
    let_go = Q(snoozed_until__lte=now) | Q(owner__is_active=False)
    waits = Q(state=Incident.State.OPEN) | (Q(state=Incident.State.ACKNOWLEDGED) & let_go)
    return waits & awake & Q(healthy_rounds=0)
