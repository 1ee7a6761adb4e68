"""What may stand in one command with `ssh` or `kubectl`, whose keys lie in the room for that time.

Whatever reads files could read the keys too. So beside them are only programs that read nothing but
their input: `ssh host df | grep data | head -3`. Links and globs make names useless as a measure.
"""

from __future__ import annotations

import re

from escalation.gate.doors import KUBE, SSH
from escalation.gate.understanding import Word

KEY_DOORS = frozenset({SSH, KUBE})

# How many words of each, besides options, are no files.
_OPERANDS = {
    **dict.fromkeys(("head", "tail", "wc", "sort", "uniq", "cut", "cat", "nl", "tac", "rev"), 0),
    **dict.fromkeys(("column", "fold", "true", "false", ":", "exit", "break", "continue"), 0),
    **dict.fromkeys(("grep", "egrep", "fgrep", "awk", "sed", "jq"), 1),
    "tr": 2,
    "sleep": 1,
}
_SAY_WHAT_THEY_ARE_GIVEN = ("echo", "printf")
# Short flags alone, and numbers for their values: a long option may name a file.
_FLAG = re.compile(r"-[^/~]*")
_NUMBER = re.compile(r"[0-9,\-]+")
_FROM_FILE = {
    **dict.fromkeys(("grep", "egrep", "fgrep", "awk", "sed"), "f"),
    "sort": "TSo",
    "jq": "fL",
}
_EMPTY_INPUT = re.compile(r"<\s*/dev/null(?![\w./-])")


def reads_files(argv: tuple[Word, ...]) -> bool:
    """Whether a program could read a file by these words."""
    name, *words = argv
    if name in _SAY_WHAT_THEY_ARE_GIVEN:
        return False
    allowed = _OPERANDS.get(name or "")
    if allowed is None or None in words:
        return True
    known = [word for word in words if word is not None]
    flags = [word for word in known if word.startswith("-")]
    if any(not _is_plain_flag(name or "", flag) for flag in flags):
        return True
    others = [word for word in known if not word.startswith("-") and not _NUMBER.fullmatch(word)]
    return len(others) > allowed


def takes_a_file_in(text: str) -> bool:
    """A redirection brings a file in without any program's help: `< key`, `$(<key)`."""
    return "<" in _EMPTY_INPUT.sub("", text)


def _is_plain_flag(name: str, flag: str) -> bool:
    if flag.startswith("--") or not _FLAG.fullmatch(flag):
        return False
    return not set(flag) & set(_FROM_FILE.get(name, ""))
