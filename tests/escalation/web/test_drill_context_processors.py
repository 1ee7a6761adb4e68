"""What every page may offer to rehearse."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.test import RequestFactory

from escalation.rehearsal.context_processors import scenarios


@pytest.fixture
def names(rf: RequestFactory):
    return lambda: [scenario.name for scenario in scenarios(rf.get("/"))["scenarios"]]


def test_it_lists_the_scenarios_of_the_drills(names):
    assert "all-healthy" in names()
    assert names() == sorted(names())


def test_a_scenario_that_cannot_be_read_is_left_out(names, settings, tmp_path: Path):
    (tmp_path / "broken.toml").write_text("title = ")
    (tmp_path / "mine.toml").write_text("title = 'Mine'")
    settings.CLAUDEOPS_SCENARIOS_DIR = str(tmp_path)

    assert "mine" in names()
    assert "broken" not in names()


def test_it_asks_the_database_nothing(names, django_assert_num_queries, db):
    with django_assert_num_queries(0):
        names()
