from __future__ import annotations

import io

import pytest

from escalation.management.tables import Cell, write_table
from escalation.management.terminal import TerminalCommand

ROWS = [["shop", Cell("healthy", "good"), "all is well here"], ["laboratory", "down", "no"]]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(out: io.StringIO, rows=ROWS, **options) -> str:
    write_table(TerminalCommand(stdout=out, **options), ("watch", "state", "why"), rows)
    return out.getvalue()


def test_in_a_pipe_rows_are_aligned_plain_and_whole():
    assert shown(io.StringIO()).splitlines() == [
        "shop        healthy  all is well here",
        "laboratory  down     no",
    ]


def test_on_a_terminal_there_are_headings():
    assert shown(Terminal(), no_color=True).splitlines()[0] == "WATCH       STATE    WHY"


def test_on_a_terminal_a_tone_is_a_colour():
    assert "\x1b[32;1mhealthy" in shown(Terminal(), force_color=True)


def test_on_a_terminal_a_row_is_one_line(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")

    lines = shown(Terminal(), no_color=True).splitlines()

    assert max(map(len, lines)) <= 30
    assert lines[1].endswith("…")


@pytest.mark.parametrize("options", [{"no_color": True}, {"force_color": True}])
def test_what_came_from_outside_brings_no_colour_and_no_line_of_its_own(options):
    text = shown(Terminal(), [["a\nb", "\x1b[31mred\x1b[0m", "\x1b]0;owned\x07"]], **options)

    assert "\x1b[31mred" not in text
    assert "\x1b]" not in text
    assert len(text.splitlines()) == 2


def test_no_rows_are_no_lines():
    assert shown(Terminal(), []) == ""
