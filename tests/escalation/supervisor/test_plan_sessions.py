"""A plan session: a fork that can change nothing asks the waiting tier for its plan."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse

from escalation.errors import RefusalCode
from escalation.supervisor.approval_answers import approve, expire_overdue, plan, reject
from escalation.supervisor.successors import lineage_of
from sessions_app.models import Approval, Cycle, Incident, Notification, ServiceState, Session
from tests.escalation.refusals import refused
from tests.escalation.rows import ESCALATE, HEALTHY, a_report, queued_session
from tests.escalation.runs import run
from tests.factories import ApprovalFactory, user_with

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fake_cli")]
Status, Purpose, State = Session.Status, Session.Purpose, Approval.State
TWO: dict[str, Any] = {"approval": "2"}
PLAN = {**a_report(), "summary": "First I move the logs away."}


@pytest.fixture
def approver():
    return user_with("approver", username="grace")


def asked(fake_cli, workdir) -> Approval:
    """Tier 1 has run, and Tier 2 waits."""
    fake_cli.reports(ESCALATE)
    run(queued_session(workdir, **TWO))
    return Approval.objects.select_related("session__cycle").get()


def planning(approval: Approval) -> Session:
    return Session.objects.get(purpose=Purpose.PLAN)


def test_the_plan_is_stored_with_the_approval_which_still_waits(fake_cli, workdir, approver):
    approval = asked(fake_cli, workdir)
    fake_cli.reports(PLAN)
    fork = plan(approval, by=approver)

    ended = run(fork)

    approval.refresh_from_db()
    assert (ended.status, ended.tier, ended.purpose) == (Status.COMPLETED, 2, Purpose.PLAN)
    assert "First I move the logs away." in approval.plan
    assert "What was seen." in approval.plan, "what the tier before reported stays"
    assert approval.state == State.WAITING
    assert Session.objects.get(pk=approval.session_id).status == Status.AWAITING_APPROVAL
    assert Cycle.objects.get().is_active


def test_a_plan_session_is_told_to_change_nothing_and_may_not_use_write_tools(
    fake_cli, workdir, approver
):
    approval = asked(fake_cli, workdir)
    fake_cli.reports(PLAN)

    ended = run(plan(approval, by=approver))

    assert ended.sandbox["changes_nothing"]
    assert ended.sandbox["writable"] == []
    assert "they want to see its plan" in ended.prompt
    assert "**Dry run:** change nothing" in ended.prompt
    assert "Write" not in ended.argv[ended.argv.index("--allowedTools") + 1].split(",")


def test_the_tier_continues_from_the_parent_of_the_plan_session(fake_cli, workdir, approver):
    approval = asked(fake_cli, workdir)
    fake_cli.reports(PLAN)
    fake_cli.reports(HEALTHY)
    fork = run(plan(approval, by=approver))
    approve(approval, by=approver)

    ended = run(approval.session)

    assert ended.status == Status.COMPLETED
    assert ended.parent_session_id == fork.parent_session_id
    assert lineage_of(ended).attempts == (), "a plan is no attempt"


def test_with_the_setting_the_plan_runs_first_and_the_notification_follows_it(
    fake_cli, workdir, settings
):
    settings.CLAUDEOPS_PLAN_SESSIONS = True
    approval = asked(fake_cli, workdir)
    wanted = Notification.objects.filter(kind=Notification.Kind.APPROVAL_WANTED)
    told_before = wanted.count()
    fake_cli.reports(PLAN)

    run(planning(approval))

    assert told_before == 0
    assert "First I move the logs away." in wanted.get().text


def test_a_rejected_plan_changes_neither_incident_nor_service(fake_cli, workdir, approver):
    approval = asked(fake_cli, workdir)
    fake_cli.reports(a_report(actions=(("restarted web", "succeeded"),)))
    run(plan(approval, by=approver))

    reject(approval, by=approver, note="No.")

    assert Incident.objects.get().state == Incident.State.OPEN
    assert ServiceState.objects.get().status == ServiceState.Status.DOWN


def test_a_failed_plan_session_leaves_the_approval_waiting(fake_cli, workdir, approver):
    approval = asked(fake_cli, workdir)
    fake_cli.then("import sys; sys.exit(3)")

    run(plan(approval, by=approver))

    approval.refresh_from_db()
    assert "gave no plan" in approval.plan
    assert approval.state == State.WAITING
    assert Cycle.objects.get().is_active


@pytest.mark.parametrize("answer", ["approve", "reject", "expire"])
def test_an_answer_does_not_wait_for_the_plan(fake_cli, workdir, approver, answer):
    approval = asked(fake_cli, workdir)
    plan(approval, by=approver)
    match answer:
        case "approve":
            approve(approval, by=approver)
        case "reject":
            reject(approval, by=approver, note="No.")
        case "expire":
            expire_overdue(approval.expires_at)

    assert planning(approval).status == Status.CANCELLED


def test_a_running_plan_session_is_stopped_by_the_answer(fake_cli, workdir, approver):
    approval = asked(fake_cli, workdir)
    plan(approval, by=approver).claim()

    approve(approval, by=approver)

    assert planning(approval).stop_cause == Session.StopCause.PERSON


def test_a_plan_is_requested_once_and_only_for_a_tier_that_resumes(fake_cli, workdir, approver):
    approval = asked(fake_cli, workdir)
    plan(approval, by=approver)

    with refused(RefusalCode.PLAN_REQUESTED):
        plan(approval, by=approver)
    with refused(RefusalCode.NO_CONVERSATION):
        plan(ApprovalFactory(), by=approver)
    assert Session.objects.filter(purpose=Purpose.PLAN).count() == 1


def test_the_page_of_the_approval_offers_the_plan_session(fake_cli, workdir, operator_client):
    approval = asked(fake_cli, workdir)
    page = operator_client.get(approval.get_absolute_url()).content.decode()

    assert "Ask for its plan first" in page
    url = reverse("web:plan", args=[approval.pk])
    page = operator_client.post(url, follow=True).content.decode()
    assert planning(approval).get_absolute_url() in page
    assert "Ask for its plan first" not in page
