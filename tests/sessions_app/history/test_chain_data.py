from __future__ import annotations

import json
from decimal import Decimal

import pytest

from sessions_app.history.chain import chain_as_data, chain_of
from tests.factories import SessionFactory, three_tier_chain

pytestmark = pytest.mark.django_db


def test_req4_a_chain_as_data_has_a_row_for_every_session():
    sessions = three_tier_chain()

    rows = json.loads(json.dumps(chain_as_data(chain_of(sessions[2]))))

    assert [row["id"] for row in rows] == [session.pk for session in sessions]


def test_req5_every_cost_has_its_basis():
    session = SessionFactory(
        failed=True, cost_basis="estimate", estimated_cost_usd=Decimal("0.0123456789")
    )

    (row,) = chain_as_data(chain_of(session))

    assert (row["cost_usd"], row["reported_cost_usd"]) == (None, None)
    assert (row["estimated_cost_usd"], row["cost_basis"]) == (0.0123456789, "estimate")


def test_the_reason_why_a_session_was_not_resumed_is_included():
    session = SessionFactory(continued_by="handoff", continued_guard="expired", request="Go on.")

    (row,) = chain_as_data(chain_of(session))

    assert (row["continued_by"], row["continued_guard"]) == ("handoff", "expired")
    assert row["request"] == "Go on."
