from __future__ import annotations

import pytest
from django.contrib import admin
from django.urls import reverse
from django_q.models import Schedule

from escalation.admin import costs_by_tier
from sessions_app.access.admin_site import TableAdmin
from sessions_app.models import Session
from tests.factories import SessionFactory, three_tier_chain

pytestmark = pytest.mark.django_db
SESSIONS = "admin:sessions_app_session_changelist"


def test_every_page_of_the_admin_checks_the_rights():
    assert [m for m, page in admin.site._registry.items() if not isinstance(page, TableAdmin)] == []


@pytest.mark.parametrize(
    "lookup",
    ["error__regex", "error__iregex", "prompt__contains", "result", "cycle__prompt__regex"],
)
def test_a_lookup_that_no_filter_offers_never_reaches_the_database(operator_client, lookup):
    assert operator_client.get(reverse(SESSIONS), {lookup: "(a+)+$"}).status_code == 400


def test_a_filter_by_regular_expression_is_refused(operator_client):
    assert operator_client.get(reverse(SESSIONS), {"model__regex": "(a+)+$"}).status_code == 400


@pytest.mark.parametrize("chosen", ["9" * 400, "abc", "-1", ""])
def test_an_action_on_impossible_ids_is_a_bad_request(operator_client, chosen):
    sent = {"action": "stop", "_selected_action": chosen}

    assert operator_client.post(reverse(SESSIONS), sent).status_code == 400


@pytest.mark.parametrize(
    "lookup", [{"status__exact": "failed"}, {"tier__exact": 1}, {"on": "2026-11"}]
)
def test_every_offered_filter_works(operator_client, lookup):
    assert operator_client.get(reverse(SESSIONS), lookup).status_code == 200


def test_a_role_with_an_impossible_id_is_an_error_of_its_field(operator_client, operator):
    page = reverse("admin:auth_user_change", args=[operator.pk])

    answer = operator_client.post(page, {"username": "x", "groups": "9" * 400})

    assert "is not a valid value" in answer.content.decode()


def test_a_filter_by_a_related_row_works(operator_client):
    cycles = reverse("admin:sessions_app_cycle_changelist")

    assert operator_client.get(cycles, {"watch__id__exact": 1}).status_code == 200


def test_no_account_can_schedule_a_function(operator_client):
    form = {"func": "os.system", "args": "'id'", "schedule_type": "O", "repeats": "1"}

    response = operator_client.post(reverse("admin:django_q_schedule_add"), form)

    assert response.status_code == 403
    assert not Schedule.objects.filter(func="os.system").exists()


def test_a_task_cannot_be_enqueued_again(operator_client):
    page = operator_client.get(reverse("admin:django_q_failure_changelist")).content.decode()

    assert "resubmit" not in page


def test_drills_are_in_no_sum_of_the_admin():
    session = SessionFactory()
    three_tier_chain(drill=True)

    costs = costs_by_tier(Session.objects.all())

    assert (costs.runs, costs.total) == (1, session.cost_usd)
