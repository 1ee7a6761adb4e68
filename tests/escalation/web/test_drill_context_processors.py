"""The scenarios that the pages offer."""

from __future__ import annotations

from pathlib import Path

import pytest

from escalation.web.drills import scenarios_for
from tests.factories import user_with

pytestmark = pytest.mark.django_db


@pytest.fixture
def names():
    operator = user_with("operator")
    return lambda: [scenario.name for scenario in scenarios_for(operator)]


def test_it_lists_the_scenarios_of_the_drills(names):
    assert "all-healthy" in names()
    assert names() == sorted(names())


def test_an_unreadable_scenario_is_left_out(names, settings, tmp_path: Path):
    (tmp_path / "broken.toml").write_text("title = ")
    (tmp_path / "mine.toml").write_text("title = 'Mine'")
    settings.CLAUDEOPS_SCENARIOS_DIR = str(tmp_path)

    assert "mine" in names()
    assert "broken" not in names()


def test_a_viewer_gets_no_scenarios():
    assert scenarios_for(user_with("viewer")) == []
