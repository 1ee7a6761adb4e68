from __future__ import annotations

import asyncio

import pytest
from django.http import HttpResponse
from django.test import RequestFactory

from claudeops.middleware import content_security_policy

HEADER = "Content-Security-Policy"


def answered(response: HttpResponse) -> HttpResponse:
    request = RequestFactory().get("/")
    answer = content_security_policy(lambda _request: response)(request)
    assert isinstance(answer, HttpResponse)
    return answer


def test_every_page_carries_the_policy():
    assert "default-src 'self'" in answered(HttpResponse())[HEADER]


@pytest.mark.parametrize(
    "rule", ["object-src 'none'", "frame-ancestors 'none'", "form-action 'self'", "base-uri 'self'"]
)
def test_the_policy_closes_what_is_not_needed(rule):
    assert rule in answered(HttpResponse())[HEADER]


@pytest.mark.parametrize("weakness", ["unsafe-inline", "unsafe-eval", "*", "http:", "https:"])
def test_the_policy_has_no_hole(weakness):
    assert weakness not in answered(HttpResponse())[HEADER]


def test_a_page_may_have_a_policy_of_its_own():
    response = HttpResponse(headers={HEADER: "default-src 'none'"})

    assert answered(response)[HEADER] == "default-src 'none'"


def test_async_views_carry_the_policy_too():
    async def view(_request):
        return HttpResponse()

    middleware = content_security_policy(view)

    assert asyncio.iscoroutinefunction(middleware)
    assert HEADER in asyncio.run(middleware(RequestFactory().get("/"))).headers


def test_the_login_page_carries_it(client, db, settings):
    settings.CLAUDEOPS_CLAUDE_BIN = "/nonexistent/claude"

    assert HEADER in client.get("/login/").headers
