"""A command that is asked again finds its answer, and an approval is used once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone

from escalation.supervisor.approvals import CommandAsked, give_back, question_about, take
from sessions_app.models import Approval, Session
from tests.factories import SessionFactory

pytestmark = pytest.mark.django_db
State = Approval.State
ASKED = CommandAsked(
    command="docker restart web",
    cwd="/srv",
    why="The operator wants to.",
    grants=("docker",),
    actions=("docker restart web",),
)


@pytest.fixture
def session() -> Session:
    return SessionFactory(running=True, tier=2)


def answered(approval: Approval, state: str, **facts) -> Approval:
    Approval.objects.filter(pk=approval.pk).update(state=state, **facts)
    return approval


@pytest.mark.parametrize("state", [State.WAITING, State.APPROVED, State.REJECTED])
def test_the_same_command_finds_the_same_approval(session, state):
    first = answered(question_about(session, ASKED), state)

    assert question_about(session, ASKED) == first


@pytest.mark.parametrize("state", [State.EXPIRED, State.WITHDRAWN])
def test_an_expired_approval_is_requested_again(session, state):
    first = answered(question_about(session, ASKED), state)

    assert question_about(session, ASKED) != first


@pytest.mark.parametrize(
    "change",
    [
        {"command": "docker restart  web"},
        {"cwd": "/srv/other"},
        {"grants": ()},
        {"actions": ("docker restart db",)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_command_has_its_own_approval(session, change):
    first = answered(question_about(session, ASKED), State.APPROVED)

    assert question_about(session, replace(ASKED, **change)) != first


def test_commands_that_differ_only_in_redacted_text_have_their_own_approvals(session):
    one, other = (replace(ASKED, command=f"login --password={word}") for word in ("aaaa1", "bbbb2"))
    first = answered(question_about(session, one), State.APPROVED)

    second = question_about(session, other)

    assert (second.command, second.pk) != (first.command, first.pk)
    assert "bbbb2" not in second.command
    assert second != first


def test_an_answer_counts_in_a_later_session_of_the_tier_but_not_in_another_tier(session):
    first = answered(question_about(session, ASKED), State.APPROVED)
    later = SessionFactory(running=True, tier=2, cycle=session.cycle, parent_session=session)
    higher = SessionFactory(running=True, tier=3, cycle=session.cycle, parent_session=session)

    assert question_about(later, ASKED) == first
    assert question_about(higher, ASKED) != first


def test_a_waiting_approval_of_another_session_is_not_reused(session):
    first = question_about(session, ASKED)
    later = SessionFactory(running=True, tier=2, cycle=session.cycle, parent_session=session)

    assert question_about(later, ASKED) != first


def test_an_old_answer_is_not_reused(session):
    first = answered(
        question_about(session, ASKED), State.APPROVED, expires_at=timezone.now() - timedelta(1)
    )

    assert question_about(session, ASKED) != first


def test_an_approval_is_taken_once_and_can_be_given_back(session):
    approval = answered(question_about(session, ASKED), State.APPROVED)

    assert [take(approval), take(approval)] == [True, False]
    assert question_about(session, ASKED) != approval

    give_back(approval)
    assert take(approval)


@pytest.mark.parametrize("state", [State.WAITING, State.REJECTED, State.EXPIRED, State.WITHDRAWN])
def test_only_an_approved_command_can_be_taken(session, state):
    assert not take(answered(question_about(session, ASKED), state))
