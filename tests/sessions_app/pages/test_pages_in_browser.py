"""The pages in a real browser, served by the real ASGI server.

Live output needs async streaming, which pytest-django's own live server cannot do, so uvicorn runs
in a thread on the test database. Every page is held to: no console message, nothing blocked by the
content security policy, and no request to any other address.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from urllib.parse import urlsplit

import pytest
import uvicorn
from django.conf import settings
from django.test import Client
from django.urls import reverse
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect, sync_playwright

from sessions_app.models import Session
from tests.factories import (
    PASSWORD,
    CycleFactory,
    SessionEventFactory,
    SessionFactory,
    UserFactory,
    WatchFactory,
    three_tier_chain,
)

CHROMIUM = "/usr/bin/chromium"
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PHONE = {"width": 390, "height": 844}
LONG_WORD = "averyveryverylongwordwithoutanyspaceinit" * 6


@dataclass
class Visit:
    """A page under observation, with all that it must not do."""

    page: Page
    origin: str
    complaints: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._check_address)

    def _check_address(self, request: Request) -> None:
        if urlsplit(request.url).netloc != urlsplit(self.origin).netloc:
            self.foreign.append(request.url)

    def go(self, path: str) -> Page:
        self.page.goto(self.origin + path)
        return self.page


@pytest.fixture(scope="module", autouse=True)
def _allow_database_beside_playwright() -> Iterator[None]:
    """Playwright keeps an event loop in this thread, which Django takes for an async view."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        yield


@pytest.fixture(scope="module")
def browser(_allow_database_beside_playwright) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture
def origin(transactional_db) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        "claudeops.asgi:application",
        lifespan="off",
        ws="none",
        log_level="error",
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(timeout=10)
    listener.close()


@pytest.fixture
def context(browser: Browser, origin: str) -> Iterator[BrowserContext]:
    """A browser in which an operator is logged in."""
    client = Client()
    client.force_login(UserFactory(is_staff=True, is_superuser=True))
    context = browser.new_context()
    cookie = client.cookies[settings.SESSION_COOKIE_NAME].value
    context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": cookie, "url": origin}])
    yield context
    context.close()


@pytest.fixture
def visit(context: BrowserContext, origin: str) -> Iterator[Visit]:
    visit = Visit(context.new_page(), origin)
    yield visit
    assert visit.complaints == []
    assert visit.foreign == []


