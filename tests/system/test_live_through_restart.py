"""A drill watched in a real browser while its web server is killed and started again.

The drill's command waits for a person, so that there is a before, a meanwhile and an afterwards,
however fast the machine is.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from escalation.agent.event_text import describe_event
from tests.escalation.web.conftest import CHROMIUM, QUIET
from tests.system.conftest import TIMEOUT_SECONDS, Installation, wait_until

DRILL = "asks-before-acting"
PASSWORD = "correct horse battery"
TIMEOUT = TIMEOUT_SECONDS * 1000
LINES = "[...document.querySelectorAll('#log > li.entry')].map(line => line.id)"


@pytest.fixture
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture
def origin(migrated: Installation) -> str:
    migrated.environment["CLAUDEOPS_ADMIN_PASSWORD"] = PASSWORD
    made = migrated.manage("upgrade")
    assert made.returncode == 0, made.stderr
    return f"http://127.0.0.1:{migrated.environment['CLAUDEOPS_PORT']}"


def start_web(installation: Installation, origin: str) -> subprocess.Popen[str]:
    web = installation.start("web")
    wait_until(lambda: answers(origin), "the web server answers")
    return web


def answers(origin: str) -> bool:
    try:
        with urllib.request.urlopen(f"{origin}/healthz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def kill(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def log_in(browser: Browser, origin: str) -> Page:
    page = browser.new_page()
    page.goto(f"{origin}/login/")
    page.get_by_label("User name").fill("operator")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"{origin}/")
    return page


def recorded(installation: Installation) -> list[str]:
    """What every event with something to say is called on the page, read from the raw record."""
    events = installation.rows(
        "SELECT session_id, sequence, source, kind, payload FROM sessions_app_sessionevent"
        " ORDER BY session_id, sequence"
    )
    return [
        f"event-{session}-{sequence}"
        for session, sequence, source, kind, payload in events
        if describe_event(source, kind, json.loads(payload))
    ]


def a_command_waits(installation: Installation) -> bool:
    return installation.rows("SELECT state FROM sessions_app_approval") == [("waiting",)]


@pytest.mark.prove
def test_every_line_is_shown_exactly_once_through_restarts_of_the_web_server(
    migrated: Installation, origin: str, browser: Browser
):
    web = start_web(migrated, origin)
    page = log_in(browser, origin)
    drill = migrated.manage("drill", DRILL, "--queue")
    assert drill.returncode == 0, drill.stderr
    page.goto(f"{origin}/cycles/1/")
    expect(page.locator("#live-status")).to_have_text("live", timeout=TIMEOUT)
    migrated.start("worker")
    page.locator("#log > li.entry").first.wait_for(state="attached", timeout=TIMEOUT)

    kill(web)
    before = page.evaluate(LINES)
    wait_until(lambda: a_command_waits(migrated), "the drill goes on without a web server")
    meanwhile = recorded(migrated)
    start_web(migrated, origin)
    page.locator(f"#{meanwhile[-1]}").wait_for(state="attached", timeout=TIMEOUT)
    approved = migrated.manage("approval", "approve", "1", "--as", "operator")
    assert approved.returncode == 0, approved.stderr
    expect(page.locator("#live-status")).to_have_text("finished", timeout=TIMEOUT)

    lines = page.evaluate(LINES)
    everything = recorded(migrated)
    assert len(before) < len(meanwhile) < len(everything)
    assert sorted(lines) == sorted(everything)
    expect(page.locator("#rest")).to_contain_text("web was restarted and answers its users")
    page.reload()
    assert page.evaluate(LINES) == everything
