"""Stored records in the admin: shown and searched, never changed."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from sessions_app.models import Conversation, Session, Transcript
from tests.escalation.web.shown_chain import shown_chain
from tests.factories import SessionEventFactory, SessionFactory, three_tier_chain

pytestmark = pytest.mark.django_db

MODELS = ["cycle", "session", "sessionevent", "conversation", "transcript"]
KEPT = ["conversation", "transcript"]


@pytest.fixture
def record() -> Session:
    session = three_tier_chain()[1]
    SessionEventFactory(session=session)
    Conversation.objects.create(session_id=session.session_id, in_use_by=session)
    Transcript.objects.create(project_key="-srv-shop", session_id=session.session_id)
    return session


@pytest.mark.parametrize("model", MODELS)
def test_every_list_can_be_searched(operator_client, record, model):
    url = reverse(f"admin:sessions_app_{model}_changelist")

    assert operator_client.get(url, {"q": "1"}).status_code == 200


def test_the_list_links_to_the_page_of_a_session_and_of_its_parent(operator_client, record):
    page = operator_client.get(reverse("admin:sessions_app_session_changelist")).content.decode()

    assert f'<a href="{record.get_absolute_url()}">' in page
    assert f'<a href="{record.get_absolute_url()}">#{record.pk}</a>' in page


def test_the_list_shows_costs_as_money(operator_client, record):
    page = operator_client.get(reverse("admin:sessions_app_session_changelist")).content.decode()

    assert "$0.47" in page


@pytest.mark.parametrize("model", MODELS)
def test_no_record_can_be_added(operator_client, model):
    assert operator_client.get(reverse(f"admin:sessions_app_{model}_add")).status_code == 403


def test_a_session_can_be_read(operator_client, record):
    url = reverse("admin:sessions_app_session_change", args=[record.pk])

    assert operator_client.get(url).status_code == 200


@pytest.mark.parametrize("position", [0, 1, 2])
def test_req4_and_req5_a_session_is_shown_with_its_chain_and_costs(operator_client, position):
    sessions = three_tier_chain()
    url = reverse("admin:sessions_app_session_change", args=[sessions[position].pk])

    shown = shown_chain(operator_client.get(url).content.decode())

    assert [step.name for step in shown.steps] == [
        f"Session #{session.pk} (Tier {session.tier})" for session in sessions
    ]
    facts = [("$0.03", "42 s"), ("$0.47", "1 min 35 s"), ("$2.00", "6 min 40 s")]
    for step, session, (cost, time) in zip(shown.steps, sessions, facts, strict=True):
        assert {session.model, cost, time, session.get_status_display()} <= step.words
    assert shown.tiers[-1] == ("Total", "3", "$2.50")


def test_a_session_cannot_be_changed(operator_client, record):
    url = reverse("admin:sessions_app_session_change", args=[record.pk])

    assert operator_client.post(url, {"status": "failed"}).status_code == 403


def test_a_session_cannot_be_deleted(operator_client, record):
    url = reverse("admin:sessions_app_session_delete", args=[record.pk])

    assert operator_client.post(url, {"post": "yes"}).status_code == 403


def kept_row(model: str, name: str) -> str:
    rows = {"conversation": Conversation.objects, "transcript": Transcript.objects}
    row: Any = rows[model].get()
    return reverse(f"admin:sessions_app_{model}_{name}", args=[row.pk])


@pytest.mark.parametrize("model", KEPT)
def test_conversations_and_transcripts_are_listed(operator_client, record, model):
    page = operator_client.get(reverse(f"admin:sessions_app_{model}_changelist"))

    assert record.session_id in page.content.decode()


@pytest.mark.parametrize("model", KEPT)
def test_conversations_and_transcripts_can_be_read_and_not_changed(operator_client, record, model):
    assert operator_client.get(kept_row(model, "change")).status_code == 200
    assert operator_client.post(kept_row(model, "change"), {"state": "x"}).status_code == 403
    assert operator_client.post(kept_row(model, "delete"), {"post": "yes"}).status_code == 403


def test_the_list_is_filtered_by_how_a_session_continued(operator_client, record):
    SessionFactory(continued_by="handoff", continued_guard="expired", cost_basis="per_run")
    wanted = {"continued_by": "handoff", "continued_guard": "expired", "cost_basis": "per_run"}
    url = reverse("admin:sessions_app_session_changelist")

    page = operator_client.get(url, {f"{name}__exact": value for name, value in wanted.items()})

    assert page.context["cl"].result_count == 1


def test_an_estimated_cost_is_marked_as_one(operator_client):
    SessionFactory(failed=True, estimated_cost_usd="0.012")

    page = operator_client.get(reverse("admin:sessions_app_session_changelist")).content.decode()

    assert "≈ $0.01 (estimate)" in page


def test_hostile_text_is_escaped(operator_client):
    SessionFactory(model="<script>alert(1)</script>", drill=True, cycle__drill="<script>")

    page = operator_client.get(reverse("admin:sessions_app_session_changelist")).content.decode()

    assert "<script>alert" not in page
    assert "<script></a>" not in page


def test_no_list_counts_the_table_for_each_filter(operator_client, record):
    page = operator_client.get(reverse("admin:sessions_app_session_changelist")).content.decode()

    assert "Show counts" not in page
    assert "_facets" not in page


def test_a_list_counts_up_to_a_limit(operator_client, monkeypatch):
    monkeypatch.setattr("sessions_app.access.admin_site.MOST_COUNTED", 2)
    three_tier_chain()

    page = operator_client.get(reverse("admin:sessions_app_session_changelist")).content.decode()

    assert "2 or more sessions" in " ".join(page.split())


@pytest.mark.parametrize("on", ["2026", "2026-11", "7", "30", "odd", "2026-13", "9" * 40, "0000"])
def test_a_list_is_filtered_by_date(operator_client, record, on):
    url = reverse("admin:sessions_app_session_changelist")

    assert operator_client.get(url, {"on": on}).status_code == 200


def test_a_day_contains_its_records(operator_client, record):
    url, today = reverse("admin:sessions_app_session_changelist"), timezone.localdate()

    found = operator_client.get(url, {"on": f"{today:%Y-%m-%d}"}).context["cl"].result_count
    other = operator_client.get(url, {"on": "2019-01-01"}).context["cl"].result_count

    assert (found, other) == (3, 0)


@pytest.mark.parametrize("model", ["session", "cycle"])
def test_a_list_is_searched_by_text(operator_client, record, model):
    SessionFactory(error="lighthouse")
    url = reverse(f"admin:sessions_app_{model}_changelist")

    assert operator_client.get(url, {"q": "lighthouse"}).context["cl"].result_count == 1
