"""The excerpt of a text around the words of a search."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sessions_app.text import AROUND, FoundWords, clean, found_words


def test_the_first_text_with_the_words_is_found_in_any_case():
    texts = {"watch": "shop", "reason": "The Disk is full.", "error": "disk"}

    assert found_words(" disk ", texts) == FoundWords(
        where="reason", before="The ", match="Disk", after=" is full."
    )


def test_a_long_text_is_shown_around_the_match():
    found = found_words("needle", {"error": f"{'a' * 500}needle{'b' * 500}"})

    assert found is not None
    assert (found.before, found.after) == (f"…{'a' * AROUND}", f"{'b' * AROUND}…")


def test_characters_of_a_pattern_are_matched_literally():
    assert found_words(".*", {"error": "anything"}) is None


def test_hostile_text_is_escaped():
    found = found_words("evil", {"error": "\x1b]0;evil\x07 \u202egnp"})

    assert found is not None
    assert "\x1b" not in found.before
    assert "\u202e" not in found.after


@given(words=st.text(min_size=1, max_size=8), text=st.text(max_size=80))
def test_the_searched_words_are_marked(words, text):
    found = found_words(words, {"text": text})

    if found is not None:
        assert len(found.match) == len(clean(words.strip()))
        assert found.match in " ".join(clean(text).split())
