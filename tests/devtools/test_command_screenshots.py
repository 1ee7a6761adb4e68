"""`screenshots`: refusals without a browser, and the list of pictures."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management import call_command

from escalation.errors import RefusalCode
from tests.devtools import screenshots
from tests.devtools.screenshots import pictures
from tests.escalation.refusals import command_refused
from tests.factories import IncidentFactory, three_tier_chain


def away(name: str) -> None:
    raise ImportError(name)


def test_without_playwright_it_is_refused_with_the_command_to_install_it(monkeypatch):
    monkeypatch.setattr(screenshots, "import_module", away)

    with command_refused(RefusalCode.NOT_INSTALLED, match="make dev-install"):
        call_command("screenshots")


def test_without_chromium_it_is_refused_with_the_command_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setattr(screenshots, "CHROMIUM", tmp_path / "chromium")

    with command_refused(RefusalCode.NOT_INSTALLED, match="make browser"):
        call_command("screenshots")


def test_it_runs_in_a_scratch_installation(monkeypatch):
    asked: list[object] = []

    def rerun(more: object) -> int:
        asked.append(more)
        return 0

    monkeypatch.setattr("tests.devtools.management.commands.screenshots.rerun_in_scratch", rerun)

    with pytest.raises(SystemExit):
        call_command("screenshots")

    assert len(asked) == 1


@pytest.mark.django_db
def test_every_picture_has_its_own_file():
    session = three_tier_chain()[2]
    IncidentFactory().cycles.add(session.cycle)

    shown = pictures([session.cycle])

    assert [picture.file for picture in shown] == [
        *("screenshot.png", "docs/cycle.png", "docs/costs.png"),
        *("docs/now-dark.png", "docs/incident.png"),
    ]
    assert [picture.path for picture in shown[:2]] == ["/", session.cycle.get_absolute_url()]


@pytest.mark.parametrize(
    "name", ["screenshot.png", "docs/cycle.png", "docs/costs.png", "docs/incident.png"]
)
def test_the_pictures_of_the_readme_are_small(name):
    picture = Path(__file__).resolve().parents[2] / name

    assert picture.stat().st_size < 200_000
