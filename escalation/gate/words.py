"""One word of bash: quotes removed, braces and variables expanded, as far as that can be known.

The parser says where a word begins and ends; the text between is read here a second time, by the
rules of bash, and the two must agree. Where they do not, a parser's mistake would let a command
pass as something that it is not: that is a `Problem`, and nothing is said to be understood.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

from escalation.gate.understanding import Word

Fields = tuple[Word, ...]
MOST_ALTERNATIVES = 32
"""A loop over more values than these is not followed value by value."""

_MOST_FROM_BRACES = 200
_SEPARATORS = frozenset(" \t\n\r\v\f;&|()<>")
_GLOBS = frozenset("*?[")
_BEGINS_EXPANSION = re.compile(r"[\w{(\[@*#?$!-]")
_SIMPLE_ESCAPES = {
    **{"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r"},
    **{"t": "\t", "v": "\v", "\\": "\\", "'": "'", '"': '"', "?": "?"},
}
_ANSI_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|(.))", re.DOTALL
)
_RANGE = re.compile(r"(-?\d{1,6})\.\.(-?\d{1,6})")


class Problem(Exception):
    """Why a piece of a command cannot be understood, as the end of "not understood: …"."""


@dataclass(frozen=True, slots=True)
class Hole:
    """An expansion inside a word: the values that it may have, or None where they are computed."""

    values: tuple[str, ...] | None
    end: int
    """Where the text goes on behind it."""


@dataclass(frozen=True, slots=True)
class _Cell:
    text: str
    quoted: bool
    hole: Hole | None = None


Expansions = Callable[[int], Hole | None]
"""The expansion that the parser saw begin at a position."""


def alternatives(source: str, start: int, end: int, expansions: Expansions) -> list[Fields]:
    """What a word may become: one tuple of fields for each combination of its variables' values."""
    cells = list(_cells(source, start, end, expansions))
    found: dict[Fields, None] = {}
    words = list(_braces(cells))
    for fields in product(*(_fields_of(word) for word in words)):
        found[tuple(field for some in fields for field in some)] = None
        if len(found) > MOST_ALTERNATIVES:
            return [(None,)]
    return list(found)


def literal(source: str, start: int, end: int, expansions: Expansions) -> tuple[str, ...] | None:
    """The values of a word that is neither split nor matched with files: what is assigned."""
    parts = [
        (cell.text,) if cell.hole is None else cell.hole.values
        for cell in _cells(source, start, end, expansions)
    ]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    count = 1
    for part in known:
        count *= max(1, len(part))
    if count > MOST_ALTERNATIVES:
        return None
    return tuple(dict.fromkeys("".join(choice) for choice in product(*known)))


def _cells(source: str, start: int, end: int, expansions: Expansions) -> Iterator[_Cell]:
    position = start
    inside = False
    while position < end:
        character = source[position]
        hole = expansions(position)
        if hole is not None:
            yield _Cell("", inside, hole)
            position = hole.end
        elif character == '"':
            inside = not inside
            yield _Cell("", True)
            position += 1
        elif character == "\\":
            yield from _escaped(source[position + 1 : position + 2], inside)
            position += 2
        elif character == "`" or (not inside and source.startswith('$"', position)):
            raise Problem("quoting that is not followed here")
        elif character == "$" and _BEGINS_EXPANSION.match(source, position + 1):
            raise Problem("an expansion that is not followed here")
        elif not inside and character in "'$":
            text, position = _single_quoted(source, position)
            yield _Cell(text, True)
        elif not inside and character in _SEPARATORS:
            raise Problem("words that are not clearly divided")
        else:
            yield _Cell(character, inside)
            position += 1
    if inside or position != end:
        raise Problem("quoting that is not followed here")


def _escaped(character: str, inside: bool) -> Iterator[_Cell]:
    if not character or (character == "\n" and not inside):
        raise Problem("a line that is broken inside a word")
    if character == "\n":
        return
    if inside and character not in '$`"\\':
        yield _Cell("\\", True)
    yield _Cell(character, True)


def _single_quoted(source: str, position: int) -> tuple[str, int]:
    """`'…'`, `$'…'` with its escapes, or a dollar sign that is only that."""
    if source[position] == "'":
        close = source.find("'", position + 1)
        if close < 0:
            raise Problem("quoting that is not followed here")
        return source[position + 1 : close], close + 1
    if not source.startswith("$'", position):
        return "$", position + 1
    found = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL).match(source, position)
    if found is None:
        raise Problem("quoting that is not followed here")
    return _ANSI_ESCAPE.sub(_ansi_character, found[1]), found.end()


