from __future__ import annotations

import pytest

from sessions_app.history.commands import DeniedCommand
from sessions_app.history.session_actions import (
    LONGEST_REASON,
    SessionAction,
    actions_for,
    held_back,
)
from sessions_app.text import estimated_tokens
from tests.factories import CycleFactory, SessionFactory, WatchFactory

pytestmark = pytest.mark.django_db


def offered(session, **facts) -> dict[str, SessionAction]:
    chain = session.cycle.sessions.all()
    return {action.name: action for action in actions_for(session, chain, **facts)}


def test_a_finished_session_offers_follow_up_fork_and_escalation():
    assert list(offered(SessionFactory())) == ["follow_up", "fork_session", "escalate_session"]


@pytest.mark.parametrize("status", ["failed", "timed_out", "interrupted", "cancelled"])
def test_a_failed_session_offers_a_retry(status):
    assert "retry_session" in offered(SessionFactory(status=status))


@pytest.mark.parametrize("status", ["completed", "escalated", "expired"])
def test_any_other_session_offers_no_retry(status):
    assert "retry_session" not in offered(SessionFactory(status=status))


@pytest.mark.parametrize("status", ["queued", "running", "awaiting_approval"])
def test_an_open_session_offers_no_action(status):
    assert offered(SessionFactory(status=status)) == {}


def test_an_active_cycle_offers_no_action():
    assert offered(SessionFactory(escalated=True, cycle=CycleFactory(running=True))) == {}


def test_a_session_that_never_ran_offers_no_follow_up():
    session = SessionFactory(status="cancelled", started_at=None, session_id="")

    assert list(offered(session)) == ["retry_session"]


def test_the_highest_tier_cannot_be_escalated():
    assert "escalate_session" not in offered(SessionFactory(tier=3))


def test_the_policy_of_the_cycle_limits_manual_escalation():
    session = SessionFactory(tier=1, cycle=CycleFactory(max_tier=1))

    assert "escalate_session" not in offered(session)


def test_in_a_dry_run_the_next_tier_is_offered():
    actions = offered(SessionFactory(cycle=CycleFactory(dry_run=True)))

    assert "as a dry run" in actions["escalate_session"].effect


def test_above_the_limit_a_dry_run_offers_no_escalation():
    cycle = CycleFactory(dry_run=True, max_tier=1)

    assert "escalate_session" not in offered(SessionFactory(cycle=cycle))
    second = SessionFactory(cycle=cycle, tier=2, status="failed")
    assert list(offered(second)) == ["follow_up", "allow_session"]


def test_a_policy_that_was_tightened_since_applies():
    session = SessionFactory(cycle=CycleFactory(watch=WatchFactory(max_tier=1)))

    assert "escalate_session" not in offered(session)


def test_a_follow_up_of_a_higher_tier_can_be_retried_in_a_dry_run():
    session = SessionFactory(
        tier=2, status="failed", purpose="follow_up", cycle=CycleFactory(dry_run=True)
    )

    assert "retry_session" in offered(session)


def test_the_reason_why_the_next_tier_is_not_offered_is_shown():
    session = SessionFactory(cycle=CycleFactory(max_tier=1))

    assert held_back(session).startswith("Tier 2 is not started: the policy allows no tier above")


@pytest.mark.parametrize("facts", [{"tier": 3}, {"escalated": True}, {}])
def test_without_an_objection_no_reason_is_shown(facts):
    assert held_back(SessionFactory(**facts)) == ""


@pytest.mark.parametrize("status", ["escalated", "cancelled", "expired"])
def test_an_escalated_session_or_one_that_never_ran_is_not_escalated(status):
    assert "escalate_session" not in offered(SessionFactory(status=status))


def test_a_read_only_action_needs_no_confirmation():
    actions = offered(SessionFactory(status="failed"))

    assert [name for name, action in actions.items() if action.needs_confirmation] == [
        "escalate_session"
    ]


def test_an_action_that_may_change_the_system_needs_a_confirmation():
    actions = offered(SessionFactory(status="failed", tier=2))

    assert [name for name, action in actions.items() if action.needs_confirmation] == [
        "fork_session",
        "retry_session",
        "escalate_session",
    ]


def test_a_retry_shows_where_it_starts():
    parent = SessionFactory(escalated=True)
    child = SessionFactory(tier=2, parent_session=parent, status="failed")

    assert f"from where session #{parent.pk} ended" in offered(child)["retry_session"].effect
    first = SessionFactory(status="failed")
    assert "from the beginning" in offered(first)["retry_session"].effect


def test_a_tier_above_the_policy_can_be_allowed_once():
    action = offered(SessionFactory(cycle=CycleFactory(max_tier=1)))["allow_session"]

    assert (action.tier, action.needs_confirmation, action.request_is_optional) == (2, True, True)
    assert action.most_usd == 5


def test_a_tier_that_the_policy_allows_is_escalated_and_not_allowed_once():
    assert "allow_session" not in offered(SessionFactory())


def test_with_a_spent_chain_the_next_tier_is_allowed_once_and_not_escalated():
    actions = offered(SessionFactory(), chain_is_spent=True)

    assert list(actions) == ["follow_up", "fork_session", "allow_session"]


@pytest.mark.parametrize("status", ["expired", "cancelled", "failed"])
def test_a_tier_that_never_began_can_be_allowed_once_from_both_sessions(status):
    parent = SessionFactory(escalated=True)
    child = SessionFactory(tier=2, parent_session=parent, status=status, session_id="")

    assert [offered(run)["allow_session"].tier for run in (parent, child)] == [2, 2]


def test_a_tier_that_ran_is_not_offered_again():
    parent = SessionFactory(escalated=True, cycle=CycleFactory(max_tier=1))
    SessionFactory(tier=2, parent_session=parent, status="failed")

    assert "allow_session" not in offered(parent)


def test_a_dry_run_can_be_allowed_for_real_in_its_own_tier():
    session = SessionFactory(
        tier=2,
        cycle=CycleFactory(dry_run=True),
        sandbox={"in_force": True, "changes_nothing": True},
    )

    assert offered(session)["allow_session"].tier == 2


def test_a_denied_command_that_the_next_tier_would_run_offers_to_allow_it_once():
    session = SessionFactory()
    restart, reboot, other = (
        DeniedCommand(session=number, allowed_from=tier, command=command)
        for number, tier, command in (
            (session.pk, 2, "docker restart web"),
            (session.pk, 3, "reboot"),
            (session.pk + 1, 2, "docker restart db"),
        )
    )

    action = offered(session, denied=[reboot, restart, restart, other])["allow_session"]

    assert (action.tier, action.command) == (2, "docker restart web")
    assert action.title.endswith(": docker restart web")
    assert "docker restart web" in action.request
    assert "allow_session" not in offered(session, denied=[reboot, other])
    assert "escalate_session" in offered(session, denied=[restart])


def test_what_the_tier_is_told_of_long_commands_fits_into_a_note():
    session = SessionFactory()
    denied = [
        DeniedCommand(session=session.pk, allowed_from=2, command=f"docker restart {'x' * 900}{n}")
        for n in range(3)
    ]

    action = offered(session, denied=denied)["allow_session"]

    assert estimated_tokens(action.request) <= LONGEST_REASON
    assert action.command.endswith("and 2 more")
