"""Text from outside cannot act on the CLI."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escalation.run.prompts import disarmed, new_token
from tests.tables import each_row

# As the CLI looks for it; JavaScript counts U+FEFF as white space, Python does not.
MENTION = re.compile(r"(?:^|[\s\ufeff\u3002\u3001\uff1f\uff01])@[^\s\ufeff]")

ARMED = [
    "@/etc/passwd",
    "see @secrets.env now",
    "line\n@file",
    "\t@file",
    "@@file",
    "@@@file",
    "@ @file",
    "\ufeff@file",
    "\u00a0@file",
    '@"a file"',
    "\u2028@file",
    "これを見て。@file",
    "これを見て、@file",
    "見た？@file",
    "見て！@file",
    "！@@file",
    '。@"a file"',
]


@each_row("text", ARMED)
def test_no_text_includes_a_file(text):
    assert MENTION.search(text)
    assert not MENTION.search(disarmed(text))


@given(st.text(), st.text())
def test_no_at_sign_is_followed_by_a_name(before, after):
    """A text may also end with an @, which our own text then follows."""
    told = disarmed(f"{before}@{after}") + "'s words"

    assert all(told[found.end()] in " \t\n" for found in re.finditer("@", told))


@each_row("after", ["\x1c", "\x85", "\u200b", "\u2060", '"', "~/", "./", "agent-"])
def test_every_mention_is_disarmed(after):
    """JavaScript takes some characters for the beginning of a name that Python takes for space."""
    assert disarmed(f"see @{after}file") == f"see @ {after}file"


def test_an_address_is_disarmed_like_a_mention():
    """A rule with an exception for words would depend on what the CLI takes for a word."""
    assert disarmed("mail ops@example.org") == "mail ops@ example.org"


@pytest.mark.parametrize("text", ["/compact", "  /clear now", "fine\n/clear", "\n\n/init"])
def test_no_line_begins_with_a_slash_command(text):
    assert not re.search(r"(?m)^/\w", disarmed(text))


@each_row(
    "text",
    [
        *("a / b", "GET /health", "5 @ 3", "plain words", ""),
    ],
)
def test_harmless_text_is_unchanged(text):
    assert disarmed(text) == text


def test_every_prompt_has_its_own_token():
    assert len({new_token() for _ in range(100)}) == 100
