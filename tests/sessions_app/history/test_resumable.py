"""Can a conversation still be resumed: the light and its reason."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from django.utils import timezone

from sessions_app.models import Conversation
from sessions_app.reading.resumable import Resumable, ResumeLimits, resumable
from tests.factories import CycleFactory, SessionFactory

pytestmark = pytest.mark.django_db

LIMITS = ResumeLimits(context=Decimal("0.80"), max_age_seconds=3_600)


def light(session, conversation=None, *, later: timedelta = timedelta()) -> Resumable:
    return resumable(session, conversation, LIMITS, session.finished_at + later)


def test_a_young_conversation_with_room_can_be_resumed():
    session = SessionFactory(context_tokens=60_000, context_window=200_000)

    assert light(session, later=timedelta(minutes=10)) == Resumable(
        is_possible=True, why="for 50 min 00 s yet, and up to 100k tokens more"
    )


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"session_id": ""}, "named no conversation"),
        ({"context_tokens": 170_000, "context_window": 200_000}, "85% of its context"),
        ({"status": "running"}, "still in it"),
    ],
)
def test_it_says_why_it_cannot(fields, why):
    answer = light(SessionFactory(**fields))

    assert not answer.is_possible
    assert why in answer.why


def test_an_old_one_cannot():
    assert "1 h 00 min are allowed" in light(SessionFactory(), later=timedelta(hours=2)).why


def test_one_that_was_not_kept_cannot():
    assert "not kept" in light(SessionFactory(cycle=CycleFactory(ephemeral=True))).why


@pytest.mark.parametrize("state", ["retired", "expired"])
def test_one_that_is_over_says_why(state):
    gone = Conversation(session_id="x", state=state, reason="The API refused it.")

    assert light(SessionFactory(), gone).why == f"it is {state}: The API refused it."


def test_one_that_another_run_is_in_says_which():
    other = SessionFactory()
    taken = Conversation(session_id="x", in_use_by=other, last_used_at=timezone.now())

    assert f"session {other.pk} is using it" in light(SessionFactory(), taken).why
