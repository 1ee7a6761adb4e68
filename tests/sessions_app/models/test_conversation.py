"""Which session may hold a conversation."""

from __future__ import annotations

import pytest

from sessions_app.models import Conversation
from tests.factories import SessionFactory

pytestmark = pytest.mark.django_db
NUMBER = "0a0a0a0a-0000-4000-8000-000000000001"


def test_the_holder_may_take_the_conversation_again():
    """The answer to the first attempt may have been lost with the connection."""
    session = SessionFactory(running=True)

    assert [Conversation.take(NUMBER, session) for _attempt in range(2)] == [True, True]


def test_another_session_may_take_the_conversation_after_its_release():
    first, second = SessionFactory(running=True), SessionFactory(running=True)
    Conversation.take(NUMBER, first)

    assert not Conversation.take(NUMBER, second)
    Conversation.leave(first)
    assert Conversation.take(NUMBER, second)
