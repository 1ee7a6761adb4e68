"""REQ-4 and REQ-5: two tiers run, and the rows and the page show them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from sessions_app.models import Session
from tests.escalation.rows import ESCALATE, HEALTHY
from tests.escalation.runs import child_of, run

pytestmark = pytest.mark.django_db


@pytest.fixture
def tiers(fake_cli, session) -> tuple[Session, Session]:
    """Tier 1, which costs $0.03 and escalates, and Tier 2, which resumes it and costs $0.47."""
    fake_cli.reports(ESCALATE, total_cost_usd=0.03).reports(HEALTHY, total_cost_usd=0.47)
    first = run(session)
    second = run(child_of(first))
    return Session.objects.get(pk=first.pk), second


def test_req4_a_resumed_session_has_its_parent_and_the_id_of_the_cli(tiers, fake_cli):
    first, second = tiers

    tier_2 = fake_cli.calls[-1]
    assert second.parent_session_id == first.pk
    assert tier_2.flag("--resume") == first.session_id
    assert second.session_id == tier_2.flag("--session-id") != first.session_id


def test_req4_the_page_of_the_parent_links_to_the_session_that_resumed_it(tiers, operator_client):
    first, second = tiers

    page = operator_client.get(first.get_absolute_url()).content.decode()

    assert f'<a href="{second.get_absolute_url()}">Session #{second.pk} (Tier 2)</a>' in page


def test_req5_tier_2_cost_is_independent_of_tier_1_cost(tiers):
    first, second = tiers

    assert (first.cost_usd, second.cost_usd) == (Decimal("0.03"), Decimal("0.47"))


def test_req5_running_tier_2_changes_no_figure_of_tier_1(fake_cli, session):
    figures = ("cost_usd", "reported_cost_usd", "input_tokens", "output_tokens", "turns")
    fake_cli.reports(ESCALATE, total_cost_usd=0.03).reports(HEALTHY, total_cost_usd=0.47)
    rows = Session.objects.filter(pk=run(session).pk)
    before = rows.values(*figures).get()

    run(child_of(rows.get()))

    assert rows.values(*figures).get() == before
