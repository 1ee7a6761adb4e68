from __future__ import annotations

import io

import pytest

from escalation.management.output import Cell, TerminalCommand, write_table

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
    assert "\x1b[1;32mhealthy" in shown(Terminal(), force_color=True)


def test_on_a_terminal_a_row_is_one_line(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")

    lines = shown(Terminal(), no_color=True).splitlines()

    assert max(map(len, lines)) <= 30
    assert lines[1].endswith("…")


@pytest.mark.parametrize("options", [{"no_color": True}, {"force_color": True}])
def test_text_from_outside_has_no_colours_and_line_ends(options):
    text = shown(Terminal(), [["a\nb", "\x1b[31mred\x1b[0m", "\x1b]0;owned\x07"]], **options)

    assert "\x1b[31mred" not in text
    assert "\x1b]" not in text
    assert len(text.splitlines()) == 2


def test_no_color_in_the_environment_is_respected(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")

    assert "\x1b[" not in shown(Terminal())


def test_wide_characters_are_aligned_by_their_width():
    lines = shown(io.StringIO(), [["日本", "up", ""], ["shop", "up", ""]]).splitlines()

    assert lines == ["日本  up", "shop  up"]


def test_no_secret_is_written():
    assert "hunter22" not in shown(io.StringIO(), [["shop", "up", 'token="hunter22"']])


def test_in_a_pipe_a_long_row_is_one_whole_line():
    assert shown(io.StringIO(), [["shop", "up", "x" * 399]]) == f"shop  up  {'x' * 399}\n"


def test_an_empty_table_prints_nothing():
    assert shown(Terminal(), []) == ""
