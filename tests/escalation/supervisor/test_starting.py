"""A tier that needs approval waits for it, however it is started."""

from __future__ import annotations

import io
from typing import Any

import pytest
from django.core.management import call_command
from django.urls import reverse
from django_q.models import OrmQ

from escalation.errors import WhyNot
from escalation.supervisor import cycles, manual
from escalation.supervisor.approval_answers import approve
from sessions_app.models import Approval, Cycle, Incident, Notification, Session, Watch
from tests.escalation.rows import ESCALATE, HEALTHY, queued_session
from tests.escalation.runs import child_of, run
from tests.factories import CycleFactory, SessionFactory, WatchFactory, user_with

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fake_cli")]
Status, State, Purpose = Session.Status, Approval.State, Session.Purpose
TWO: dict[str, Any] = {"approval": "2"}
BY_HAND = {
    "escalate": (1, lambda session, **by: manual.escalate(session, "Help", **by)),
    "fork": (2, lambda session, **by: manual.fork(session, "Other way", **by)),
    "retry": (2, lambda session, **by: manual.retry(session, **by)),
}
every_operation = pytest.mark.parametrize(("tier", "operate"), BY_HAND.values(), ids=BY_HAND.keys())


def failed(tier: int, **watch) -> Session:
    cycle = CycleFactory(watch=WatchFactory(**{**TWO, **watch}), approval="2")
    return SessionFactory(failed=True, tier=tier, cycle=cycle, workdir="/tmp")


def waits(session: Session) -> bool:
    session.refresh_from_db()
    return (
        session.status == Status.AWAITING_APPROVAL
        and session.approvals.get().state == State.WAITING
        and not OrmQ.objects.exists()
    )


def test_an_escalation_waits_for_approval(fake_cli, workdir):
    fake_cli.reports(ESCALATE)

    ended = run(queued_session(workdir, **TWO))

    tier_2 = child_of(ended)
    assert waits(tier_2)
    approval = tier_2.approvals.get()
    assert "Tier 2 waits for a person's approval." in ended.escalation_reason
    assert approval.why == ended.escalation_reason
    assert "What was seen." in approval.plan
    assert "web must be restarted" in approval.plan
    assert ended.cycle.is_active


def test_the_notification_links_to_the_approval(fake_cli, workdir):
    fake_cli.reports(ESCALATE)

    run(queued_session(workdir, **TWO))

    notification = Notification.objects.get(kind=Notification.Kind.APPROVAL_WANTED)
    approval = Approval.objects.get()
    assert (notification.approval, notification.path) == (approval, approval.get_absolute_url())
    assert "may Tier 2 start?" in notification.title


@every_operation
def test_a_manual_start_by_an_operator_waits_for_approval(tier, operate):
    created = operate(failed(tier), requested_by=user_with("operator"), confirmed=True)

    assert waits(created)


@every_operation
def test_a_confirmed_manual_start_by_an_approver_is_approved(tier, operate):
    approver = user_with("approver")

    created = operate(failed(tier), requested_by=approver, confirmed=True)

    approval = created.approvals.get()
    assert created.status == Status.QUEUED
    assert OrmQ.objects.count() == 1
    assert (approval.state, approval.decided_by) == (State.APPROVED, approver)


@every_operation
def test_a_manual_start_without_a_confirmation_waits_for_approval(tier, operate):
    created = operate(failed(tier), requested_by=user_with("approver"))

    assert waits(created)


def test_a_follow_up_needs_no_approval():
    asked = manual.follow_up(failed(2), "Why?")

    assert asked.status == Status.QUEUED


@pytest.mark.parametrize("role", ["operator", "approver"])
def test_the_page_shows_the_waiting_approval(client, role):
    client.force_login(user_with(role))
    session = failed(1)
    url = reverse("web:escalate_session", args=[session.pk])

    page = client.post(url, {"request": "Help", "confirm": "on"}, follow=True).content.decode()

    said = "waits for approval of Tier 2" if role == "operator" else "is queued"
    assert said in page


def test_an_action_of_the_admin_waits_for_approval(operator_client):
    session = failed(1)
    form = {"action": "escalate", "_selected_action": [session.pk], "request": "Help"}

    operator_client.post(reverse("admin:sessions_app_session_changelist"), form)

    assert waits(child_of(session))


def test_run_cycle_names_the_approval_and_exits_with_1(workdir):
    WatchFactory(name="shop", workdir=str(workdir), **TWO)
    said = io.StringIO()

    with pytest.raises(SystemExit) as ended:
        call_command("run_cycle", "--watch", "shop", "--tier", "2", "--no-input", stdout=said)

    assert ended.value.code == 1
    assert f"claudeops approval approve {Approval.objects.get().pk}" in said.getvalue()
    assert waits(Session.objects.get())


def test_a_cycle_that_starts_at_such_a_tier_waits_for_approval(workdir):
    watch = WatchFactory(workdir=str(workdir), **TWO)

    cycle = cycles.start(watch, trigger=Cycle.Trigger.SCHEDULE, tier=2)

    assert waits(cycle.sessions.get())


@pytest.mark.parametrize("purpose", [Purpose.TIER, Purpose.RETRY, Purpose.FORK])
def test_a_queued_tier_that_now_needs_approval_does_not_start(fake_cli, session, purpose):
    fake_cli.reports(ESCALATE)
    waiting = child_of(run(session))
    Session.objects.filter(pk=waiting.pk).update(purpose=purpose)
    Watch.objects.filter(pk=session.cycle.watch_id).update(**TWO)

    ended = run(waiting)

    assert (ended.status, len(fake_cli.calls)) == (Status.FAILED, 1)
    assert "needs approval" in ended.error
    assert not Incident.objects.filter(kind=Incident.Kind.COULD_NOT_RUN).exists()


def test_a_cycle_that_now_needs_approval_opens_an_incident(fake_cli, workdir):
    session = queued_session(workdir, tier=2)
    Watch.objects.filter(pk=session.cycle.watch_id).update(**TWO)

    ended = run(session)

    assert (ended.status, fake_cli.calls) == (Status.FAILED, [])
    assert Incident.objects.get().cause == WhyNot.APPROVAL


def test_an_approved_tier_starts_and_its_approval_is_used(fake_cli, workdir):
    fake_cli.reports(ESCALATE)
    fake_cli.reports(HEALTHY)
    waiting = child_of(run(queued_session(workdir, **TWO)))
    approve(waiting.approvals.get(), by=user_with("approver"))

    ended = run(waiting)

    assert ended.status == Status.COMPLETED
    assert ended.approvals.get().used_at


def test_a_continuation_of_an_approved_tier_needs_no_approval(fake_cli, workdir):
    """Asked again for its report, in the same conversation."""
    fake_cli.reports(ESCALATE)
    fake_cli.then("init(); say('I forgot'); result(None)")
    fake_cli.reports(HEALTHY)
    waiting = child_of(run(queued_session(workdir, **TWO)))
    approve(waiting.approvals.get(), by=user_with("approver"))

    again = child_of(run(waiting))

    assert again.purpose == Purpose.REPORT
    assert run(again).status == Status.COMPLETED
    assert Approval.objects.count() == 1
