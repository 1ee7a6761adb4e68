"""After any transitions of sessions, the sums equal a plain recount."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase as DatabaseCase

from sessions_app.costs.rollups import check, rebuild_sums
from sessions_app.models import PeriodCost, Session
from tests.factories import CycleFactory, SessionFactory

pytestmark = pytest.mark.django_db

COSTS = st.one_of(st.none(), st.decimals(min_value=0, max_value=50, places=7))
FACTS = st.fixed_dictionaries(
    {
        "cost_usd": COSTS,
        "estimated_cost_usd": COSTS,
        "input_tokens": st.integers(0, 10**6),
        "cache_read_tokens": st.integers(0, 10**6),
    }
)
STEPS = st.sampled_from(
    ["claim", "put_back", "completed", "failed", "interrupted", "escalated", "expire", "cancelled"]
)
MOVES = st.lists(st.tuples(st.integers(0, 3), STEPS, FACTS), max_size=25)


def move(session: Session, step: str, facts: dict[str, Any]) -> None:
    """As far as the session can go there; what it cannot is refused, and must count nothing."""
    if step == "claim":
        session.claim()
    elif step == "put_back":
        session.put_back("paused")
    elif step == "expire":
        session.expire("too old")
    else:
        session._moved(step, "ended", **(facts | {"finished_at": session.created_at}))


class SumsOfAnyHistory(DatabaseCase):
    @settings(max_examples=40, deadline=None)
    @given(MOVES)
    def test_sums_equal_a_recount_of_the_sessions(self, moves) -> None:
        cycle = CycleFactory(watch_name="shop")
        fields = {"status": "queued", "started_at": None, "finished_at": None, "cost_usd": None}
        sessions = [SessionFactory(cycle=cycle, tier=1 + n % 3, **fields) for n in range(4)]
        for number, step, facts in moves:
            move(sessions[number], step, facts)

        assert check().differences == ()
        begun = Session.objects.filter(started_at__isnull=False)
        known = sum((session.cost_usd or Decimal(0) for session in begun), Decimal(0))
        days = PeriodCost.objects.filter(span="day")
        assert sum(row.runs for row in days) == begun.count()
        assert sum(row.cost_usd for row in days) == known
        rebuild_sums()
        assert check().differences == ()
