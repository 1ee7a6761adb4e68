"""Reads the shell text that the CLI hands to its prefix program. Pure.

It is not the command alone: it sources a snapshot, `eval`s the command as one quoted word, and
writes the directory in which that ended to a file. The preamble differs with every version; the
word after the first `eval` has been the command in all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

LONGEST_COMMAND = 256 * 1024
# A word's end, unquoted. What would expand there is in no text that the CLI writes.
BETWEEN_WORDS = " \t\n;&|<>(){}"
EXPANDS = "$`*?[~#!"
ESCAPED_IN_QUOTES = '$`"\\\n'
AFTER_EVAL = re.compile(r"\s*(?:\\?<\s*/dev/null\s*)?(?:&&\s*pwd -P\s*>\|\s*(?P<file>.+))?", re.S)


class NotACommand(Exception):
    """The text holds no command of the Bash tool; nothing of it may run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShellText:
    command: str
    directory_file: str = ""
    """Where the CLI wants to find the directory in which the command ended."""


def read_bytes(text: bytes) -> ShellText:
    """As it came; NotACommand for what no command can be."""
    if len(text) > LONGEST_COMMAND:
        raise NotACommand(f"it is longer than {LONGEST_COMMAND} bytes; write it to a file in parts")
    if b"\0" in text:
        raise NotACommand("it holds a NUL byte")
    try:
        return read_shell_text(text.decode())
    except UnicodeDecodeError as error:
        raise NotACommand("it is not valid UTF-8") from error


def read_shell_text(text: str) -> ShellText:
    start = _after_first_eval(text)
    command, end = _word(text, start)
    rest = AFTER_EVAL.fullmatch(text, end)
    file = ""
    if rest is not None and rest["file"]:
        try:
            file, file_end = _word(rest["file"], 0)
        except NotACommand:
            file_end = -1
        if file_end != len(rest["file"]):
            file = ""
    return ShellText(command=command, directory_file=file)


def _after_first_eval(text: str) -> int:
    """Past the blanks after the first `eval` that stands unquoted and alone."""
    index, begins_word = 0, True
    while index < len(text):
        if begins_word and re.compile(r"eval[ \t]+").match(text, index):
            return index + len("eval") + _blanks(text, index + len("eval"))
        character = text[index]
        begins_word = character in BETWEEN_WORDS
        if character in "'\"":
            _piece, index = _quoted(text, index)
        else:
            index += 2 if character == "\\" else 1
    raise NotACommand("it holds no command of the Bash tool")


def _blanks(text: str, index: int) -> int:
    return len(text[index:]) - len(text[index:].lstrip(" \t"))


def _word(text: str, index: int) -> tuple[str, int]:
    """One word of shell as the shell would see it, and where it ends."""
    pieces: list[str] = []
    start = index
    while index < len(text) and text[index] not in BETWEEN_WORDS:
        character = text[index]
        if character in "'\"":
            piece, index = _quoted(text, index)
            pieces.append(piece)
        elif character == "\\" and index + 1 < len(text):
            pieces.append("" if text[index + 1] == "\n" else text[index + 1])
            index += 2
        elif character in EXPANDS or character == "\\":
            raise NotACommand("its words are computed")
        else:
            pieces.append(character)
            index += 1
    if index == start:
        raise NotACommand("its command is missing")
    return "".join(pieces), index


def _quoted(text: str, index: int) -> tuple[str, int]:
    """What stands in the quotes that open here, and where they have closed."""
    quote = text[index]
    if quote == "'":
        end = text.find("'", index + 1)
        if end < 0:
            raise NotACommand("a quote is not closed")
        return text[index + 1 : end], end + 1
    pieces: list[str] = []
    index += 1
    while index < len(text) and text[index] != '"':
        if text[index] == "\\" and text[index + 1 : index + 2] in {*ESCAPED_IN_QUOTES}:
            pieces.append("" if text[index + 1] == "\n" else text[index + 1])
            index += 2
        elif text[index] in "$`":
            raise NotACommand("its words are computed")
        else:
            pieces.append(text[index])
            index += 1
    if index >= len(text):
        raise NotACommand("a quote is not closed")
    return "".join(pieces), index + 1
