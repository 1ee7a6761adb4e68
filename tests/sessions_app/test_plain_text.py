"""Text from outside, made safe for display."""

from __future__ import annotations

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from sessions_app.text import clean, json_text, one_line
from tests.tables import each_row


@each_row(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("half\x1b[K", "half"),
        ("\x1b]0;pwned\x07", "␛]0;pwned␇"),
        ("\x1b[1A\x1b[2Jgone", "␛[1A␛[2Jgone"),
        ("\x1b]52;c;cm0gLXJm\x1b\\", "␛]52;c;cm0gLXJm␛\\"),
        ("\x9b31m", "‹U+009B›31m"),
        ("rm -rf /\rls", "rm -rf /\nls"),
        ("one\r\ntwo", "one\ntwo"),
        ("a\x08b\x00c\x7f", "a␈b␀c‹U+007F›"),
        ("x = '\u202egpj.exe'", "x = '‹U+202E›gpj.exe'"),
        ("pass\u200bword", "pass‹U+200B›word"),
        ("\U000e0072\U000e006d", "‹U+E0072›‹U+E006D›"),
        ("\ud83d", "\ufffd"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("Größe ✓ 日本 👩\u200d🚒 نص", "Größe ✓ 日本 👩\u200d🚒 نص"),
    ],
)
def test_control_characters_become_marks_and_text_is_kept(text, shown):
    assert clean(text) == shown


@given(st.text())
def test_no_control_character_is_left_and_the_result_is_stable(text):
    shown = clean(text)

    assert not [sign for sign in shown if unicodedata.category(sign) == "Cc" and sign not in "\t\n"]
    assert clean(shown) == shown
    assert "\n" not in one_line(text, 1000)
    shown.encode()


@given(st.recursive(st.text() | st.none() | st.integers(), st.lists))
def test_json_keeps_its_value_without_control_characters(value):
    text = json_text(value)

    assert json.loads(text) == value
    assert clean(text) == text


def test_json_of_hostile_text_is_readable_where_it_can_be():
    assert json_text({"Größe": "\x9b\u202e\x1b"}) == '{"Größe": "\\u009b\\u202e\\u001b"}'
