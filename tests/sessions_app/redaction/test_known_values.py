"""A known secret is redacted wherever it occurs, also encoded."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest

from sessions_app.redaction.redact import KnownValues, redacted
from tests.tables import each_row

VALUE = 'Tr0ub4dor&3/ "ä'
KNOWN = KnownValues([("the key", VALUE)])
HIDDEN = "[redacted: the key]"


@each_row(
    "form",
    [
        VALUE,
        quote(VALUE, safe=""),
        quote_plus(VALUE),
        json.dumps(VALUE)[1:-1],
        json.dumps(VALUE, ensure_ascii=False)[1:-1],
    ],
)
def test_a_known_value_is_hidden_as_it_is_and_as_others_write_it(form):
    assert KNOWN.redact(f"it said x{form}x twice {form}") == (f"it said x{HIDDEN}x twice {HIDDEN}")


@each_row("before", ["", "a", "ap", "app:", "users:"])
@each_row("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_known_value_is_hidden_in_base64_whatever_stands_before_it(before, encode):
    encoded = encode(f"{before}{VALUE}; and more".encode()).decode()

    hidden = KNOWN.redact(f"Basic {encoded}")

    assert HIDDEN in hidden
    assert len(hidden) - len(HIDDEN) < len("Basic ") + len(encoded) - 4 * len(VALUE) // 3 + 3


def test_a_value_of_fewer_than_six_characters_is_not_looked_for():
    assert KnownValues([("short", "abc12")]).redact("abc12") == "abc12"


def test_an_ordinary_word_is_hidden_as_a_word_alone():
    known = KnownValues([("database password", "postgres")])

    assert known.redact("postgres, postgresql") == "[redacted: database password], postgresql"


def test_of_two_values_the_longer_is_hidden_whole():
    known = KnownValues([("password", "hunter2-xyz"), ("address", "db://app:hunter2-xyz@x")])

    assert known.redact("at db://app:hunter2-xyz@x") == "at [redacted: address]"


def test_nothing_known_hides_nothing():
    assert KnownValues([]).redact("text") == "text"


@pytest.mark.parametrize(
    "name", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"]
)
def test_the_login_of_the_installation_is_known(monkeypatch, name):
    monkeypatch.setenv(name, "plain-words-only")

    assert redacted("it is plain-words-only, yes") == f"it is [redacted: {name}], yes"


def test_passwords_and_the_secret_key_of_the_installation_are_known(monkeypatch, settings):
    monkeypatch.setenv("CLAUDEOPS_SECRET_KEY", "set")
    settings.SECRET_KEY = "the-secret-key-of-django"
    settings.CLAUDEOPS_ADMIN_PASSWORD = "let-me-in"
    monkeypatch.setitem(settings.DATABASES["default"], "PASSWORD", "open-sesame")

    text = redacted("1 the-secret-key-of-django 2 let-me-in 3 open-sesame 4")

    assert text == (
        "1 [redacted: CLAUDEOPS_SECRET_KEY] 2 [redacted: CLAUDEOPS_ADMIN_PASSWORD] "
        "3 [redacted: database password] 4"
    )


def test_a_variable_that_is_passed_on_is_known_if_its_name_sounds_secret(monkeypatch, settings):
    settings.CLAUDEOPS_PASS_ENV = ("SHOP_TOKEN", "DEPLOY_KEY", "KUBECONFIG")
    monkeypatch.setenv("SHOP_TOKEN", "quite-ordinary")
    monkeypatch.setenv("DEPLOY_KEY", "also-ordinary")
    monkeypatch.setenv("KUBECONFIG", "/etc/kube/config")

    assert redacted("quite-ordinary also-ordinary /etc/kube/config") == (
        "[redacted: SHOP_TOKEN] [redacted: DEPLOY_KEY] /etc/kube/config"
    )


def test_redaction_makes_no_secret_key(settings, tmp_path, monkeypatch):
    monkeypatch.delenv("CLAUDEOPS_SECRET_KEY", raising=False)
    settings.CLAUDEOPS_STATE_DIR = tmp_path / "none"

    redacted("a line of a log")

    assert not (tmp_path / "none").exists()


LONG = "sk-ant-api03-" + "Zq8r" * 12


@each_row("line_end", ["\n", "\r\n", "\n    ", "\\n"])
@each_row("place", [1, 20, len(LONG) - 1])
def test_a_long_value_is_hidden_where_a_program_wrapped_it(line_end, place):
    known = KnownValues([("key", LONG)])

    hidden = known.redact(f"it is {LONG[:place]}{line_end}{LONG[place:]}, yes")

    assert hidden == "it is [redacted: key], yes"


def test_base64_that_was_wrapped_at_76_characters_is_hidden():
    known = KnownValues([("key", LONG * 2)])
    wrapped = base64.encodebytes((LONG * 2).encode()).decode()
    assert wrapped.count("\n") > 1

    hidden = known.redact(f"data: |\n{wrapped}")

    assert "[redacted: key]" in hidden
    assert not any(line[:20] in hidden for line in wrapped.split())


def test_words_on_two_lines_are_no_secret():
    known = KnownValues([("password", "horsebattery")])

    assert known.redact("horse\nbattery") == "horse\nbattery"