def _ansi_character(escape: re.Match[str]) -> str:
    for group, base in ((1, 16), (2, 16), (3, 16), (4, 8)):
        if escape[group]:
            number = int(escape[group], base)
            if number == 0 or number > 0x7F:
                # Bytes that make up a character, and an end in the middle of a word.
                raise Problem("characters that are written as numbers")
            return chr(number)
    if escape[5] not in _SIMPLE_ESCAPES:
        raise Problem("an escape that is not followed here")
    return _SIMPLE_ESCAPES[escape[5]]


def _braces(cells: list[_Cell]) -> Iterator[list[_Cell]]:
    """Every word of `a{b,c}d`, in order."""
    waiting = [cells]
    found = 0
    while waiting:
        word = waiting.pop()
        pieces = _first_braces(word)
        if pieces is None:
            found += 1
            yield word
        else:
            waiting.extend(reversed(pieces))
        if found + len(waiting) > _MOST_FROM_BRACES:
            raise Problem("braces that stand for very many words")


def _first_braces(cells: list[_Cell]) -> list[list[_Cell]] | None:
    for opening, cell in enumerate(cells):
        if cell.quoted or cell.text != "{":
            continue
        depth, commas = 0, [opening]
        for index in range(opening, len(cells)):
            at = cells[index]
            if at.quoted or at.text not in "{},":
                continue
            depth += {"{": 1, "}": -1, ",": 0}.get(at.text, 0)
            if at.text == "," and depth == 1:
                commas.append(index)
            if depth == 0:
                parts = _parts_of(cells, [*commas, index])
                if parts is not None:
                    before, behind = cells[:opening], cells[index + 1 :]
                    return [[*before, *part, *behind] for part in parts]
                break
    return None


def _parts_of(cells: list[_Cell], marks: list[int]) -> list[list[_Cell]] | None:
    if len(marks) > 2:
        return [cells[a + 1 : b] for a, b in zip(marks, marks[1:], strict=False)]
    between = cells[marks[0] + 1 : marks[1]]
    text = "".join(cell.text for cell in between)
    if ".." not in text:
        return None
    numbers = _RANGE.fullmatch(text)
    plain = not any(cell.quoted or cell.hole for cell in between)
    if not numbers or not plain or any(re.match(r"-?0\d", end) for end in numbers.groups()):
        raise Problem("a range in braces that is not followed here")
    first, last = int(numbers[1]), int(numbers[2])
    if abs(first - last) >= _MOST_FROM_BRACES:
        raise Problem("braces that stand for very many words")
    step = 1 if last >= first else -1
    return [[_Cell(str(number), False)] for number in range(first, last + step, step)]


def _fields_of(cells: list[_Cell]) -> list[Fields]:
    holes = [cell.hole for cell in cells if cell.hole is not None]
    unknown = any(hole.values is None for hole in holes)
    if unknown:
        return [(None,)]
    chosen = [hole.values or () for hole in holes]
    count = 1
    for values in chosen:
        count *= len(values)
    if count > MOST_ALTERNATIVES:
        return [(None,)]
    return [_split(cells, iter(choice)) for choice in product(*chosen)]


def _split(cells: list[_Cell], values: Iterator[str]) -> Fields:
    """Fields after the values are put in: an unquoted one is split where it has blanks."""
    fields: list[list[_Cell]] = []
    field: list[_Cell] | None = None
    for cell in cells:
        text = cell.text if cell.hole is None else next(values)
        if cell.hole is None or cell.quoted:
            field = [*(field or ()), _Cell(text, cell.quoted)]
            continue
        for piece in re.split(r"([ \t\n]+)", text):
            if not piece:
                continue
            if piece[0] in " \t\n":
                if field is not None:
                    fields.append(field)
                field = None
            else:
                field = [*(field or ()), *(_Cell(character, False) for character in piece)]
    if field is not None:
        fields.append(field)
    return tuple(_matched(field) for field in fields)


def _matched(field: list[_Cell]) -> Word:
    """A pattern stays as it is written; one that begins with a joker may match any file, also one
    whose name looks like an option."""
    begin = next((cell for cell in field if cell.text), None)
    if begin is not None and not begin.quoted and begin.text[0] in _GLOBS and len(field) > 1:
        return None
    text = "".join(cell.text for cell in field)
    return None if begin is not None and not begin.quoted and text in _GLOBS - {"["} else text
