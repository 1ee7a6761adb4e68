"""The admin in a real browser: its lists fit a laptop."""

from __future__ import annotations

from tests.sessions_app.pages.every_page import every_admin_list, fill_every_page
from tests.sessions_app.pages.test_pages_in_browser import busy_installation

LAPTOP = {"width": 1280, "height": 800}
TOO_WIDE = "document.documentElement.scrollWidth > innerWidth"
CUT_OFF = "[...document.querySelectorAll('.results')].some(t => t.scrollWidth > t.clientWidth + 1)"


def test_every_list_fits_a_laptop(visit):
    visit.page.set_viewport_size(LAPTOP)
    fill_every_page(busy_installation())

    too_wide = [
        path for path in every_admin_list() if visit.go(path).evaluate(f"{TOO_WIDE} || {CUT_OFF}")
    ]

    assert too_wide == []
