from __future__ import annotations

import sys
from pathlib import Path

from escalation.sandbox.layout import installation_paths


def test_state_code_prompts_and_python_environment_are_among_them(settings):
    expected = {
        Path(settings.BASE_DIR),
        Path(settings.CLAUDEOPS_STATE_DIR),
        Path(settings.CLAUDEOPS_PROMPTS_DIR),
        Path(sys.prefix),
    }

    assert expected <= set(installation_paths())


def test_a_database_file_elsewhere_is_among_them_with_its_journals(settings, monkeypatch):
    elsewhere = {"ENGINE": "django.db.backends.sqlite3", "NAME": "/srv/ops.sqlite3"}
    monkeypatch.setitem(settings.DATABASES, "default", elsewhere)

    assert {Path("/srv/ops.sqlite3"), Path("/srv/ops.sqlite3-wal")} <= set(installation_paths())


def test_an_archive_that_is_not_set_hides_nothing(settings):
    settings.CLAUDEOPS_ARCHIVE_DIR = ""

    assert Path() not in installation_paths()
