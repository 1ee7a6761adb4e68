"""Reads shell text that every shell reads alike.

The far side of ssh joins its words with blanks, and an unknown shell reads the result. Understood
are plain words, quotes without expansion, `|`, `&&`, `||`, `;`, and redirections to /dev/null.
"""

from __future__ import annotations

import re

from escalation.command_policy.understanding import Argv, NotUnderstood

LONGEST = 16_000
_PLAIN = r"[\w./:,=+%@-]"
_ESCAPED = r"\\[ !-/:-@\[-`{-~]"
# In fish a backslash also escapes the end of single quotes.
_SINGLE = r"'(?:[^'\n\0]*[^'\n\0\\])?'"
_DOUBLE = r'"[^"$`\\!\n\0]*"'
_TOKEN = re.compile(
    rf"(?P<blank>[ \t]+)|(?P<operator>&&|\|\||[|;])"
    rf"|(?P<redirection>2>&1|1?>&2|[12]?>[ \t]*/dev/null|<[ \t]*/dev/null)(?=[ \t|;&]|\Z)"
    rf"|(?P<word>(?:{_PLAIN}|{_ESCAPED}|{_SINGLE}|{_DOUBLE})+)"
)
_PART = re.compile(rf"({_PLAIN}+)|({_ESCAPED})|{_SINGLE}|{_DOUBLE}")


def read_commands(text: str, *, redirected: bool = True) -> tuple[Argv, ...]:
    """Return the simple commands of a text. `redirected`: without redirections to /dev/null."""
    if len(text) > LONGEST:
        raise NotUnderstood(f"a text of more than {LONGEST} characters")
    commands: list[list[str]] = [[]]
    operator, place = ";", 0
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None or (token["redirection"] and not redirected):
            raise NotUnderstood(f"`{text[place : place + 20]}`: write it plainly")
        place = token.end()
        if token["operator"]:
            operator = token["operator"]
            commands.append([])
        elif token["word"]:
            commands[-1].append(_value(token["word"]))
    if operator == ";" and len(commands) > 1 and not commands[-1]:
        commands.pop()
    if not all(commands):
        raise NotUnderstood("an operator without a command")
    return tuple(map(tuple, commands))


def _value(word: str) -> str:
    """Remove the quotes.

    Some shells expand a word that begins with `=`, and some commands evaluate a quoted `$(…)` once
    more: `printf -v 'a[$(reboot)]'`.
    """
    value = "".join(
        part[1] or (part[2][1:] if part[2] else part[0][1:-1]) for part in _PART.finditer(word)
    )
    if word.startswith("=") or re.search(r"`|\$[({]", value):
        raise NotUnderstood(f"`{word}`: write it plainly")
    return value
