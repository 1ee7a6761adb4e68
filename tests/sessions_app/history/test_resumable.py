"""Whether a conversation can still be resumed, as far as the record knows: guard and reason."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from django.utils import timezone

from sessions_app.history.resume import Guard, Resumable, ResumeLimits, resumable
from sessions_app.models import Conversation
from tests.factories import CycleFactory, SessionFactory

pytestmark = pytest.mark.django_db

LIMITS = ResumeLimits(context_threshold=Decimal("0.80"), max_age_seconds=3_600)


def light(session, conversation=None, *, later: timedelta = timedelta()) -> Resumable:
    return resumable(session, conversation, LIMITS, session.finished_at + later)


def test_a_recent_conversation_with_free_context_can_be_resumed():
    session = SessionFactory(context_tokens=60_000, context_window=200_000)

    found = light(session, later=timedelta(minutes=10))

    assert found.is_possible
    assert found == Resumable(None, "for 50 min 00 s yet, and up to 100k tokens more")


def test_a_conversation_without_reported_context_can_be_resumed():
    assert light(SessionFactory(context_tokens=5, context_window=0)).is_possible


@pytest.mark.parametrize(
    ("fields", "guard"),
    [
        ({"session_id": ""}, Guard.NO_SESSION_ID),
        ({"session_id": "sess_abc123"}, Guard.NOT_A_UUID),
        ({"context_tokens": 170_000, "context_window": 200_000}, Guard.CONTEXT_FULL),
        ({"status": "running"}, Guard.IN_USE),
    ],
)
def test_the_objecting_guard_is_named(fields, guard):
    found = light(SessionFactory(**fields))

    assert not found.is_possible
    assert found.guard == guard
    assert found.why


def test_an_old_conversation_cannot_be_resumed():
    assert light(SessionFactory(), later=timedelta(hours=2)).guard == Guard.EXPIRED


def test_an_ephemeral_conversation_cannot_be_resumed():
    session = SessionFactory(cycle=CycleFactory(ephemeral=True))

    assert light(session).guard == Guard.NOT_KEPT


@pytest.mark.parametrize(("state", "guard"), [("retired", "retired"), ("expired", "expired")])
def test_a_retired_or_expired_conversation_cannot_be_resumed(state, guard):
    gone = Conversation(session_id="x", state=state, reason="The API refused it.")

    assert light(SessionFactory(), gone).guard == guard


def test_a_conversation_in_use_names_the_session():
    other = SessionFactory()
    taken = Conversation(session_id="x", in_use_by=other, last_used_at=timezone.now())

    found = light(SessionFactory(), taken)

    assert found.guard == Guard.IN_USE
    assert f"session {other.pk} " in found.why
