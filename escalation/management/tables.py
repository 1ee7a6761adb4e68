"""Rows for people: with headings and colours on a terminal, plain and whole in a pipe."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from escalation.management.terminal import TerminalCommand
from sessions_app.reading.plain_text import one_line

GAP = "  "
LONGEST_CELL = 400


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    tone: str = ""
    """good, bad, warn, live or nothing."""


def write_table(
    command: TerminalCommand, headings: Sequence[str], rows: Sequence[Sequence[Cell | str]]
) -> None:
    """Nothing for no rows: whoever calls knows what to say then."""
    table = [[_as_cell(cell) for cell in row] for row in rows]
    if not table:
        return
    on_terminal = command.stdout.isatty()
    head = [[Cell(heading.upper(), "head") for heading in headings]] if on_terminal else []
    widths = [max(len(cell.text) for cell in column) for column in zip(*head, *table, strict=True)]
    room = shutil.get_terminal_size().columns if on_terminal else 0
    for row in [*head, *table]:
        _write_row(command, row, widths, room)


def _write_row(
    command: TerminalCommand, row: Sequence[Cell], widths: Sequence[int], room: int
) -> None:
    """Cell by cell: a colour is put on after what came from outside was made harmless."""
    used, last = 0, len(row) - 1
    for position, (cell, width) in enumerate(zip(row, widths, strict=True)):
        text = cell.text if position == last else f"{cell.text:{width}}{GAP}"
        if room:
            text = one_line(text, room - used) if position == last and used < room else text
        used += len(text)
        command.stdout.write(text, _style(command, cell.tone), ending="")
    command.stdout.write("")


def _style(command: TerminalCommand, tone: str) -> Callable[[str], str]:
    styles = {
        "good": command.style.SUCCESS,
        "bad": command.style.ERROR,
        "warn": command.style.WARNING,
        "live": command.style.HTTP_INFO,
        "head": command.style.MIGRATE_HEADING,
    }
    return styles.get(tone, str)


def _as_cell(cell: Cell | str) -> Cell:
    known = Cell(cell) if isinstance(cell, str) else cell
    return Cell(one_line(known.text, LONGEST_CELL), known.tone)