def wait_until(condition, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def busy_installation() -> Session:
    """Data with everything that could break a page: long, hostile, failed, running."""
    session = three_tier_chain(
        cycle=CycleFactory(outcome_reason=LONG_WORD, workdir="/" + LONG_WORD)
    )[2]
    Session.objects.filter(pk=session.pk).update(
        report={"summary": LONG_WORD, "services": [{"name": LONG_WORD, "status": "down"}]},
        argv=["claude", LONG_WORD],
        error=f"<script>alert(1)</script> {LONG_WORD}",
        model_used=LONG_WORD[:90],
        **{"continued_guard": LONG_WORD[:40], "continued_why": LONG_WORD, "request": LONG_WORD},
        **{"handoff": {LONG_WORD: LONG_WORD}, "continuation_facts": {LONG_WORD: LONG_WORD}},
        **{"continued_by": "handoff", "estimated_cost_usd": "0.0123", "cost_usd": None},
    )
    SessionEventFactory(session=session, sequence=1, said=f"<script>alert(1)</script>{LONG_WORD}")
    for purpose in ("follow_up", "fork", "retry"):
        branch = SessionFactory(parent_session=session, tier=3, purpose=purpose, failed=True)
        SessionFactory(parent_session=branch, tier=3, purpose="fork", request=LONG_WORD)
    SessionFactory(running=True)
    SessionFactory(drill=True, failed=True)
    return session


def addresses(session: Session) -> list[str]:
    return [
        reverse("sessions_app:dashboard"),
        reverse("sessions_app:sessions"),
        reverse("sessions_app:costs"),
        session.get_absolute_url(),
        reverse("sessions_app:session_events", args=[session.pk]),
        reverse("admin:sessions_app_session_changelist"),
    ]


def test_no_page_complains_or_calls_anybody_else(visit):
    for path in addresses(busy_installation()):
        visit.go(path).wait_for_load_state("load")


def test_no_page_scrolls_sideways_on_a_phone(visit):
    visit.page.set_viewport_size(PHONE)

    for path in addresses(busy_installation())[:5]:
        page = visit.go(path)
        page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"], path


def test_a_stranger_can_log_in(browser, origin):
    UserFactory(username="ada")
    page = browser.new_context().new_page()

    page.goto(origin)
    page.get_by_label("User name").fill("ada")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()

    expect(page.get_by_role("heading", name="Watches")).to_be_visible()
    page.context.close()


def test_output_appears_while_the_session_runs_and_the_page_ends_with_it(visit):
    session = SessionFactory(running=True)
    SessionEventFactory(session=session, sequence=1, said="before the page")
    page = visit.go(session.get_absolute_url())
    expect(page.locator("#live-status")).to_have_text("live")

    SessionEventFactory(session=session, sequence=2, said="while it runs <b>")

    expect(page.locator("#event-2")).to_contain_text("while it runs <b>", timeout=3_000)
    expect(page.locator("#event-1")).to_have_count(1)

    session.finish("completed", cost_usd=Decimal("0.47"), report={"summary": "all is well"})
    session.cycle.finish("fixed", "Tier 1 mended it.")

    expect(page.locator("#overview")).to_contain_text("Tier 1 mended it.")
    expect(page.locator("#overview")).to_contain_text("$0.47")
    expect(page.locator("#overview")).to_contain_text("all is well")
    expect(page.locator("#live-status")).to_have_text("finished")
    expect(page.locator("[hx-trigger]")).to_have_count(0)


def test_a_broken_connection_loses_and_repeats_nothing(visit, monkeypatch):
    monkeypatch.setattr("sessions_app.pages.live.LONGEST_STREAM_SECONDS", 0.2)
    session = SessionFactory(running=True)
    page = visit.go(session.get_absolute_url())

    for number in range(1, 4):
        SessionEventFactory(session=session, sequence=number)
        page.locator(f"#event-{number}").wait_for(timeout=5_000)
        expect(page.locator("#live-status")).to_contain_text("trying again")
    session.finish("completed")

    expect(page.locator("#live-status")).to_have_text("finished")
    expect(page.locator(".line-said")).to_have_count(3)
    visit.complaints.clear()  # htmx writes each broken connection to the console


def test_the_next_tier_appears_in_the_chain_by_itself(visit):
    first = SessionFactory(running=True)
    page = visit.go(first.get_absolute_url())

    first.finish("escalated", cost_usd=Decimal("0.03"))
    second = SessionFactory(tier=2, parent_session=first)

    link = page.get_by_role("link", name=f"Session #{second.pk} (Tier 2)")
    expect(link).to_be_visible()


def test_the_log_follows_its_end_until_the_reader_scrolls_up(visit):
    session = SessionFactory(running=True)
    for number in range(80):
        SessionEventFactory(session=session, sequence=number, said=f"line {number}")
    page = visit.go(session.get_absolute_url())
    at_end = "log.scrollHeight - log.scrollTop - log.clientHeight < 5"
    expect(page.locator("#live-status")).to_have_text("live")
    assert page.evaluate(at_end)

    SessionEventFactory(session=session, sequence=80, said="followed")
    expect(page.locator("#event-80")).to_be_visible()
    assert page.evaluate(at_end)

    page.evaluate("log.scrollTop = 0")
    page.wait_for_function("log.scrollTop === 0")
    SessionEventFactory(session=session, sequence=81, said="not followed")
    page.locator("#event-81").wait_for(state="attached")
    assert page.evaluate("log.scrollTop") == 0


def test_what_the_reader_opened_stays_open_when_the_page_refreshes(visit):
    session = SessionFactory(running=True, prompt="Look after it.")
    page = visit.go(session.get_absolute_url())
    page.get_by_text("Prompt", exact=True).click()

    session.finish("completed")

    expect(page.locator("#overview")).to_have_attribute("data-state", "completed")
    expect(page.get_by_text("Look after it.")).to_be_visible()


def test_the_dashboard_refreshes_by_itself(visit):
    session = SessionFactory(running=True)
    page = visit.go(reverse("sessions_app:dashboard"))
    expect(page.locator("#dashboard")).to_contain_text("Tier 1 running")

    session.finish("completed", cost_usd=Decimal("0.03"))
    session.cycle.finish("healthy", "Nothing to do here.")

    expect(page.locator("#dashboard")).to_contain_text("Nothing to do here.", timeout=8_000)


def test_a_refresh_does_not_undo_the_choice_of_a_drill(visit):
    session = SessionFactory(running=True)
    page = visit.go(reverse("sessions_app:dashboard"))
    page.get_by_label("Scenario").select_option(index=1)
    chosen = page.get_by_label("Scenario").input_value()

    session.finish("completed")

    expect(page.locator("#dashboard")).to_contain_text("Tier 1 completed", timeout=8_000)
    assert page.get_by_label("Scenario").input_value() == chosen


def test_a_waiting_cycle_opens_its_session_when_it_begins(visit):
    cycle = CycleFactory(running=True, state="queued")
    page = visit.go(cycle.get_absolute_url())

    session = SessionFactory(running=True, cycle=cycle)

    page.wait_for_url(f"**{session.get_absolute_url()}")


def test_the_list_is_filtered_without_leaving_the_page(visit):
    failed, good = SessionFactory(failed=True), SessionFactory()
    page = visit.go(reverse("sessions_app:sessions"))

    page.get_by_label("Status").select_option("failed")

    expect(page.locator(f'a[href="{good.get_absolute_url()}"]')).to_have_count(0)
    expect(page.locator(f'a[href="{failed.get_absolute_url()}"]')).to_have_count(1)
    assert "status=failed" in page.url


def test_earlier_output_is_loaded_in_place(visit, monkeypatch):
    monkeypatch.setattr("sessions_app.pages.session_page.EVENTS_SHOWN", 3)
    session = SessionFactory()
    for number in range(5):
        SessionEventFactory(session=session, sequence=number)
    page = visit.go(session.get_absolute_url())

    page.get_by_role("link", name="Load earlier output").click()

    expect(page.locator(".entry")).to_have_count(5)


def test_a_person_escalates_by_hand_with_a_reason_and_a_confirmation(visit):
    session = SessionFactory(tier=1)
    page = visit.go(session.get_absolute_url())
    page.locator("#action-escalate_session > summary").click()
    form = page.locator("#action-escalate_session form")

    form.get_by_role("button").click()
    assert page.url.endswith(session.get_absolute_url())  # no reason, no confirmation: not sent

    form.get_by_label("Reason").fill("It needs more than looking.")
    form.get_by_label("Yes, run Tier 2").check()
    form.get_by_role("button").click()

    page.wait_for_url(lambda url: not url.endswith(session.get_absolute_url()))
    child = session.children.get()
    assert (child.tier, child.request) == (2, "It needs more than looking.")


def test_a_refresh_does_not_undo_what_somebody_is_writing(visit):
    watch, session = WatchFactory(), SessionFactory(running=True)
    page = visit.go(reverse("sessions_app:dashboard"))
    page.locator(f"#run-options-{watch.pk} > summary").click()
    page.locator(f"#prompt-{watch.pk}").fill("Look at the backups")

    session.finish("completed")

    expect(page.locator("#dashboard")).to_contain_text("Tier 1 completed", timeout=8_000)
    expect(page.locator(f"#prompt-{watch.pk}")).to_have_value("Look at the backups")
    expect(page.locator(f"#prompt-{watch.pk}")).to_be_visible()


def test_the_actions_appear_when_the_run_has_ended(visit):
    session = SessionFactory(running=True)
    page = visit.go(session.get_absolute_url())
    expect(page.locator("#live-status")).to_have_text("live")

    session.finish("completed")
    session.cycle.finish("healthy", "All is well.")

    expect(page.locator("#action-follow_up")).to_be_visible()


def test_a_poll_after_logging_out_leads_to_the_login_page(visit, context):
    page = visit.go(reverse("sessions_app:dashboard"))

    context.clear_cookies()

    page.wait_for_url("**/login/**", timeout=10_000)


def test_every_page_works_without_javascript(browser, context, origin):
    session = busy_installation()
    plain = browser.new_context(java_script_enabled=False, storage_state=context.storage_state())
    page = plain.new_page()

    page.goto(origin + reverse("sessions_app:sessions"))
    page.get_by_label("Tier").select_option("3")
    page.get_by_role("button", name="Filter").click()
    page.locator(".id").get_by_role("link", name=f"#{session.pk}").click()

    expect(page.get_by_role("heading", name=f"Session #{session.pk}")).to_be_visible()
    plain.close()
