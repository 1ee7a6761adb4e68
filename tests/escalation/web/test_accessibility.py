"""Violations that axe-core finds on every page, in a real browser, light and dark.

`make axe` fetches it. Serious and critical findings count everywhere; moderate ones on our own
pages (the admin's frame is Django's).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.escalation.web.every_page import every_admin_list, every_page, fill_every_page
from tests.escalation.web.test_pages_in_browser import busy_installation

pytestmark = pytest.mark.timeout(900)  # every page, light and dark
ROOT = Path(__file__).resolve().parents[3]
COUNTED = {"serious", "critical"}
COUNTED_ON_OUR_PAGES = {*COUNTED, "moderate"}


def axe_script() -> str:
    found = sorted((ROOT / ".venv" / "axe-core").glob("*/axe.min.js"))
    assert found, "axe-core is not here: `make axe` fetches it"
    return found[-1].read_text()


# The other results are large, and take long to come over from the browser.
VIOLATIONS = "axe.run(document, {resultTypes: ['violations']%s}).then(found => found.violations)"
EVERY_RULE = VIOLATIONS % ""
CONTRAST = VIOLATIONS % ", runOnly: ['color-contrast']"

# A style sheet made by a script: the page's policy forbids every inline style.
NO_TRANSITIONS = """
const still = new CSSStyleSheet();
still.replaceSync("*, *::before, *::after { transition: none !important; }");
document.adoptedStyleSheets = [still];
"""


def findings(page: Any, script: str) -> list[str]:
    """By the debugger, which the page's policy does not bind: it forbids every script but ours."""
    page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
    page.evaluate(script)
    return violations(page, EVERY_RULE)


def findings_in_both_colours(page: Any, script: str) -> list[str]:
    """Dark colours change nothing but colours: the page is looked at again for its contrast.

    The admin fades from one colour to the next, which would give a colour in between.
    """
    page.evaluate(NO_TRANSITIONS)
    page.emulate_media(color_scheme="light")
    light = findings(page, script)
    page.emulate_media(color_scheme="dark")
    return [*light, *violations(page, CONTRAST)]


def violations(page: Any, run: str) -> list[str]:
    counted = COUNTED if "/admin/" in page.url else COUNTED_ON_OUR_PAGES
    return [
        f"{page.url}: {found['id']} ({found['impact']}): {node['target']} {node['html'][:160]}"
        for found in page.evaluate(run)
        if found["impact"] in counted
        for node in found["nodes"][:3]
    ]


def test_axe_reports_no_violation_on_any_page(visit):
    script = axe_script()
    fill_every_page(busy_installation())

    found = [
        text for path in every_page() for text in findings_in_both_colours(visit.go(path), script)
    ]

    assert found == []


@pytest.mark.prove
def test_axe_reports_no_serious_violation_in_the_admin(visit):
    script = axe_script()
    fill_every_page(busy_installation())

    found = [text for path in every_admin_list() for text in findings(visit.go(path), script)]

    assert found == []
