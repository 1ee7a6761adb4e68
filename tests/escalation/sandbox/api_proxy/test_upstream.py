from __future__ import annotations

import pytest

from escalation.errors import CannotRun
from escalation.sandbox.api_proxy import ApiAddress, upstream_from, why_key_is_inside
from tests.tables import each_row

KEY = "sk-secret"
BY_KEY = {"ANTHROPIC_API_KEY": KEY}


def made_from(**environment: str):
    upstream = upstream_from(environment)
    assert upstream is not None
    return upstream


def test_the_vendor_is_asked_by_default():
    upstream = made_from(**BY_KEY)

    assert upstream.address == ApiAddress(host="api.anthropic.com", port=443)
    assert (upstream.secure, upstream.prefix, upstream.proxy) == (True, "", None)
    assert upstream.headers == {"x-api-key": KEY}
    assert upstream.variable == "ANTHROPIC_API_KEY"


def test_a_base_url_may_be_plain_with_a_port_and_a_path():
    upstream = made_from(ANTHROPIC_BASE_URL="http://proxy.lan:4000/anthropic/", **BY_KEY)

    assert upstream.address == ApiAddress(host="proxy.lan", port=4000)
    assert (upstream.secure, upstream.prefix) == (False, "/anthropic")


@pytest.mark.parametrize("variable", ["ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"])
def test_other_tokens_are_bearers(variable):
    upstream = made_from(**{variable: KEY})

    assert upstream.headers == {"authorization": f"Bearer {KEY}"}
    assert upstream.variable == variable


def test_the_cli_prefers_them_in_this_order():
    names = ["ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"]

    assert [
        made_from(**dict.fromkeys(names[start:], KEY)).variable for start in range(len(names))
    ] == names


def test_the_operators_own_headers_are_put_on_here():
    upstream = made_from(ANTHROPIC_CUSTOM_HEADERS="X-Team: ops\n nonsense\nX-B: a:b ", **BY_KEY)

    assert upstream.headers == {"x-api-key": KEY, "x-team": "ops", "x-b": "a:b"}


@pytest.mark.parametrize(
    ("variable", "name"),
    [("CLAUDE_CODE_USE_BEDROCK", "Bedrock"), ("CLAUDE_CODE_USE_VERTEX", "Vertex")],
)
def test_what_the_cli_must_sign_itself_has_no_api_proxy(variable, name):
    environment = {variable: "1", **BY_KEY}

    assert upstream_from(environment) is None
    assert "the key is inside" in why_key_is_inside(environment)
    assert name in why_key_is_inside(environment)


def test_without_a_key_there_is_no_api_proxy():
    assert upstream_from({}) is None
    assert "no key" in why_key_is_inside({})
    assert why_key_is_inside(BY_KEY) == ""


@each_row(
    "environment",
    [
        {"ANTHROPIC_BASE_URL": "ftp://x"},
        {"ANTHROPIC_BASE_URL": "not an address"},
        {"ANTHROPIC_BASE_URL": "http://:80"},
        {"ANTHROPIC_BASE_URL": "http://x:99999"},
        {"ANTHROPIC_BASE_URL": "http://[x"},
        {"ANTHROPIC_BASE_URL": "http://x/\u00e9"},
        {"ANTHROPIC_API_KEY": "two\nlines"},
        {"ANTHROPIC_CUSTOM_HEADERS": "a b: c"},
        {"ANTHROPIC_CUSTOM_HEADERS": "a: \u00e9"},
        {"HTTPS_PROXY": "socks5://x:1"},
        {"HTTPS_PROXY": "http://user:sk-secret@:1"},
    ],
)
def test_a_value_that_cannot_be_used_is_named_and_not_shown(environment):
    [variable] = environment

    with pytest.raises(CannotRun, match=variable) as raised:
        upstream_from({**BY_KEY, **environment})

    assert "secret" not in str(raised.value)


def test_the_operators_proxy_is_used_with_its_password_hidden():
    upstream = made_from(HTTPS_PROXY="http://me:pass%20word@proxy.lan:3128", **BY_KEY)

    assert upstream.proxy is not None
    assert upstream.proxy.address == ApiAddress(host="proxy.lan", port=3128)
    assert upstream.proxy.headers == {"Proxy-Authorization": "Basic bWU6cGFzcyB3b3Jk"}
    assert "bWU6" not in repr(upstream)
    assert KEY not in repr(upstream)


@each_row(
    ("exceptions", "used"),
    [
        ("", True),
        ("other.example", True),
        ("thropic.com", True),
        ("api.anthropic.com", False),
        ("localhost, .anthropic.com", False),
        ("anthropic.com", False),
        ("api.anthropic.com:443", False),
        ("api.anthropic.com:80", True),
        ("*", False),
    ],
)
def test_exceptions_from_the_proxy_are_honoured(exceptions, used):
    upstream = made_from(https_proxy="proxy.lan:3128", NO_PROXY=exceptions, **BY_KEY)

    assert (upstream.proxy is not None) == used


def test_a_proxy_for_the_other_scheme_is_not_used():
    assert made_from(HTTP_PROXY="http://proxy.lan:1", **BY_KEY).proxy is None
