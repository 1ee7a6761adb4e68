from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from sessions_app.pages.approvals_page import waiting_approvals
from sessions_app.pages.inbox import load_inbox
from sessions_app.reading.attention import Attention, load_attention
from tests.factories import ApprovalFactory, IncidentFactory, SessionFactory

pytestmark = pytest.mark.django_db


def test_nothing_is_said_as_nothing():
    found = load_attention()

    assert (found.total, found.title, found.sentence) == (0, "Claude Ops", "Nothing needs you.")


def test_the_title_of_the_tab_counts():
    assert Attention(incidents=2, approvals=1).title == "(3) Claude Ops"
    assert Attention(incidents=1).sentence == "1 thing needs you."


def test_what_asks_is_counted_and_the_inbox_counts_the_same(django_assert_num_queries):
    IncidentFactory()
    IncidentFactory(kind="could_not_run")
    IncidentFactory(state="acknowledged")
    IncidentFactory(snoozed_until=timezone.now() + timedelta(hours=1))
    IncidentFactory(healthy_rounds=1)
    IncidentFactory(drill="x", watch=None, scope="drill:x")
    ApprovalFactory()
    ApprovalFactory(state="approved")
    ApprovalFactory(expires_at=timezone.now() - timedelta(minutes=1))
    ApprovalFactory(session=SessionFactory(drill=True))

    with django_assert_num_queries(1):
        found = load_attention()

    assert found == Attention(incidents=2, approvals=1)
    assert load_inbox(waiting_approvals()).attention == found
