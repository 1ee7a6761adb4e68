"""Where the words stand that somebody searched for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sessions_app.text import AROUND, FoundWords, clean, found_words


def test_the_first_text_that_holds_them_whatever_their_case():
    texts = {"watch": "shop", "reason": "The Disk is full.", "error": "disk"}

    assert found_words(" disk ", texts) == FoundWords(
        where="reason", before="The ", match="Disk", after=" is full."
    )


def test_a_long_text_is_shown_around_the_match():
    found = found_words("needle", {"error": f"{'a' * 500}needle{'b' * 500}"})

    assert found is not None
    assert (found.before, found.after) == (f"…{'a' * AROUND}", f"{'b' * AROUND}…")


def test_signs_of_a_pattern_are_plain_words():
    assert found_words(".*", {"error": "anything"}) is None


def test_hostile_text_is_made_harmless():
    found = found_words("evil", {"error": "\x1b]0;evil\x07 \u202egnp"})

    assert found is not None
    assert "\x1b" not in found.before
    assert "\u202e" not in found.after


@given(words=st.text(min_size=1, max_size=8), text=st.text(max_size=80))
def test_what_is_marked_is_what_was_asked_for(words, text):
    found = found_words(words, {"text": text})

    if found is not None:
        assert len(found.match) == len(clean(words.strip()))
        assert found.match in " ".join(clean(text).split())
