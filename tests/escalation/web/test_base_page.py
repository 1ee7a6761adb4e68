"""Common parts of every page, and the error pages."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from django.contrib.messages import constants
from django.contrib.messages.storage.base import Message
from django.template.loader import render_to_string
from django.urls import reverse

from tests.factories import UserFactory

CLI = SimpleNamespace(path="/opt/claude", source="bundled", version="2.1.325")


def base_page(**context: object) -> str:
    seen = {"user": UserFactory.build(), "may": {"see": True}, "cli": CLI}
    context = {**seen, "api_key_configured": True, **context}
    return render_to_string("base.html", context)


def test_the_footer_names_the_version(operator_client, settings):
    page = operator_client.get(reverse("web:overview")).content.decode()

    assert f"Claude Ops {settings.CLAUDEOPS_VERSION} · " in page


def test_the_footer_names_the_cli():
    page = base_page()

    assert "2.1.325" in page
    assert "/opt/claude" in page


def test_a_missing_cli_is_an_error_that_says_what_to_do():
    assert "CLAUDEOPS_CLAUDE_BIN" in base_page(cli=None)


def test_a_missing_key_is_a_notice_that_says_what_to_do():
    page = base_page(api_key_configured=False)

    assert "only drills can run" in page
    assert "ANTHROPIC_API_KEY" in page


def test_no_notice_is_shown_when_cli_and_key_are_present():
    assert "banner" not in base_page()


@pytest.mark.parametrize(
    ("level", "tone"),
    [
        (constants.ERROR, "tone-bad"),
        (constants.WARNING, "tone-warn"),
        (constants.SUCCESS, "tone-good"),
        (constants.INFO, "tone-live"),
    ],
)
def test_messages_are_shown_with_their_tone(level, tone):
    page = base_page(messages=[Message(level, "The drill <b> has begun.")])

    assert tone in page
    assert "The drill &lt;b&gt; has begun." in page


def test_htmx_is_configured_for_the_content_security_policy():
    page = base_page()

    assert '"includeIndicatorStyles": false' in page
    assert '"allowEval": false' in page


@pytest.mark.django_db
def test_a_not_found_page_tells_an_anonymous_visitor_nothing(client):
    response = client.get("/nowhere/")

    assert response.status_code == 404
    assert b"There is nothing at this address" in response.content
    assert b"CLI" not in response.content


def test_the_server_error_page_renders_without_context():
    assert "Something broke" in render_to_string("500.html")


def test_a_forbidden_page_says_that_access_is_refused():
    assert "You may not see this page" in render_to_string("403.html")


@pytest.mark.django_db
def test_a_failed_login_does_not_say_which_field_was_wrong(client):
    response = client.post(reverse("login"), {"username": "x", "password": "y"})

    assert b"do not match" in response.content
