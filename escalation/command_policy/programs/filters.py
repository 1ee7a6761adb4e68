"""awk and sed, whose scripts can start programs.

Scripts are read far enough to exclude that. Others are not understood, and still work in a sandbox
without grants.
"""

from __future__ import annotations

import re

from escalation.command_policy.programs.options import Grammar, Line, literal, looks, read, writes
from escalation.command_policy.understanding import Understanding, Word

# A pattern at the very start is surely a regular expression, and may hold a bar.
AWK_OPENING = re.compile(r"""\s*(?:\$\w+\s*!?~\s*|!\s*)?/[^/"\\\n\[\]]*/""")
AWK_STARTS_OR_WRITES = re.compile(
    r"(?<!\|)\|(?!\|)|\|&|>>|@|/inet|\b(?:system|getline|include|load)\b"
)
AWK_PRINTS = re.compile(r"\bprintf?\b")


def awk(argv: tuple[Word, ...]) -> Understanding | None:
    line = read(argv[1:], "-F= -v= --field-separator= --assign=", to_operand=True)
    if line is None or not line.operands or literal(line.values("-F", "-v")) is None:
        return None
    text = line.operands[0]
    if text is None:
        return None
    opening = AWK_OPENING.match(text)
    rest = text[opening.end() :] if opening else text
    prints = AWK_PRINTS.search(rest)
    if AWK_STARTS_OR_WRITES.search(rest) or (prints and ">" in rest[prints.end() :]):
        return None
    return looks(argv)


SED = """
    -n -e= -E -r -s -u -z -l= -i? --quiet --silent --expression= --regexp-extended --separate
    --unbuffered --null-data --line-length= --posix --debug --sandbox --in-place? --follow-symlinks
"""


def sed(argv: tuple[Word, ...]) -> Understanding | None:
    line = read(argv[1:], SED)
    if line is None or line.unsure:
        return None
    scripts = literal(line.values("-e", "--expression") or line.operands[:1])
    if not scripts or not SedScript("\n".join(scripts)).is_harmless():
        return None
    if not line.has("-i", "--in-place"):
        return looks(argv)
    return writes("sed -i", argv[1:], _sed_files(line))


def _sed_files(line: Line) -> tuple[Word, ...]:
    return line.operands if line.has("-e", "--expression") else line.operands[1:]


class SedScript:
    """Reads a script command by command; `e`, `w`, `r` and the like are not understood."""

    ADDRESS = re.compile(r"\s*(?:\d+(?:~\d+)?|\$|/)")
    SECOND = re.compile(r"\s*,\s*(?:[+~]?\d+|\$|/)")
    SIMPLE = re.compile(r"[pdDPnNhHgGxFz=]|[lLqQ] *\d*|[tbT] *\w*|:\s*\w+")
    FLAGS = re.compile(r"[gpiImM0-9]*")
    TEXT = re.compile(r"[aic](?:\\\n)?[^\\\n]*(?=\n|\Z)")
    GAP = re.compile(r"[\s;{}]*(?:#[^\n]*\n?)?")

    def __init__(self, text: str) -> None:
        self.text, self.place = text, 0

    def is_harmless(self) -> bool:
        self.skip(self.GAP)
        while self.place < len(self.text):
            if not (self.address() and self.command()):
                return False
            before = self.place
            self.skip(self.GAP)
            if self.place == before and self.place < len(self.text):
                return False
        return True

    def skip(self, pattern: re.Pattern[str]) -> bool:
        found = pattern.match(self.text, self.place)
        self.place = found.end() if found else self.place
        return found is not None

    def address(self) -> bool:
        for pattern in (self.ADDRESS, self.SECOND):
            if not self.skip(pattern):
                break
            if self.text[self.place - 1] == "/" and not self.delimited("/", 1):
                return False
            self.skip(re.compile(r"[IM]*"))
        return self.skip(re.compile(r"[\s!]*"))

    def command(self) -> bool:
        first = self.text[self.place : self.place + 1]
        if first in ("s", "y"):
            delimiter = self.text[self.place + 1 : self.place + 2]
            self.place += 2
            if delimiter in ("", "\n", "\\") or not self.delimited(delimiter, 2):
                return False
            return self.skip(self.FLAGS) if first == "s" else True
        if first == "{":
            return True
        return self.skip(self.SIMPLE) or self.skip(self.TEXT)

    def delimited(self, delimiter: str, parts: int) -> bool:
        """Skip parts. Programs read an open bracket differently, so it is not understood."""
        part = ""
        while self.place < len(self.text):
            letter = self.text[self.place]
            if letter == delimiter:
                parts -= 1
                if part.count("[") != part.count("]"):
                    return False
                part = ""
            elif letter == "\\":
                self.place += 1
            else:
                part += letter
            self.place += 1
            if not parts:
                return True
        return False


GRAMMARS: dict[str, Grammar] = {
    **dict.fromkeys(("awk", "mawk", "gawk", "nawk"), awk),
    "sed": sed,
}
