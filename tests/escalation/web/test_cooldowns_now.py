"""Cooldowns that are in force."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from escalation.command_policy.understanding import EVERYTHING
from escalation.supervisor.cooldowns import Done, Limit
from escalation.web.watches import rows_of

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
LIMITS = {"restart": Limit(allowed=2, hours=4), "redeploy": Limit(allowed=1, hours=24)}


def done(service: str, hours: float, kind: str = "restart") -> Done:
    return Done(kind=kind, service=service, at=NOW - timedelta(hours=hours))


def test_reached_cooldowns_come_first_with_their_end():
    rows = rows_of([done("db", 1), done("web", 3), done("web", 1)], LIMITS, NOW)

    assert [(row.service, row.is_reached) for row in rows] == [("web", True), ("db", False)]
    assert rows[0].until == NOW + timedelta(hours=1)


def test_a_change_older_than_its_window_does_not_count():
    assert rows_of([done("web", 5)], LIMITS, NOW) == ()


def test_a_change_of_all_services_counts_for_each():
    rows = rows_of([done(EVERYTHING, 1), done("web", 2)], LIMITS, NOW)

    assert {row.service: row.times for row in rows} == {"everything": 2, "web": 2}
