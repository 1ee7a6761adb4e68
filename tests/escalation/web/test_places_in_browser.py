"""Search, History, accounts and the board in a real browser: keyboard, phone, and no JavaScript."""

from __future__ import annotations

import re

from django.utils import timezone
from playwright.sync_api import expect

from escalation.run.searchable import index_run
from sessions_app.models import WorkerHeartbeat
from tests.factories import (
    PASSWORD,
    CycleFactory,
    IncidentFactory,
    ProbeFactory,
    SessionFactory,
    WatchFactory,
    user_with,
)

SIZES = ({"width": 390, "height": 844}, {"width": 1280, "height": 800})
PLACES = (
    *("/search/?q=queuepool", "/search/", "/search/?q=xylophone", "/board/"),
    *("/cycles/", "/sessions/", "/changes/", "/events/", "/accounts/"),
)


def record(watches: int = 3) -> None:
    WorkerHeartbeat.objects.create(host="here", pid=1)
    for number in range(watches):
        watch = WatchFactory(name=f"system-{number}-of-the-house")
        cycle = CycleFactory(
            watch=watch, state="finished", outcome="healthy", finished_at=timezone.now()
        )
        report = {"summary": f"QueuePool limit of size {number} reached, connection timed out"}
        index_run(SessionFactory(cycle=cycle, status="completed", report=report))
    IncidentFactory(watch=WatchFactory(name="broken"), title="web: pool exhausted", severity=3)
    ProbeFactory(watch=WatchFactory(name="probed"), name="web-http", state="down")


def test_a_slash_or_ctrl_k_leads_to_the_search_and_enter_finds(visit):
    record()
    for keys, path in (("/", "/"), ("Control+k", "/cycles/"), ("/", "/cycles/")):
        page = visit.go(path)
        page.keyboard.press(keys)
        expect(page.locator("#find")).to_be_focused()
    page.keyboard.type("queuepool/x")
    expect(page.locator("#find")).to_have_value("queuepool/x")
    page.locator("#find").fill("QueuePool")
    page.keyboard.press("Enter")

    expect(page.locator("h1")).to_contain_text("for “QueuePool”")
    assert page.locator("main mark").first.inner_text() == "QueuePool"


def test_the_places_fit_on_phone_and_tablet(visit):
    record()
    for size in SIZES:
        visit.page.set_viewport_size(size)
        for path in PLACES:
            page = visit.go(path)
            width = page.evaluate("document.documentElement.scrollWidth")
            assert width == size["width"], f"{path} at {size['width']}"


def test_twelve_and_forty_watches_fit_on_one_screen_of_a_tablet(visit):
    visit.page.set_viewport_size(SIZES[1])
    record(10)
    for count in (12, 40):
        page = visit.go("/board/")
        expect(page.locator(".board-tile")).to_have_count(count)
        assert page.evaluate("document.documentElement.scrollHeight") <= SIZES[1]["height"]
        for number in range(28):
            WatchFactory(name=f"more-{count}-{number}")


def test_a_board_that_is_not_renewed_says_so(visit, server):
    record(1)
    page = visit.go("/board/")
    expect(page.locator("#board-stale")).to_be_hidden()
    page.clock.install()
    visit.go("/board/")
    page.route("**/board/?version=*", lambda route: route.abort())
    page.clock.run_for(45_000)

    expect(page.locator("#board-stale")).to_contain_text(re.compile("Not renewed since"))
    visit.complaints.clear()  # the browser says that the requests failed


def test_without_javascript_search_and_invitation_work(browser, origin):
    record()
    user_with("admin", username="root")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{origin}/login/")
    page.get_by_label("User name").fill("root")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.locator("#find").fill("queuepool")
    page.locator("#find").press("Enter")
    expect(page.locator("main mark").first).to_have_text("QueuePool")

    page.goto(f"{origin}/accounts/")
    page.get_by_label("Name").fill("ada")
    page.get_by_role("button", name="Make a link").click()
    link = page.locator("#invitation-link").inner_text()
    invited = browser.new_context(java_script_enabled=False).new_page()
    invited.goto(link)
    for label in ("New password", "New password confirmation"):
        invited.get_by_label(label, exact=True).fill("four words for ada here")
    invited.get_by_role("button", name="Log in with it").click()
    expect(invited.get_by_role("heading", level=1)).to_be_visible()
    assert invited.url == f"{origin}/"
    context.close()
