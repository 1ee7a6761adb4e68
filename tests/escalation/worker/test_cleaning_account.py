"""Housekeeping does not expire sessions that wait for the rate limit."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from escalation.worker.housekeeping import clean
from sessions_app.models import RateLimit
from tests.factories import CycleFactory, SessionFactory

pytestmark = pytest.mark.django_db
NOW = timezone.now()
DAY = timedelta(days=1)


@pytest.mark.parametrize(("over_since", "status"), [(-DAY, "queued"), (2 * DAY, "expired")])
def test_a_session_that_waits_for_the_rate_limit_does_not_expire(over_since, status):
    RateLimit.objects.create(pk=RateLimit.THE_ONE, until=NOW - over_since)
    session = SessionFactory(
        status="queued", cycle=CycleFactory(running=True), created_at=NOW - 3 * DAY
    )

    clean(now=NOW)

    session.refresh_from_db()
    assert session.status == status
