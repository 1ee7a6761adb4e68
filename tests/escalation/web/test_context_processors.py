"""Facts about the installation that every page shows."""

from __future__ import annotations

import pytest
from django.test import RequestFactory

from escalation.web.context_processors import installation


@pytest.fixture
def request_(rf: RequestFactory):
    return rf.get("/")


def test_it_names_the_cli(fake_cli, request_):
    assert installation(request_)["cli"].version == "9.9.9 (Fake Claude)"


def test_a_missing_cli_does_not_break_the_pages(settings, request_, tmp_path):
    settings.CLAUDEOPS_CLAUDE_BIN = str(tmp_path / "nowhere")

    assert installation(request_)["cli"] is None


def test_it_says_whether_a_key_is_configured(fake_cli, request_, monkeypatch):
    before = installation(request_)["api_key_configured"]
    monkeypatch.delenv("ANTHROPIC_API_KEY")

    assert (before, installation(request_)["api_key_configured"]) == (True, False)


def test_it_makes_no_query(fake_cli, request_, django_assert_num_queries, db):
    with django_assert_num_queries(0):
        installation(request_)
