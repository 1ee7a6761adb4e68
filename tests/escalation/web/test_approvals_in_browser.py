"""Asking, approving and rejecting in a real browser; once with the real CLI behind it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection
from django.urls import reverse
from playwright.sync_api import expect

from escalation.drills.drill import drill_directory, start_drill
from escalation.run import runner
from escalation.run.runner import next_session
from escalation.supervisor.approvals import link_for
from sessions_app.models import Approval, Cycle, Session
from tests.escalation.web.test_pages_in_browser import LONG_WORD, PHONE
from tests.escalation.web.visiting import wait_until
from tests.factories import ApprovalFactory, SessionFactory, user_with


def test_a_tier_is_approved_on_its_page(visit):
    approval = ApprovalFactory(plan="Move the logs away.")
    page = visit.go("/")
    page.get_by_role("link", name="may Tier 3 start?").click()

    expect(page.get_by_role("heading", name="May Tier 3 start?")).to_be_visible()
    page.get_by_label("Note").fill("Go on.")
    page.get_by_role("button", name="Approve").click()

    expect(page.get_by_text("Approved: Tier 3 is queued.")).to_be_visible()
    approval.refresh_from_db()
    assert (approval.state, approval.note) == (Approval.State.APPROVED, "Go on.")


def test_a_command_is_rejected_with_a_note(visit):
    approval = ApprovalFactory(of_a_command=True)
    page = visit.go(approval.get_absolute_url())
    page.get_by_label("Note").fill("Not on a Friday.")
    page.get_by_role("button", name="Reject").click()

    expect(page.get_by_text("Rejected: it does not run.")).to_be_visible()
    assert page.url.endswith(approval.session.cycle.get_absolute_url())
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    approval.refresh_from_db()
    assert approval.note == "Not on a Friday."


def test_on_a_phone_both_buttons_are_on_the_first_screen_and_on_the_page_of_the_cycle(visit):
    approval = ApprovalFactory(of_a_command=True, why="Restarts need approval. " * 8)
    visit.page.set_viewport_size(PHONE)
    page = visit.go(approval.get_absolute_url())
    for name in ("Approve", "Reject"):
        box = page.get_by_role("button", name=name).bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 600

    page = visit.go(approval.session.cycle.get_absolute_url())
    page.get_by_role("button", name="Approve").click()

    expect(page.get_by_text("Approved: the command runs")).to_be_visible()
    approval.refresh_from_db()
    assert (approval.state, approval.way) == (Approval.State.APPROVED, Approval.Way.PAGE)


def test_an_approval_link_works_without_a_login(browser, origin):
    approval = ApprovalFactory()
    page = browser.new_page()
    page.goto(origin + link_for(approval, user_with("approver", username="grace")))
    expect(page.get_by_text("good for one answer")).to_be_visible()
    page.get_by_role("button", name="Approve").click()

    expect(page.get_by_text("Approved: Tier 3 is queued.")).to_be_visible()
    page.goto(origin + "/")
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    page.close()


def full_of_everything() -> list[str]:
    command = ApprovalFactory(
        of_a_command=True, command=f"echo {LONG_WORD}", plan=LONG_WORD, cwd=f"/{LONG_WORD}"
    )
    ApprovalFactory(of_a_command=True, state=Approval.State.REJECTED, note=LONG_WORD)
    session = SessionFactory(running=True, tier=2)
    ApprovalFactory(of_a_command=True, session=session, command=LONG_WORD)
    link = link_for(command, user_with("approver"))
    pages = [reverse("web:approvals"), command.get_absolute_url(), link]
    return [*pages, session.get_absolute_url(), "/"]


def test_no_page_logs_an_error_or_scrolls_sideways_on_a_phone(visit):
    visit.page.set_viewport_size(PHONE)

    for path in full_of_everything():
        page = visit.go(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path


def test_an_approval_is_answered_without_javascript(browser, context, origin):
    cookies = context.cookies()
    plain = browser.new_context(java_script_enabled=False)
    plain.add_cookies(cookies)
    approval = ApprovalFactory()
    page = plain.new_page()
    page.goto(origin + approval.get_absolute_url())
    page.get_by_role("button", name="Approve").click()

    expect(page.get_by_text("Approved: Tier 3 is queued.")).to_be_visible()
    plain.close()


@pytest.fixture
def drill(transactional_db, settings, tmp_path: Path) -> Iterator[Cycle]:
    """The drill with the real CLI, tier after tier, beside the browser."""
    settings.CLAUDEOPS_STATE_DIR = tmp_path / "state"
    cycle = start_drill("asks-before-acting")

    def run_all() -> None:
        try:
            while session := next_session(cycle):
                runner.run(session)
        finally:
            connection.close()

    thread = threading.Thread(target=run_all)
    thread.start()
    yield cycle
    Session.objects.all().ask_to_stop(Session.StopCause.PERSON, "the end of the test")
    thread.join(30)
    assert not thread.is_alive()


def test_the_real_cli_waits_until_a_person_has_approved_in_the_browser(visit, drill):
    state = drill_directory(drill) / "system/containers/web.state"
    page = visit.go("/")
    page.get_by_role("link", name="may a command of Tier 2 run?").click(timeout=30_000)
    expect(page.get_by_text("docker restart web").first).to_be_visible()
    assert state.read_text().startswith("Exited")
    session = Session.objects.get(tier=2)
    page.goto(visit.origin + session.get_absolute_url())
    expect(page.get_by_text("It waits for a person.")).to_be_visible()
    expect(page.locator("#log").get_by_text("Waits for approval")).to_be_visible()

    page.get_by_role("link", name="May docker restart web run?").click()
    page.get_by_role("button", name="Approve").click()

    expect(page.get_by_text("Approved: the command runs")).to_be_visible()
    wait_until(lambda: Cycle.objects.get().outcome == Cycle.Outcome.FIXED, 30)
    assert state.read_text().startswith("Up")
