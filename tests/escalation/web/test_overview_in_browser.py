"""The overview and the guide in a real browser; once with the real CLI behind a drill."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection
from django.urls import reverse
from playwright.sync_api import Page, expect

from escalation.run import runner
from escalation.run.runner import next_session
from sessions_app.models import Approval, Cycle, Session, Watch
from tests.escalation.web.test_pages_in_browser import LONG_WORD, PHONE
from tests.escalation.web.visiting import wait_until
from tests.factories import (
    ApprovalFactory,
    CycleFactory,
    IncidentFactory,
    SessionEventFactory,
    SessionFactory,
    WatchFactory,
)

WIDTHS = (390, 768, 1280, 1920)


def test_an_incident_is_acknowledged_snoozed_and_resolved_on_the_overview(visit):
    incident = IncidentFactory(title="web is down")
    page = visit.go("/")
    expect(page).to_have_title("(1) Claude Ops")

    page.get_by_role("button", name="Acknowledge web is down").click()
    expect(page.get_by_text("Acknowledged: you have it.")).to_be_visible()
    expect(page).to_have_title("Claude Ops")
    page.locator(f"#resolve-{incident.pk} > summary").click()
    page.get_by_role("button", name="Snooze 1 h: web is down").click()
    expect(page.get_by_role("status").filter(has_text="Snoozed until")).to_be_visible()
    page.locator(f"#resolve-{incident.pk} > summary").click()
    page.get_by_label("What was it?").fill("The disk was full.")
    page.get_by_role("button", name="Resolve it").click()

    expect(page.get_by_text("The inbox is empty")).to_be_visible()
    expect(page.get_by_text("1 resolved within the last day")).to_be_visible()
    incident.refresh_from_db()
    assert incident.resolved_as == "person"


def test_a_new_incident_is_counted_in_title_and_navigation_and_announced_once(visit):
    page = visit.go("/")
    expect(page).to_have_title("Claude Ops")
    expect(page.locator("#announce")).to_be_empty()

    IncidentFactory(title="web is down").events.create(kind="opened")

    expect(page).to_have_title("(1) Claude Ops", timeout=8_000)
    expect(page.locator("#count-incidents")).to_contain_text("1")
    expect(page.locator("#announce")).to_have_text("1 thing needs you.")


def test_a_refresh_keeps_a_note_that_is_being_written(visit):
    incident = IncidentFactory(title="web is down")
    page = visit.go("/")
    page.locator(f"#resolve-{incident.pk} > summary").click()
    page.get_by_label("What was it?").fill("It was")

    IncidentFactory(title="db is down").events.create(kind="opened")

    expect(page.locator(".inbox").get_by_role("link", name="db is down")).to_be_visible(
        timeout=8_000
    )
    expect(page.get_by_label("What was it?").first).to_have_value("It was")


def test_a_running_step_appears_and_its_clock_ticks(visit):
    session = SessionFactory(running=True)
    page = visit.go("/")
    call = {"type": "tool_use", "name": "Bash", "input": {"command": "probe web"}}

    payload = {"type": "assistant", "message": {"content": [call]}}
    SessionEventFactory(session=session, payload=payload)

    step = page.locator(".now-step")
    expect(step).to_contain_text("now: probe web", timeout=8_000)
    shown = step.inner_text()
    expect(step).not_to_have_text(shown)
    expect(step).to_contain_text("now: probe web")


def test_the_arrow_keys_move_along_a_history_bar(visit):
    watch = WatchFactory()
    cycles = [CycleFactory(watch=watch) for _ in range(3)]
    page = visit.go("/")
    page.locator(".history-bar a").last.focus()

    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")

    page.wait_for_url(lambda url: str(cycles[1].pk) in url)


def open_the_menu(page: Page) -> None:
    page.locator("#cog summary").click()


def test_the_menu_unfolds_on_a_phone_without_javascript(browser, context, origin):
    plain = browser.new_context(
        java_script_enabled=False, storage_state=context.storage_state(), viewport=PHONE
    )
    page = plain.new_page()
    page.goto(origin)
    expect(page.get_by_role("link", name="Sandbox", exact=True)).to_be_hidden()

    open_the_menu(page)
    page.get_by_role("link", name="Sandbox", exact=True).click()

    expect(page).to_have_url(origin + reverse("web:sandbox"))
    plain.close()


def everything_at_once() -> None:
    watch = WatchFactory(name=LONG_WORD[:100], workdir="/" + LONG_WORD)
    for outcome in [*["healthy"] * 41, "fixed", "needs_person", "could_not_run"]:
        CycleFactory(watch=watch, outcome=outcome, outcome_reason=LONG_WORD)
    IncidentFactory(watch=watch, title=LONG_WORD[:200], severity=3, remedy=LONG_WORD[:300])
    ApprovalFactory(of_a_command=True, command=LONG_WORD, why=LONG_WORD)
    session = SessionFactory(running=True, cycle__watch=watch)
    call = {"type": "tool_use", "name": "Bash", "input": {"command": LONG_WORD}}
    payload = {"type": "assistant", "message": {"content": [call]}}
    SessionEventFactory(session=session, payload=payload)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_overview_fits_every_width_in_light_and_dark(visit, scheme):
    everything_at_once()
    visit.page.emulate_media(color_scheme=scheme)

    for width in WIDTHS:
        visit.page.set_viewport_size({"width": width, "height": 900})
        for path in ("/", reverse("web:start"), reverse("web:start") + "?new=1"):
            page = visit.go(path)
            page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
            assert page.evaluate("document.documentElement.scrollWidth") == width, (width, path)


def test_the_guide_leads_from_an_empty_page_to_the_first_result(visit, workdir, monkeypatch):
    monkeypatch.setattr("escalation.web.context_processors.credentials_configured", lambda: True)
    page = visit.go("/")
    page.get_by_role("link", name="Open the guide").click()
    page.get_by_role("textbox", name="Name").fill("shop")
    page.get_by_role("textbox", name="Directory").fill("/nowhere/at/all")
    page.get_by_role("button", name="Make the watch").click()
    expect(page.get_by_text("There is no directory /nowhere/at/all.")).to_be_visible()

    page.get_by_role("textbox", name="Directory").fill(str(workdir))
    page.get_by_role("button", name="Make the watch").click()
    page.get_by_role("button", name="Run the first cycle").click()
    expect(page.get_by_text("It is in the queue")).to_be_visible()

    watch = Watch.objects.get()
    session = watch.cycles.get().sessions.get()
    Session.objects.filter(pk=session.pk).update(status="running")
    Cycle.objects.update(state="running")
    expect(page.get_by_text("Tier 1, now: it starts")).to_be_visible(timeout=8_000)
    session.refresh_from_db()
    session.finish("completed", report={"summary": "web answers 502."})
    session.cycle.finish("needs_person", "Tier 1 only looks.")

    expect(page.get_by_text("web answers 502.")).to_be_visible(timeout=8_000)
    expect(page.locator("#guide[hx-trigger]")).to_have_count(0)
    page.get_by_role("button", name="Switch it on").click()
    expect(page.get_by_text("on, every hour")).to_be_visible()
    watch.refresh_from_db()
    assert (watch.enabled, watch.dry_run, watch.max_tier) == (True, True, 1)


@pytest.fixture
def state(transactional_db, settings, tmp_path: Path) -> Iterator[Path]:
    settings.CLAUDEOPS_STATE_DIR = tmp_path / "state"
    yield settings.CLAUDEOPS_STATE_DIR
    Session.objects.all().ask_to_stop(Session.StopCause.PERSON, "the end of the test")


def run_all(cycle: Cycle) -> None:
    try:
        while session := next_session(cycle):
            runner.run(session)
    finally:
        connection.close()


def test_a_newcomer_reads_a_drill_approves_a_command_and_goes_on_to_a_watch(state, visit):
    played = CycleFactory(drilled=True, outcome="fixed")
    SessionFactory(cycle=played, report={"summary": "web was down and was restarted."})
    page = visit.go("/")
    expect(page.get_by_text("web was down and was restarted.")).to_be_visible()
    page.get_by_role("button", name="Start the drill that asks you").click()
    expect(page.get_by_text("is queued: it costs nothing")).to_be_visible()
    cycle = Cycle.objects.latest("pk")
    worker = threading.Thread(target=run_all, args=[cycle])
    worker.start()

    visit.go("/")
    inbox = page.locator(".inbox")
    expect(inbox.get_by_role("link", name="may a command of Tier 2 run?")).to_be_visible(
        timeout=30_000
    )
    expect(inbox.locator(".badge.drill").first).to_be_visible()
    expect(page).to_have_title("Claude Ops")  # a drill needs nobody
    page.get_by_role("link", name="Look at it and answer").click()
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("Approved: the command runs")).to_be_visible()

    wait_until(lambda: Cycle.objects.get(pk=cycle.pk).outcome == Cycle.Outcome.FIXED, 30)
    worker.join(30)
    assert not worker.is_alive()
    assert Approval.objects.get().state == Approval.State.APPROVED
    visit.go("/")
    expect(page.locator(".first-start .badge", has_text="done")).to_be_visible()
    page.get_by_role("link", name="Open the guide").click()
    expect(page).to_have_title("First start · Claude Ops")
