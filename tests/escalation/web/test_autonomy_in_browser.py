"""Raising the autonomy of a watch, in a real browser."""

from __future__ import annotations

from django.urls import reverse
from playwright.sync_api import expect

from tests.factories import CommandEventFactory, CycleFactory, SessionFactory, WatchFactory


def test_autonomy_is_raised_by_one_level_after_a_confirmation(visit):
    watch = WatchFactory(name="shop", max_tier=1, dry_run=True, approval="3")
    session = SessionFactory(cycle=CycleFactory(watch=watch))
    refused = {"command": "docker restart web", "verdict": "deny", "more": {"allowed_from": 2}}
    CommandEventFactory(session=session, **refused)
    page = visit.go(reverse("web:overview"))
    page.locator(".watch-more > summary").click()
    page.get_by_role("link", name="Autonomy of shop: look").click()
    step = page.get_by_role("listitem").filter(has_text="2. Safe remedies with approval")
    expect(step).to_contain_text("asked a person about 1 command")

    step.get_by_label("I have read what this step does").check()
    step.get_by_role("button", name="Raise to this level").click()

    expect(page.get_by_role("heading", name="Now: safe remedies with approval")).to_be_visible()
    watch.refresh_from_db()
    assert (watch.max_tier, watch.dry_run, watch.approval) == (2, False, "2,3")
