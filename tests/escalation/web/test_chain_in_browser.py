"""The page of a chain in a real browser: live, stopped, cancelled, and through a restart."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from sessions_app.models import Cycle, Session
from tests.factories import (
    ApprovalFactory,
    CycleFactory,
    SessionEventFactory,
    SessionFactory,
    UserFactory,
    three_tier_chain,
)

PHONE = {"width": 390, "height": 844}


def a_running_tier(cycle: Cycle, tier: int = 1, **fields: object) -> Session:
    return SessionFactory(running=True, cycle=cycle, tier=tier, **fields)


def say(session: Session, *numbers: int) -> None:
    for number in numbers:
        SessionEventFactory(session=session, sequence=number, said=f"line {number}")


def test_tiers_appear_on_one_page_and_the_end_shows_the_open_tasks(visit):
    cycle = CycleFactory(running=True)
    first = a_running_tier(cycle)
    say(first, 1)
    page = visit.go(cycle.get_absolute_url())
    expect(page.locator("#live-status")).to_have_text("live")

    first.finish("escalated", cost_usd=Decimal("0.03"), escalation_reason="It needs a restart.")
    second = a_running_tier(cycle, 2, parent_session=first)
    say(second, 1)

    expect(page.locator(f"#tier-{second.pk}")).to_contain_text("Tier 2")
    expect(page.locator(f"#event-{second.pk}-1")).to_contain_text("line 1")
    expect(page.locator("#tier-news")).to_have_text("Tier 2 has begun.")
    expect(page.locator("#overview")).to_contain_text("It needs a restart.")

    second.finish("completed", cost_usd=Decimal("0.47"), report={"summary": "all is well"})
    cycle.finish("fixed", "Tier 2 mended it.")

    expect(page.locator("#rest")).to_contain_text("Tier 2 mended it.")
    expect(page.locator("#live-status")).to_have_text("finished")
    expect(page.locator("#rest + #output")).to_have_count(1)
    expect(page.locator("[hx-trigger]")).to_have_count(0)


def test_the_clock_ticks_and_the_cost_follows_the_heartbeat(visit):
    cycle = CycleFactory(running=True)
    session = a_running_tier(cycle, started_at=timezone.now() - timedelta(seconds=61))
    page = visit.go(cycle.get_absolute_url())
    clock = page.get_by_role("timer")
    expect(clock).to_have_text("1 min 04 s", timeout=10_000)
    expect(clock).to_have_text("1 min 06 s", timeout=10_000)

    Session.objects.filter(pk=session.pk).update(spent_so_far_usd=Decimal("0.25"))

    expect(page.locator(".now-line")).to_contain_text("$0.25 of $2.00")


def test_the_current_step_is_shown(visit):
    cycle = CycleFactory(running=True)
    block = {"type": "tool_use", "id": "a", "name": "Bash", "input": {"command": "probe web"}}
    message = {"type": "assistant", "message": {"id": "m", "content": [block]}}
    session = a_running_tier(cycle)
    page = visit.go(cycle.get_absolute_url())
    expect(page.locator(".now-call")).to_have_text("Claude thinks")

    SessionEventFactory(session=session, sequence=1, payload=message)

    expect(page.locator(".now-call code")).to_have_text("probe web")


def test_the_page_can_be_reopened_while_the_chain_runs(visit):
    cycle = CycleFactory(running=True)
    session = a_running_tier(cycle)
    say(session, *range(80))
    page = visit.go(cycle.get_absolute_url())
    at_end = "log.scrollHeight - log.scrollTop - log.clientHeight < 5"
    expect(page.locator("#live-status")).to_have_text("live")
    assert page.evaluate(at_end)

    page.evaluate("log.scrollTop = 0")
    page.wait_for_function("log.scrollTop === 0")
    say(session, 80)
    page.locator(f"#event-{session.pk}-80").wait_for(state="attached")
    assert page.evaluate("log.scrollTop") == 0


def test_a_restart_of_the_web_server_loses_and_repeats_no_line(context, server):
    cycle = CycleFactory(running=True)
    first = a_running_tier(cycle)
    say(first, 1, 2)
    page = context.new_page()
    page.goto(server.origin + cycle.get_absolute_url())
    expect(page.locator("#live-status")).to_have_text("live")
    say(first, 3)
    page.locator(f"#event-{first.pk}-3").wait_for(state="attached")

    server.stop()
    expect(page.locator("#live-status")).to_contain_text("trying again")
    say(first, 4)
    first.finish("escalated", cost_usd=Decimal("0.03"))
    second = a_running_tier(cycle, 2, parent_session=first)
    say(second, 1, 2)
    server.start()

    page.locator(f"#event-{second.pk}-2").wait_for(state="attached", timeout=15_000)
    say(second, 3)
    page.locator(f"#event-{second.pk}-3").wait_for(state="attached")
    said = page.locator(".line-said pre").all_inner_texts()
    assert said == [f"line {n}" for n in (1, 2, 3, 4, 1, 2, 3)]
    names = page.evaluate("[...document.querySelectorAll('#log > li')].map(line => line.id)")
    assert len(names) == len(set(names))


def test_a_chain_is_stopped_from_its_page(visit):
    session = SessionFactory(running=True)
    page = visit.go(session.cycle.get_absolute_url())

    page.get_by_label("Stop the chain").check()
    page.get_by_role("button", name="Stop").click()

    expect(page.locator("#overview")).to_contain_text("asked it to stop")
    session.refresh_from_db()
    assert session.stop_cause == Session.StopCause.PERSON


def test_a_queued_cycle_is_cancelled_from_its_page(visit):
    cycle = CycleFactory(running=True, state="queued")
    SessionFactory(running=True, cycle=cycle, status="queued", started_at=None)
    page = visit.go(cycle.get_absolute_url())

    page.get_by_role("button", name="Cancel").click()

    expect(page.locator("#overview h1")).to_contain_text("stopped by person-")
    expect(page.locator("#wants-heading + .outcome")).to_contain_text("before Tier 1 began")
    assert Session.objects.get().status == Session.Status.CANCELLED


@pytest.mark.parametrize("which", ["cycle", "session"])
def test_a_page_does_not_say_that_it_waits_while_its_tier_streams(visit, which):
    cycle = CycleFactory(running=True, state="queued")
    session = SessionFactory(running=True, cycle=cycle, status="queued", started_at=None)
    page = visit.go((cycle if which == "cycle" else session).get_absolute_url())
    expect(page.locator("#overview")).to_contain_text("It waits for a free worker")
    expect(page.locator("#live-status")).to_have_text("live")

    assert session.claim()
    session.cycle.begin()
    say(session, 2)

    expect(page.locator("#log")).to_contain_text("line 2")
    expect(page.locator("#overview")).not_to_contain_text("It waits", timeout=1_000)
    expect(page.locator("#overview")).to_have_attribute("data-state", "running")


def test_the_answer_to_a_click_goes_after_the_last_change_of_the_page(visit):
    session = SessionFactory(cycle=CycleFactory(max_tier=1))
    page = visit.go(session.get_absolute_url())
    page.locator("#follow_up summary, summary", has_text="Follow up").first.click()
    page.get_by_label("Your question").fill("Why?")
    page.get_by_role("button", name="Ask").click()
    expect(page.locator(".flash")).to_contain_text("is queued")
    asked = Session.objects.get(purpose="follow_up")

    asked.claim()
    asked.finish("completed", result="The disk was full.")
    asked.cycle.close_again()

    expect(page.locator("#overview")).to_contain_text("The disk was full.")
    expect(page.locator("[hx-trigger]")).to_have_count(0)
    expect(page.locator(".flash")).to_have_count(0, timeout=10_000)


def test_a_waiting_approval_is_shown_with_its_link(visit):
    approval = ApprovalFactory()
    page = visit.go(approval.session.cycle.get_absolute_url())

    page.get_by_role("link", name="May Tier 3 start?").click()

    page.wait_for_url(f"**{approval.get_absolute_url()}")


def test_the_page_is_complete_without_javascript(browser, context, origin):
    session = three_tier_chain()[2]
    SessionEventFactory(session=session, said="the last word")
    plain = browser.new_context(java_script_enabled=False, storage_state=context.storage_state())
    page = plain.new_page()

    page.goto(origin + session.cycle.get_absolute_url())

    expect(page.get_by_text("the last word")).to_be_visible()
    expect(page.locator(".chain-step")).to_have_count(3)
    plain.close()


def test_an_answer_is_a_card_that_fits_a_phone(visit):
    page = visit.page
    page.set_viewport_size(PHONE)
    answer = "| a | b |\n| --- | --- |\n| " + "x" * 400 + " | y |\n\n```\n" + "z" * 400 + "\n```\n"
    asked = {"purpose": "follow_up", "request": "Why?", "requested_by": UserFactory()}
    session = SessionFactory(parent_session=SessionFactory(), result=answer, **asked)

    for path in (session.get_absolute_url(), session.cycle.get_absolute_url()):
        visit.go(path)
        expect(page.locator(".rendered table")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
