"""The lists of cycles and changes in a real browser: addresses, keys, a phone."""

from __future__ import annotations

from django.urls import reverse
from playwright.sync_api import expect

from tests.factories import ChangeFactory, CycleFactory, SessionFactory, three_tier_chain

PHONE = {"width": 390, "height": 844}


def three_cycles() -> list[int]:
    """One that was fixed, one that failed, one with a chain; oldest first."""
    fixed = CycleFactory(outcome="fixed", outcome_reason="The disk was full.")
    failed = SessionFactory(failed=True, cycle=CycleFactory(failed=True))
    SessionFactory(cycle=fixed)
    return sorted([fixed.pk, failed.cycle_id, three_tier_chain()[0].cycle_id])


def test_filters_are_in_the_address_and_survive_a_reload(visit):
    three_cycles()
    page = visit.go(reverse("web:cycles"))

    page.get_by_label("Outcome").select_option("fixed")
    expect(page.locator("[data-row]")).to_have_count(1)
    page.get_by_label("Search", exact=True).fill("disk")
    expect(page.locator("mark")).to_have_text("disk")
    page.reload()

    assert "outcome=fixed" in page.url
    assert "q=disk" in page.url
    expect(page.get_by_label("Outcome")).to_have_value("fixed")
    expect(page.locator("[data-row]")).to_have_count(1)


def test_keyboard_shortcuts_move_search_and_open(visit):
    newest = three_cycles()[-1]
    page = visit.go(reverse("web:cycles"))
    links = page.locator("[data-open]")

    page.keyboard.press("j")
    expect(links.nth(0)).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(links.nth(2)).to_be_focused()
    page.keyboard.press("k")
    expect(links.nth(1)).to_be_focused()
    page.keyboard.press("/")
    search = page.get_by_label("Search everything")
    expect(search).to_be_focused()
    page.keyboard.type("j/k")
    expect(search).to_have_value("j/k")
    search.blur()
    page.keyboard.press("j")
    with page.expect_request(lambda request: request.url.endswith(f"/cycles/{newest}/")):
        page.keyboard.press("Enter")

    expect(page.locator("h1")).not_to_have_text("Cycles")


def test_both_lists_fit_a_phone(visit):
    three_cycles()
    ChangeFactory(kind="edit", path="/srv/a", action="edit /srv/a", diff="-a\n+" + "b" * 500)
    visit.page.set_viewport_size(PHONE)

    for name in ("cycles", "changes"):
        page = visit.go(reverse(f"web:{name}"))
        page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"], name


def test_filters_of_changes_are_in_the_address(visit):
    ChangeFactory()
    ChangeFactory(kind="edit", path="/srv/a", action="edit /srv/a", diff="-a\n+b", service="")
    page = visit.go(reverse("web:changes"))

    page.get_by_label("Kind").select_option("edit")

    expect(page.locator(".change-row")).to_have_count(1)
    expect(page.locator(".diff-added")).to_have_text("+b")
    assert "kind=edit" in page.url
