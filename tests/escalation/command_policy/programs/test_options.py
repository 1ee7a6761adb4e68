"""Telling options, their values and operands apart."""

from __future__ import annotations

import pytest

from escalation.command_policy.programs.options import read
from escalation.command_policy.understanding import NotUnderstood
from tests.tables import each_row

KNOWN = "-a -b -n= -i? --all --lines= --color? -nv -in="


@each_row(
    ("words", "options", "operands"),
    [
        (("-ab", "x"), (("-a", ""), ("-b", "")), ("x",)),
        (("-an5", "x"), (("-a", ""), ("-n", "5")), ("x",)),
        (("-n", "-5"), (("-n", "-5"),), ()),
        (("-n", "--"), (("-n", "--"),), ()),
        (("--lines", "5", "--lines=6"), (("--lines", "5"), ("--lines", "6")), ()),
        (("--lines=",), (("--lines", ""),), ()),
        (("--color", "x"), (("--color", ""),), ("x",)),
        (("-i.bak", "-i", "x"), (("-i", ".bak"), ("-i", "")), ("x",)),
        (("x", "--", "-a"), (), ("x", "-a")),
        (("-", "-a"), (("-a", ""),), ("-",)),
        (("-nv",), (("-nv", ""),), ()),
        (("-in", "f", "-in=g"), (("-in", "f"), ("-in", "g")), ()),
        (("",), (), ("",)),
    ],
)
def test_known_options_are_read_like_the_program_does(words, options, operands):
    line = read(words, KNOWN)

    assert (line.options, line.operands) == (options, operands)


@each_row(
    ("words", "named"),
    [
        (("-c",), "-c"),
        (("-ac",), "-c in -ac"),
        (("--al",), "--al"),
        (("--all=yes",), "--all"),
        (("x", "--no"), "--no"),
        (("-n",), "-n without its value"),
        (("x", "--lines"), "--lines without its value"),
    ],
)
def test_an_unknown_option_is_named(words, named):
    with pytest.raises(NotUnderstood) as problem:
        read(words, KNOWN)

    assert str(problem.value) == f"the option {named}"


def test_reading_can_stop_at_the_first_operand():
    line = read(("-a", "verb", "-x"), KNOWN, to_operand=True)

    assert (line.operands, line.terminated) == (("verb", "-x"), False)
    assert read(("-a", "--", "-x"), KNOWN, to_operand=True).terminated
