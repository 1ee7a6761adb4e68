"""The page of a drill while the real CLI runs, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from escalation.drills.drill import start_drill
from escalation.run.runner import run_to_end

REMEMBER = """
window.seen = [];
new MutationObserver(() => {
  const now = document.querySelector(".now-line");
  if (now) window.seen.push(now.textContent.replace(/\\s+/g, " "));
}).observe(document.body, {childList: true, subtree: true, characterData: true});
"""
LINES = "[...document.querySelectorAll('#log > li')].map(line => line.id)"


@pytest.fixture(autouse=True)
def own_state(settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.CLAUDEOPS_STATE_DIR = tmp_path / "state"
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def clocks_in(page: Page) -> set[str]:
    return {text.partition(" of 15 min")[0] for text in page.evaluate("window.seen")}


def test_one_page_shows_a_drill_from_the_queue_to_its_end(visit):
    cycle = start_drill("three-tiers")
    page = visit.go(cycle.get_absolute_url())
    expect(page.locator("#live-status")).to_have_text("live")
    page.evaluate(REMEMBER)

    run_to_end(cycle, lambda line: None)

    expect(page.locator("#live-status")).to_have_text("finished", timeout=15_000)
    expect(page.locator("#rest")).to_contain_text("Tier 3 fixed it")
    expect(page.locator("#log .tier-heading")).to_have_count(3)
    live = page.evaluate(LINES)
    assert len(live) == len(set(live)) > 15
    assert len(clocks_in(page)) > 1, "the clock stood still"
    seen = " ".join(page.evaluate("window.seen"))
    assert "tokens" in seen
    assert "not charged" in seen

    page.reload()

    assert page.evaluate(LINES) == live
