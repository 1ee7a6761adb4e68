"""Handling an incident in a real browser."""

from __future__ import annotations

from django.urls import reverse
from playwright.sync_api import expect

from tests.factories import IncidentFactory


def test_an_incident_is_acknowledged_snoozed_and_resolved(visit):
    incident = IncidentFactory(title="web is down")
    page = visit.go(reverse("web:overview"))
    page.locator(".inbox").get_by_role("link", name="web is down").click()

    page.get_by_role("button", name="Acknowledge").click()
    expect(page.get_by_text("Acknowledged: you have it.")).to_be_visible()
    page.get_by_label("Snooze").select_option("tomorrow")
    page.get_by_role("button", name="Snooze").click()
    expect(page.get_by_role("status").filter(has_text="Snoozed until")).to_be_visible()
    page.locator("#resolve > summary").click()
    page.get_by_label("What was it?").fill("The disk was full.")
    page.get_by_role("button", name="Resolve it").click()

    expect(page.get_by_role("button", name="Open again")).to_be_visible()
    expect(page.locator(".story-row")).to_have_count(3)
    expect(page.get_by_text("The disk was full.", exact=True)).to_be_visible()
    page.get_by_role("button", name="Copy as post-mortem").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    incident.refresh_from_db()
    assert incident.resolved_as == "person"
