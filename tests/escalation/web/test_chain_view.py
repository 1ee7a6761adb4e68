"""The page of a cycle: its chain while it runs and afterwards, with each step's reason and cost."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from django.urls import reverse
from django.utils import timezone

from escalation.web.cycle import load_chain_page
from sessions_app.models import Approval, Session
from tests.factories import (
    ApprovalFactory,
    ChangeFactory,
    CycleFactory,
    IncidentFactory,
    SessionEventFactory,
    SessionFactory,
    UserFactory,
    three_tier_chain,
    user_with,
)

pytestmark = pytest.mark.django_db

HTMX = {"HX-Request": "true"}
HOSTILE = "<img src=x onerror=alert(1)>"


def page_of(client, cycle, **options) -> str:
    return client.get(cycle.get_absolute_url(), **options).content.decode()


def step_of(page: str, session: Session) -> str:
    chain = page[page.index('id="chain-heading"') :]
    return chain[chain.index(f"Session #{session.pk} (Tier") :].partition("</li>")[0]


def order_of(page: str, *marks: str) -> list[int]:
    return [page.index(mark) for mark in marks]


def test_an_anonymous_visitor_is_sent_to_the_login(client):
    response = client.get(CycleFactory().get_absolute_url())

    assert response.headers["Location"].startswith(reverse("login"))


def test_an_unknown_cycle_is_not_found(operator_client):
    assert operator_client.get(reverse("web:cycle", args=[99])).status_code == 404


def test_req4_the_page_shows_the_full_chain_in_its_order(operator_client):
    sessions = three_tier_chain()

    page = page_of(operator_client, sessions[0].cycle)

    chain = page[page.index('id="chain-heading"') :]
    places = [chain.index(f"Session #{s.pk} (Tier {s.tier})</a>") for s in sessions]
    assert places == sorted(places)


def test_req4_each_step_shows_reason_model_cost_duration_and_status(operator_client):
    sessions = three_tier_chain()

    page = page_of(operator_client, sessions[0].cycle)

    for session, cost, time in zip(
        sessions, ("$0.03", "$0.47", "$2.00"), ("42 s", "1 min 35 s", "6 min 40 s"), strict=True
    ):
        step = step_of(page, session)
        assert session.model in step
        assert cost in step
        assert time in step
        assert session.get_status_display() in step
        assert session.escalation_reason in step


def test_a_branch_is_shown_with_its_own_outcome(operator_client):
    _first, second, third = three_tier_chain()
    forked = SessionFactory(
        tier=2,
        parent_session=second,
        purpose="fork",
        in_branch=True,
        branch_outcome="could_not_run",
        branch_reason="The disk was not there.",
    )

    for page in (
        page_of(operator_client, third.cycle),
        operator_client.get(forked.get_absolute_url()).content.decode(),
    ):
        label = page[page.index("<b>Another approach</b>") :].partition("<ol")[0]
        assert "could not run" in label
        assert "The disk was not there." in label


def test_the_cycle_goes_on_from_its_own_line_and_not_from_a_branch(operator_client):
    _first, second, third = three_tier_chain()
    SessionFactory(tier=2, parent_session=second, purpose="fork", in_branch=True)

    assert f"Continue from session #{third.pk}" in page_of(operator_client, third.cycle)


def test_req4_what_a_person_added_is_shown_as_a_branch(operator_client):
    _first, second, third = three_tier_chain()
    SessionFactory(tier=2, parent_session=second, purpose="fork")
    SessionFactory(tier=3, parent_session=third, purpose="follow_up")

    page = page_of(operator_client, third.cycle)

    assert page.count('class="branch indent-1"') == 2
    assert "<b>Another approach</b>" in page
    assert f"from session #{second.pk}" in page
    assert "<b>Follow-up question</b>" in page


def test_req5_the_page_shows_the_total_with_a_breakdown_by_tier(operator_client):
    page = page_of(operator_client, three_tier_chain()[2].cycle)

    breakdown = page[page.index('class="tier-costs"') :].partition("</table>")[0]
    assert all(cost in breakdown for cost in ("$0.03", "$0.47", "$2.00", "$2.50"))
    assert '<p class="chain-sum"><b>$2.50</b>' in page


def test_req5_the_page_proves_the_sum_of_tiers(operator_client):
    first = SessionFactory(
        escalated=True, cost_usd=Decimal("0.03"), reported_cost_usd=Decimal("0.03")
    )
    SessionFactory(
        tier=2,
        parent_session=first,
        continued_by="resume",
        cost_usd=Decimal("0.47"),
        reported_cost_usd=Decimal("0.50"),
    )

    page = page_of(operator_client, first.cycle)

    assert "Sum of tiers $0.50 = what the CLI reported for the conversation $0.50 ✓" in page


def test_req5_the_page_ticks_nothing_when_a_cost_is_estimated(operator_client):
    session = SessionFactory(failed=True, estimated_cost_usd=Decimal("0.01"))

    page = page_of(operator_client, session.cycle)

    assert "≈ $0.01 (estimate)" in page
    assert "✓</li>" not in page


def test_a_finished_cycle_shows_open_tasks_first_and_output_last(operator_client):
    session = SessionFactory(report={"summary": "web is down"})
    SessionEventFactory(session=session, said="words")
    session.cycle.incidents.add(IncidentFactory())

    page = page_of(operator_client, session.cycle)

    marks = ("chain-heading", "wants-heading", "actions-heading", "report-heading")
    places = order_of(page, *(f'id="{m}"' for m in (*marks, "changes-heading", "output-heading")))
    assert places == sorted(places)


def test_a_running_cycle_shows_its_chain_and_then_the_output(operator_client):
    session = SessionFactory(running=True)
    SessionEventFactory(session=session, said="words")

    page = page_of(operator_client, session.cycle)

    places = order_of(page, 'id="chain-heading"', 'id="output-heading"', 'id="changes-heading"')
    assert places == sorted(places)


def test_the_reason_of_the_outcome_is_shown_once(operator_client):
    why = "Only you can renew it."
    cycle = CycleFactory(outcome="needs_person", outcome_reason=why)
    SessionFactory(cycle=cycle, escalation_reason=why, error="Only you can renew it")

    page = page_of(operator_client, cycle)

    assert "needs a person" in page
    assert page.count("Only you can renew it") == 1


def test_the_escalation_reason_is_not_repeated_below_the_outcome(operator_client):
    report = {"summary": "down", "escalation": {"needed": True, "reason": "web needs a restart"}}
    cycle = CycleFactory(
        outcome="needs_person",
        outcome_reason="Tier 1 asked for escalation: web needs a restart. Not escalated: dry run.",
    )
    SessionFactory(cycle=cycle, report=report)

    assert page_of(operator_client, cycle).count("web needs a restart") == 1


def test_an_incident_is_shown_with_the_next_task(operator_client):
    session = SessionFactory()
    incident = IncidentFactory(title="web is down")
    incident.cycles.add(session.cycle)

    page = page_of(operator_client, session.cycle)

    assert f'<a href="{incident.get_absolute_url()}">Incident #{incident.pk}: web is down' in page
    assert "Look at it: it has no owner yet." in page


def test_a_change_is_shown_from_the_record(operator_client):
    session = SessionFactory(tier=2)
    ChangeFactory(session=session, command="docker restart web", exit_code=1)

    page = page_of(operator_client, session.cycle)

    assert "<code>docker restart web</code>" in page
    assert "failed, exit code 1" in page


def test_a_chain_stopped_by_a_person_is_not_shown_as_an_error(operator_client):
    cycle = CycleFactory(
        outcome="needs_person", outcome_reason="Tier 1 was stopped by ada.", stopped_by="ada"
    )
    SessionFactory(
        cycle=cycle,
        status="interrupted",
        stop_cause="person",
        stop_requested="ada",
        error="Stopped: ada.",
        escalation_reason="Tier 1 was stopped by ada.",
    )

    page = page_of(operator_client, cycle).partition('id="chain-page"')[2]

    assert "–</span> stopped by ada" in page
    assert "tone-bad" not in page
    assert "needs a person" not in page


def call(number: str, command: str, usage: dict[str, int] | None = None) -> dict[str, object]:
    block = {"type": "tool_use", "id": number, "name": "Bash", "input": {"command": command}}
    message = {"id": f"m-{number}", "content": [block], "usage": usage or {}}
    return {"type": "assistant", "message": message}


def result(number: str) -> dict[str, object]:
    block = {"type": "tool_result", "tool_use_id": number, "content": "done"}
    return {"type": "user", "message": {"content": [block]}}


def test_a_running_chain_shows_clock_cost_and_current_step(operator_client, settings):
    settings.CLAUDEOPS_BUDGET_CHAIN = Decimal("10")
    cycle = CycleFactory(running=True)
    first = SessionFactory(escalated=True, cycle=cycle, cost_usd=Decimal("0.03"))
    second = SessionFactory(
        running=True,
        cycle=cycle,
        parent_session=first,
        tier=2,
        started_at=timezone.now() - timedelta(seconds=125),
        spent_so_far_usd=Decimal("0.25"),
    )
    usage = {"input_tokens": 1_000, "output_tokens": 200}
    SessionEventFactory(session=second, sequence=1, payload=call("a", "df -h", usage))
    SessionEventFactory(session=second, sequence=2, kind="user", payload=result("a"))
    SessionEventFactory(session=second, sequence=3, payload=call("b", "probe web", usage))

    page = page_of(operator_client, cycle)

    assert 'role="timer" data-clock="125">2 min 05 s</span>' in page
    assert "of 30 min 00 s" in page
    assert "<code>probe web</code>, " in page
    assert '<span class="number">$0.25</span> <span class="muted">of $5.00</span>' in page
    assert "2.4k tokens" in page
    assert '<span class="number">$0.28</span> <span class="muted">of $10.00</span>' in page


def test_the_stream_starts_after_the_events_on_the_page(operator_client):
    cycle = CycleFactory(running=True)
    first = SessionFactory(escalated=True, cycle=cycle)
    second = SessionFactory(running=True, cycle=cycle, parent_session=first)
    SessionEventFactory(session=first, sequence=7)
    SessionEventFactory(session=second, sequence=3)

    page = page_of(operator_client, cycle)

    after = f"{first.pk}:7,{second.pk}:3"
    assert f'sse-connect="{cycle.get_absolute_url()}live/?after={after}"' in page


def test_a_finished_chain_opens_no_stream(operator_client):
    page = page_of(operator_client, three_tier_chain()[2].cycle)

    assert "sse-connect" not in page
    assert "hx-trigger" not in page


def test_a_waiting_cycle_can_be_cancelled(operator_client):
    cycle = CycleFactory(running=True, state="queued")
    SessionFactory(running=True, cycle=cycle, status="queued", started_at=None)

    page = page_of(operator_client, cycle)

    assert "waits for a free worker" in page
    assert 'id="cancel-form"' in page
    assert 'id="stop-form"' not in page


def test_a_running_chain_has_one_stop_button_with_a_confirmation(operator_client):
    page = page_of(operator_client, SessionFactory(running=True).cycle)

    assert page.count(">Stop</button>") == 1
    form = page[page.index('id="stop-form"') :].partition("</form>")[0]
    assert 'name="confirm"' in form
    assert "required" in form


def test_a_waiting_approval_is_linked(operator_client):
    approval = ApprovalFactory()

    page = page_of(operator_client, approval.session.cycle)

    assert f'<a href="{approval.get_absolute_url()}">May Tier 3 start?</a>' in page


def test_output_is_hidden_from_roles_that_may_not_see_it(client):
    client.force_login(user_with("viewer"))
    session = SessionFactory(prompt="secret prompt", argv=["claude", "secret-argument"])
    SessionEventFactory(session=session, said="secret words")

    page = page_of(client, session.cycle)

    assert "secret" not in page
    assert ">Stop</button>" not in page


def test_an_htmx_request_gets_only_the_parts_that_change(operator_client):
    page = page_of(operator_client, SessionFactory(running=True).cycle, headers=HTMX)

    assert "<html" not in page
    assert 'id="overview"' in page
    assert 'id="rest" hx-swap-oob="true"' in page
    assert 'id="log"' not in page


def test_an_unchanged_chain_answers_no_content(operator_client):
    cycle = SessionFactory(running=True).cycle
    version = load_chain_page(cycle).version

    response = operator_client.get(cycle.get_absolute_url(), {"version": version}, headers=HTMX)

    assert response.status_code == 204


def test_a_new_tier_a_heartbeat_and_an_approval_change_the_version():
    session = SessionFactory(running=True)
    versions = [load_chain_page(session.cycle).version]

    Session.objects.update(spent_so_far_usd=Decimal("0.10"))
    versions.append(load_chain_page(session.cycle).version)
    SessionFactory(tier=2, parent_session=session, status="queued")
    versions.append(load_chain_page(session.cycle).version)
    ApprovalFactory(session=session, kind=Approval.Kind.COMMAND)
    versions.append(load_chain_page(session.cycle).version)

    assert len(set(versions)) == 4


def test_a_cycle_without_a_session_says_so(operator_client):
    assert "ended before a session began" in page_of(operator_client, CycleFactory(failed=True))


def test_the_whole_answer_is_rendered_in_a_card(operator_client):
    words = "It is the **disk**.\n\n" + "\n\n".join(f"line {n}" for n in range(200))
    session = SessionFactory()
    SessionFactory(
        parent_session=session,
        purpose="follow_up",
        request="Why?",
        requested_by=UserFactory(username="ada"),
        result=words,
    )

    page = page_of(operator_client, session.cycle)

    assert "<strong>disk</strong>" in page
    assert "<p>line 199</p>" in page
    assert "<b>ada</b>" in page


def test_hostile_text_is_escaped_everywhere(operator_client):
    cycle = CycleFactory(outcome_reason=HOSTILE, workdir=HOSTILE, prompt=HOSTILE, drill=HOSTILE)
    fields = ("prompt", "result", "error", "escalation_reason", "continued_why", "model", "request")
    session = SessionFactory(
        cycle=cycle,
        argv=[HOSTILE],
        report={"summary": HOSTILE, HOSTILE: HOSTILE},
        requested_by=UserFactory(username=HOSTILE),
        purpose="follow_up",
        **dict.fromkeys(fields, HOSTILE),
    )
    SessionEventFactory(session=session, said=f"{HOSTILE}\r\nevent: x")
    ChangeFactory(session=session, command=HOSTILE, action=HOSTILE, service=HOSTILE)

    assert "<img src=x" not in page_of(operator_client, cycle)
