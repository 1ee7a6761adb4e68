"""Text that is not ours cannot act on the CLI."""

from __future__ import annotations

import re

import pytest

from escalation.run.foreign_text import disarmed, new_token

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


@pytest.mark.parametrize("text", ARMED)
def test_no_text_can_pull_a_file_in(text):
    assert MENTION.search(text)
    assert not MENTION.search(disarmed(text))


@pytest.mark.parametrize("before", ["(", '"', "'", ":", ">", "，", "（", "\u200b", "*", "`", "/"])
def test_a_mention_after_any_other_mark_is_disarmed_too(before):
    assert disarmed(f"see {before}@file") == f"see {before}@ file"


@pytest.mark.parametrize("text", ["/compact", "  /clear now", "fine\n/clear", "\n\n/init"])
def test_no_line_begins_with_a_slash_command(text):
    assert not re.search(r"(?m)^/\w", disarmed(text))


@pytest.mark.parametrize(
    "text",
    [
        *("mail ops@example.org", "git@github.com:shop/web.git", "first.last+tag@example.org"),
        *("a / b", "GET /health", "5 @ 3", "plain words", ""),
    ],
)
def test_harmless_text_stays_as_it_is(text):
    assert disarmed(text) == text


def test_no_two_prompts_have_the_same_token():
    assert len({new_token() for _ in range(100)}) == 100
