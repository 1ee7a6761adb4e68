"""Cleaning leaves those alone who wait for the account's own limit."""

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
def test_who_waited_for_the_account_does_not_expire_by_that(over_since, status):
    RateLimit.objects.create(pk=RateLimit.THE_ONE, until=NOW - over_since)
    session = SessionFactory(
        status="queued", cycle=CycleFactory(running=True), created_at=NOW - 3 * DAY
    )

    clean(now=NOW)

    session.refresh_from_db()
    assert session.status == status
