"""The Content-Security-Policy of the pages."""

from __future__ import annotations

import pytest
from asgiref.sync import async_to_sync
from csp.decorators import csp_replace
from django.http import HttpResponse
from django.test import AsyncClient, Client
from django.urls import path

from claudeops.middleware import security_headers

HEADER = "Content-Security-Policy"
DIRECTIVES = {
    "default-src 'self'",
    "img-src 'self' data:",
    "object-src 'none'",
    "base-uri 'self'",
    "form-action 'self'",
    "frame-ancestors 'none'",
}


@csp_replace({"default-src": ["'none'"]})
def strict_view(_request):
    return HttpResponse()


urlpatterns = [path("strict", strict_view)]


@pytest.fixture
def policy(client, db, settings) -> str:
    settings.CLAUDEOPS_CLAUDE_BIN = "/nonexistent/claude"
    return client.get("/login/")[HEADER]


def test_a_page_has_the_whole_policy(policy):
    assert set(policy.split("; ")) == DIRECTIVES


def test_responses_outside_django_have_the_same_policy():
    policy = security_headers()[b"content-security-policy"].decode()

    assert set(policy.split("; ")) == DIRECTIVES


@pytest.mark.parametrize("weakness", ["unsafe-inline", "unsafe-eval", "*", "http:", "https:"])
def test_the_policy_allows_no_unsafe_source(policy, weakness):
    assert weakness not in policy


def test_a_page_may_have_its_own_policy(settings):
    settings.ROOT_URLCONF = __name__
    settings.MIDDLEWARE = ["csp.middleware.CSPMiddleware"]

    assert "default-src 'none'" in Client().get("/strict")[HEADER]


@pytest.mark.django_db(transaction=True)
def test_async_responses_have_the_policy_too():
    assert HEADER in async_to_sync(AsyncClient().get)("/healthz").headers
