"""The CLI's own rules, `Bash(docker restart:*)`, held against what a command was understood to be.

A rule that forbids matches every spelling of its command, options in any order. A rule that allows
matches from the first word on, and nothing else.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import lru_cache

from escalation.gate.understanding import Word

_RULE = re.compile(r"Bash\((.*)\)", re.DOTALL)
_SHORT_FOR: dict[tuple[str, ...], str] = {("git", "push", "--force"): "f"}
"""Where a rule of the defaults names an option by its long name alone."""

_LONG_FOR = {"r": "--recursive", "f": "--force"}


class Match(Enum):
    NO = auto()
    MAYBE = auto()
    """It would match with the right value of a word that is computed."""
    YES = auto()


@lru_cache(maxsize=512)
def prefix_of(rule: str) -> tuple[str, ...] | None:
    """The words of a rule about Bash; none for `Bash` itself; None for a rule about other tools."""
    if rule.strip() == "Bash":
        return ()
    found = _RULE.fullmatch(rule.strip())
    if found is None:
        return None
    text = re.sub(r"(:\*|\s\*|\*)$", "", found[1].strip())
    return tuple(text.split())


def forbids(rule: str, plain: tuple[Word, ...], action: tuple[str, ...]) -> Match:
    """Whether a rule forbids a command. Where `plain` begins with an action that was understood,
    the words behind that may stand in any order."""
    prefix = prefix_of(rule)
    if prefix is None:
        return Match.NO
    words = tuple(plain)
    if _begins(words, prefix):
        return Match.YES
    same = 0
    while same < min(len(action), len(prefix)) and action[same] == prefix[same]:
        same += 1
    if same < min(len(action), len(prefix)) or not action:
        return Match.NO
    if len(prefix) <= len(action):
        return Match.YES
    return _has_all(prefix, same, words[len(action) :])


def allows(rule: str, plain: tuple[Word, ...]) -> bool:
    prefix = prefix_of(rule)
    return prefix is not None and _begins(plain, prefix)


def _begins(words: tuple[Word, ...], prefix: tuple[str, ...]) -> bool:
    return words[: len(prefix)] == prefix


def _has_all(prefix: tuple[str, ...], begin: int, arguments: tuple[Word, ...]) -> Match:
    known = [word for word in arguments if word is not None]
    missing = [word for word in prefix[begin:] if not _has(prefix[:begin], word, known)]
    if not missing:
        return Match.YES
    return Match.MAYBE if None in arguments else Match.NO


def _has(action: tuple[str, ...], wanted: str, words: list[str]) -> bool:
    letters = {letter for word in words if re.match(r"-[^-]", word) for letter in word[1:]}
    short = _SHORT_FOR.get((*action, wanted), "")
    if short and (short in letters or any(word.startswith("+") for word in words)):
        return True
    if re.fullmatch(r"-[A-Za-z]+", wanted):
        return all(letter in letters or _LONG_FOR.get(letter) in words for letter in wanted[1:])
    if wanted.startswith("--"):
        return any(word == wanted or word.startswith(f"{wanted}=") for word in words)
    return any(_same_path(word, wanted) for word in words)


def _same_path(word: str, wanted: str) -> bool:
    if not wanted.startswith("/"):
        return word == wanted
    return re.sub(r"/(\.?/)*\.?$", "", word) == wanted.rstrip("/") and word.startswith("/")
