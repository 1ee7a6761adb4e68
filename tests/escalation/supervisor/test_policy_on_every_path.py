"""Maximum tier and dry run hold for every start of a tier: automatic, manual, command, admin."""

from __future__ import annotations

import io

import pytest
from django.core.management import call_command
from django.urls import reverse
from django_q.models import OrmQ

from escalation.errors import RefusalCode
from escalation.supervisor import cycles, manual
from sessions_app.models import Cycle, Session, Watch
from tests.escalation.refusals import command_refused, refused
from tests.escalation.rows import ESCALATE, HEALTHY, a_report
from tests.escalation.runs import child_of, run
from tests.factories import CycleFactory, SessionFactory, WatchFactory

# Every page names the CLI, so there is one to name.
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fake_cli")]
Status, Purpose = Session.Status, Session.Purpose

DRY_RUN, MAX_TIER = {"dry_run": True}, {"max_tier": 1}
every_policy = pytest.mark.parametrize(
    "policy",
    [MAX_TIER, DRY_RUN | MAX_TIER],
    ids=["max tier", "dry, max tier"],
)
BY_HAND = {
    "escalate": (1, lambda session: manual.escalate(session, "Help")),
    "fork": (2, lambda session: manual.fork(session, "Other way")),
    "retry": (2, lambda session: manual.retry(session)),
}
every_operation = pytest.mark.parametrize(("tier", "operate"), BY_HAND.values(), ids=BY_HAND.keys())


def failed(tier: int, cycle: Cycle) -> Session:
    return SessionFactory(failed=True, tier=tier, cycle=cycle, workdir="/tmp")


def nothing_was_started() -> bool:
    return not Session.objects.filter(status=Status.QUEUED).exists() and not OrmQ.objects.exists()


@every_policy
@every_operation
def test_a_manual_operation_is_refused(policy, tier, operate):
    session = failed(tier, CycleFactory(**policy))

    with refused(RefusalCode.POLICY):
        operate(session)

    assert Session.objects.get(pk=session.pk).status == Status.FAILED
    assert nothing_was_started()


@every_policy
@every_operation
def test_a_manual_operation_is_refused_by_a_policy_that_was_changed_since(policy, tier, operate):
    """The session in hand was loaded before somebody changed the watch."""
    session = failed(tier, CycleFactory())
    assert session.cycle.watch is not None
    Watch.objects.filter(pk=session.cycle.watch.pk).update(**policy)

    with refused(RefusalCode.POLICY):
        operate(session)


def test_a_question_about_a_higher_tier_is_allowed_because_it_only_reads():
    session = failed(2, CycleFactory(**DRY_RUN))

    assert manual.follow_up(session, "Why?")


def test_a_question_about_a_higher_tier_can_be_retried():
    question = failed(2, CycleFactory(**DRY_RUN))
    Session.objects.filter(pk=question.pk).update(purpose=Purpose.FOLLOW_UP, request="Why?")

    assert manual.retry(Session.objects.get(pk=question.pk))


@every_policy
@pytest.mark.parametrize("name", ["escalate_session", "fork_session", "retry_session"])
def test_the_page_refuses_a_tier_above_the_policy(operator_client, policy, name):
    session = failed(1 if name == "escalate_session" else 2, CycleFactory(**policy))
    url = reverse(f"web:{name}", args=[session.pk])

    page = operator_client.post(url, {"request": "Help", "confirm": "on"}, follow=True)

    assert "no tier above 1" in page.content.decode()
    assert nothing_was_started()


@every_policy
@pytest.mark.parametrize("action", ["escalate", "fork", "retry"])
def test_the_admin_refuses_a_tier_above_the_policy(operator_client, policy, action):
    session = failed(1 if action == "escalate" else 2, CycleFactory(**policy))
    form = {"action": action, "_selected_action": [session.pk], "request": "Help"}

    url = reverse("admin:sessions_app_session_changelist")
    page = operator_client.post(url, form, follow=True)

    assert "no tier above 1" in page.content.decode()
    assert nothing_was_started()


@every_policy
@pytest.mark.parametrize("verb", ["escalate", "fork", "retry"])
def test_the_command_session_refuses_before_it_asks_for_confirmation(policy, verb):
    session = failed(1 if verb == "escalate" else 2, CycleFactory(**policy))
    text = [] if verb == "retry" else ["Help"]

    with command_refused(RefusalCode.POLICY):
        call_command("session", verb, str(session.pk), *text, stderr=io.StringIO())

    assert nothing_was_started()


@every_policy
def test_run_cycle_refuses_before_it_asks_for_confirmation(workdir, policy):
    WatchFactory(name="shop", workdir=str(workdir), **policy)

    with command_refused(RefusalCode.POLICY):
        call_command("run_cycle", "--watch", "shop", "--tier", "2", stderr=io.StringIO())

    assert not Cycle.objects.exists()


@every_policy
def test_no_cycle_starts_above_the_highest_tier(workdir, policy):
    watch = WatchFactory(workdir=str(workdir), **policy)

    with refused(RefusalCode.POLICY):
        cycles.start(watch, trigger=Cycle.Trigger.MANUAL, tier=2)


@every_policy
def test_a_policy_that_was_tightened_during_the_run_stops_the_escalation(fake_cli, session, policy):
    fake_cli.reports(ESCALATE)
    Watch.objects.filter(pk=session.cycle.watch_id).update(**policy)

    ended = run(session)

    assert ended.status == Status.COMPLETED
    assert ended.cycle.outcome == Cycle.Outcome.NEEDS_PERSON
    assert "no tier above 1" in ended.cycle.outcome_reason


@every_policy
@pytest.mark.parametrize("purpose", [Purpose.TIER, Purpose.RECOVERY, Purpose.CONTINUATION])
def test_a_queued_higher_tier_does_not_start_once_the_policy_is_tightened(
    fake_cli, session, policy, purpose
):
    """Whatever queued it, also recovery: asked once more at the moment of its start."""
    fake_cli.reports(ESCALATE)
    waiting = child_of(run(session))
    Session.objects.filter(pk=waiting.pk).update(purpose=purpose)
    Watch.objects.filter(pk=session.cycle.watch_id).update(**policy)

    ended = run(waiting)

    assert (ended.status, len(fake_cli.calls)) == (Status.FAILED, 1)
    assert "no tier above 1" in ended.error
    assert ended.cycle.outcome == Cycle.Outcome.NEEDS_PERSON


def test_a_queued_first_tier_starts_with_any_policy(fake_cli, session):
    fake_cli.reports(HEALTHY)
    Watch.objects.filter(pk=session.cycle.watch_id).update(**DRY_RUN, **MAX_TIER)

    assert run(session).status == Status.COMPLETED


def test_a_manual_escalation_in_a_dry_run_starts_a_tier_that_may_not_write(fake_cli, workdir):
    """As it was found: Tier 2 ran and wrote a file."""
    fake_cli.reports(a_report(services=(("web", "down"),)))
    fake_cli.reports(HEALTHY)
    cycle = cycles.start(
        WatchFactory(workdir=str(workdir), dry_run=True),
        trigger=Cycle.Trigger.MANUAL,
    )
    looked = run(cycle.sessions.get())

    thought = run(manual.escalate(looked, "Do it"))

    assert thought.status == Status.COMPLETED
    assert (thought.sandbox["changes_nothing"], thought.sandbox["writable"]) == (True, [])
    allowed = thought.argv[thought.argv.index("--allowedTools") + 1]
    assert not {"Write", "Edit"} & set(allowed.split(","))
    assert "**Dry run:** change nothing" in thought.prompt
