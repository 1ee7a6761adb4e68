"""The admin in a real browser: its lists fit a laptop."""

from __future__ import annotations

from tests.escalation.web.every_page import every_admin_list, fill_every_page
from tests.escalation.web.test_pages_in_browser import busy_installation

LAPTOP = {"width": 1280, "height": 800}
TOO_WIDE = "document.documentElement.scrollWidth > innerWidth"
CUT_OFF = "[...document.querySelectorAll('.results')].some(t => t.scrollWidth > t.clientWidth + 1)"

# Cells with more lines than words.
BROKEN = """
[...document.querySelectorAll(".results td")]
  .filter(cell => cell.matches(".field-status, .field-state, .field-kind, .field-cost, .nowrap"))
  .filter(cell => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    const lines = new Set([...range.getClientRects()].map(box => Math.round(box.bottom)));
    const most = cell.matches(".nowrap") ? 1 : cell.textContent.trim().split(/\\s+/).length;
    return lines.size > most;
  }).map(cell => cell.textContent.trim())
"""


def test_every_list_fits_a_laptop(visit):
    visit.page.set_viewport_size(LAPTOP)
    fill_every_page(busy_installation())

    too_wide = [
        path for path in every_admin_list() if visit.go(path).evaluate(f"{TOO_WIDE} || {CUT_OFF}")
    ]

    assert too_wide == []


def test_no_list_breaks_a_word(visit):
    visit.page.set_viewport_size(LAPTOP)
    fill_every_page(busy_installation())

    broken = [(path, visit.go(path).evaluate(BROKEN)) for path in every_admin_list()]

    assert [found for found in broken if found[1]] == []
