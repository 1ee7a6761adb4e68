"""A watch made, edited, switched on, paused and removed, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from escalation.run.manifest import accept_first
from sessions_app.models import Cycle, Manifest, Watch
from tests.factories import (
    ChangeFactory,
    CycleFactory,
    IncidentFactory,
    NotificationFactory,
    ServiceStateFactory,
    SessionFactory,
    WatchFactory,
)

WIDTHS = (390, 768, 1280, 1920)
LONG_WORD = "averyveryverylongwordwithoutanyspaceinit" * 8
HOSTILE = f"<script>alert(1)</script><img src=x onerror=alert(1)>\u202e{LONG_WORD}"


@pytest.fixture
def system(tmp_path: Path, settings) -> Path:
    """A directory that a watch may work in, beside the state of the test."""
    settings.CLAUDEOPS_STATE_DIR = tmp_path / "state"
    directory = tmp_path / "system"
    directory.mkdir()
    return directory


def a_busy_watch(system: Path) -> Watch:
    watch: Watch = WatchFactory(name=HOSTILE[:100], instructions=HOSTILE, workdir=str(system))
    for _number in range(45):
        CycleFactory(watch=watch, outcome_reason=HOSTILE)
    for status in ("down", "degraded", "unknown", "healthy"):
        ServiceStateFactory(watch=watch, name=HOSTILE[:200], detail=HOSTILE[:300], status=status)
    incident = IncidentFactory(watch=watch, title=HOSTILE[:200], detail=HOSTILE)
    incident.events.create(kind="opened", text=HOSTILE)
    IncidentFactory(watch=watch, state="resolved", title=HOSTILE[:200], resolved_as="agent")
    session = SessionFactory(cycle=CycleFactory(watch=watch), tier=2)
    ChangeFactory(session=session, action=HOSTILE[:300], service=LONG_WORD[:200])
    NotificationFactory(incident=None, title=HOSTILE[:200], text=HOSTILE)
    (system / "CLAUDE-OPS.md").write_text(f"{HOSTILE}\n\x1b]0;title\x07\r\nevent: x\n")
    return watch


def pages_of(watch: Watch) -> list[str]:
    own = ("watch", "watch_settings", "watch_removal")
    return [
        *(reverse(f"web:{name}", args=[watch.pk]) for name in own),
        *(reverse(f"web:{name}") for name in ("watches", "new_watch", "services", "events")),
    ]


def test_a_watch_is_added_edited_and_removed(visit, system):
    page = visit.go(reverse("web:watches"))
    page.get_by_role("link", name="Make a watch").click()

    page.get_by_label("Name").fill("shop")
    page.get_by_label("Working directory").fill("/nowhere/at/all")
    page.get_by_label("Or a cron expression").fill("sometimes")
    page.get_by_label("Instructions").fill("The storefront must answer.")
    page.get_by_role("button", name="Make it").click()
    expect(page.get_by_text("There is no directory /nowhere/at/all.")).to_be_visible()
    expect(page.get_by_text("is not a cron expression")).to_be_visible()
    expect(page.get_by_label("Instructions")).to_have_value("The storefront must answer.")
    assert visit.complaints == [
        "Failed to load resource: the server responded with a status of 422 (Unprocessable Entity)"
    ]
    visit.complaints.clear()

    page.get_by_label("Working directory").fill(str(system))
    page.get_by_label("Or a cron expression").fill("0 3 * * *")
    page.get_by_role("button", name="Make it").click()
    expect(page.get_by_role("heading", name="shop paused")).to_be_visible()
    expect(page.get_by_text("Switched on, it runs at 03:00, every day.")).to_be_visible()
    expect(page.get_by_text("There is none.")).to_be_visible()

    page.get_by_role("link", name="Edit", exact=True).click()
    page.get_by_label("Or a cron expression").fill("")
    page.get_by_label("Minutes between two cycles").fill("30")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Switched on, it runs every 30 minutes.")).to_be_visible()

    page.get_by_role("button", name="Switch on").click()
    expect(page.get_by_text("runs again, every 30 minutes")).to_be_visible()
    expect(page.locator(".times li")).to_have_count(3)
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("heading", name="shop paused")).to_be_visible()

    cycle: Cycle = CycleFactory(watch=Watch.objects.get(), watch_name="shop")
    page.get_by_role("link", name="Remove").click()
    page.get_by_role("button", name="Remove it").click()
    assert Watch.objects.exists()  # not ticked: not sent
    page.get_by_label("Yes, remove the watch shop").check()
    page.get_by_role("button", name="Remove it").click()
    expect(page.get_by_text("The watch shop is removed.")).to_be_visible()
    assert not Watch.objects.exists()
    assert Cycle.objects.get(pk=cycle.pk).subject == "shop (removed)"

    page = visit.go(reverse("web:events"))
    expect(page.get_by_role("main").get_by_role("listitem")).to_have_count(5)
    expect(page.get_by_text("Switched on.")).to_be_visible()


def test_a_cycle_is_started_with_a_request_from_the_page(visit, system):
    watch = WatchFactory(name="shop", workdir=str(system))
    page = visit.go(watch.get_absolute_url())

    page.get_by_text("Run with a request").click()
    page.get_by_label("What to look at in this run").fill("Look at the backups")
    page.get_by_role("button", name="Run with this request").click()

    page.wait_for_url(lambda url: "/watches/" not in url)
    assert Cycle.objects.get(watch=watch).prompt == "Look at the backups"


def test_a_changed_manifest_is_read_and_accepted(visit, system):
    watch = WatchFactory(name="shop", workdir=str(system))
    (system / "CLAUDE-OPS.md").write_text("# The shop\nNever touch db.\n")
    accept_first(watch, by="ada")
    (system / "CLAUDE-OPS.md").write_text("# The shop\nNever touch db or cache.\n")
    page = visit.go(watch.get_absolute_url())

    page.get_by_role("link", name="Look at the difference").click()
    expect(page.get_by_text("+Never touch db or cache.")).to_be_visible()
    page.get_by_role("button", name="Accept").click()
    assert Manifest.objects.get().accepted_by == "ada"  # not ticked: not sent
    page.get_by_label("I have read the difference").check()
    page.get_by_role("button", name="Accept").click()

    expect(page.get_by_role("button", name="Accept")).to_have_count(0)
    expect(page.get_by_text("Never touch db or cache.")).to_be_visible()
    assert Manifest.objects.get().text == "# The shop\nNever touch db or cache.\n"
    page = visit.go(reverse("web:events"))
    expect(page.get_by_text("Accepted CLAUDE-OPS.md.")).to_be_visible()


def test_the_page_follows_a_cycle_and_keeps_text_in_a_form(visit, system):
    watch = WatchFactory(name="shop", workdir=str(system))
    page = visit.go(watch.get_absolute_url())
    page.get_by_text("Run with a request").click()
    page.get_by_label("What to look at in this run").fill("Look at")

    cycle = CycleFactory(watch=watch, running=True)
    expect(page.get_by_role("link", name=f"cycle {cycle.pk}, ")).to_be_visible(timeout=8_000)
    cycle.finish("needs_person", "The disk is full.")

    expect(page.get_by_text("The disk is full.")).to_be_visible(timeout=8_000)
    expect(page.locator("#announce")).to_have_text("shop: needs a person.")
    expect(page.get_by_label("What to look at in this run")).to_have_value("Look at")


def test_a_page_in_the_background_does_not_poll(visit, system):
    page = visit.go(WatchFactory(workdir=str(system)).get_absolute_url())
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
    page.wait_for_timeout(4_000)
    assert [url for url in asked if "/watches/" in url] == []

    with page.expect_request("**/watches/**"):
        page.evaluate(
            "Object.defineProperty(document, 'hidden', {value: false, configurable: true});"
            "document.dispatchEvent(new Event('visibilitychange'))"
        )


def test_services_are_filtered_in_place(visit):
    ServiceStateFactory(service="web", status="down")
    ServiceStateFactory(service="db")
    page = visit.go(reverse("web:services"))
    expect(page.get_by_role("heading", name="db")).to_be_visible()

    page.get_by_label("Status").select_option("down")

    expect(page.get_by_role("heading", name="db")).to_have_count(0)
    expect(page.get_by_role("heading", name="web")).to_be_visible()
    assert "status=down" in page.url


def test_no_page_scrolls_sideways_or_runs_hostile_text(visit, system):
    watch = a_busy_watch(system)

    for width in WIDTHS:
        visit.page.set_viewport_size({"width": width, "height": 844})
        for path in pages_of(watch):
            page = visit.go(path)
            page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
            seen = page.evaluate("document.documentElement.scrollWidth")
            assert seen == width, f"{path} at {width}"
            assert page.locator("img[src=x]").count() == 0
