"""Telling options, their values and operands apart."""

from __future__ import annotations

import pytest

from escalation.command_policy.programs.options import literal, read
from tests.tables import each_row

KNOWN = "-a -b -n= -i? --all --lines= --color? -nv -in="


@each_row(
    ("words", "options", "operands"),
    [
        (("-ab", "x"), (("-a", ""), ("-b", "")), ("x",)),
        (("-an5", "x"), (("-a", ""), ("-n", "5")), ("x",)),
        (("-n", "-5"), (("-n", "-5"),), ()),
        (("--lines", "5", "--lines=6"), (("--lines", "5"), ("--lines", "6")), ()),
        (("--color", "x"), (("--color", ""),), ("x",)),
        (("-i.bak", "-i", "x"), (("-i", ".bak"), ("-i", "")), ("x",)),
        (("x", "--", "-a"), (), ("x", "-a")),
        (("-", "-a"), (("-a", ""),), ("-",)),
        (("-nv",), (("-nv", ""),), ()),
        (("-in", "f", "-in=g"), (("-in", "f"), ("-in", "g")), ()),
    ],
)
def test_known_options_are_read_like_the_program_does(words, options, operands):
    line = read(words, KNOWN)

    assert line is not None
    assert (line.options, line.operands, line.unsure) == (options, operands, False)


@each_row(
    "words",
    [
        ("-c",),
        ("-ac",),
        ("--al",),
        ("--all=yes",),
        (
            "x",
            "--no",
        ),
    ],
)
def test_an_unknown_option_makes_the_line_unreadable(words):
    assert read(words, KNOWN) is None


@pytest.mark.parametrize("words", [(None,), ("-n", None), ("x", None)])
def test_a_computed_word_may_be_an_option(words):
    line = read(words, KNOWN)

    assert line is not None
    assert line.unsure


def test_after_the_dashes_a_computed_word_is_an_operand():
    line = read(("--", None), KNOWN)

    assert line is not None
    assert not line.unsure


def test_reading_can_stop_at_the_first_operand():
    line = read(("-a", "verb", "-x", None), KNOWN, to_operand=True)

    assert line is not None
    assert (line.operands, line.unsure) == (("verb", "-x", None), False)


def test_words_are_literal_when_none_is_computed():
    assert literal(("a", "b")) == ("a", "b")
    assert literal(("a", None)) is None
