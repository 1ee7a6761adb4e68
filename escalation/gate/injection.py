"""The injection boundary: is a command word for word what a tool printed earlier? Pure.

What came from logs, web pages, files and alerts is data. A model that runs a command which it has
read there may have been told to by whoever wrote that line; so a person looks first. Only a command
with an effect is held against the outputs, and only word for word: a model that has been talked
into something may also write it differently, and then the tier, the gate and its rules must hold.

What must not make this useless:

- A name and a verb alone (`git push`, `systemctl daemon-reload`) stand in the hints of many honest
  programs, and hold nothing that the writer of a log could have chosen. Compared is what has an
  object (`rm /srv/data`, `docker restart web`) or at least three words.
- What the operator named in so many words (instructions, manifest, request) is no order of a
  stranger's, wherever else it stands.
- Our own words come back as output, too: a denied command is told "run `…` by itself". So does the
  command that a result belongs to ("permission to run … has been denied"). Both are taken out
  before anything is compared.
- Part of a longer word is not the command: `docker restart web` does not stand in `docker restart
  web-2`.

Outputs are brought into one form when they come, once; a command is then looked up by the fastest
search that there is, so that megabytes cost milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from escalation.gate.decision import Decision, Verdict

FEWEST_WORDS = 3
RULE = "stands in tool output"
_BEGINS_A_WORD = r"(?<![\w/.-])"
_ENDS_A_WORD = r"(?![\w/-]|\.\w)"


class HeardOutputs:
    """What the tools of a conversation have printed, and what need not be suspected."""

    def __init__(self, *, named: Iterable[str] = ()) -> None:
        self._named = [collapsed(text) for text in named if text.strip()]
        self._outputs: list[str] = []

    def hear(self, output: str, *, ours: Iterable[str] = ()) -> None:
        """Without what we ourselves have said in it."""
        text = collapsed(output)
        for words in ours:
            text = text.replace(collapsed(words), " ") if words else text
        if text.strip():
            self._outputs.append(text)

    def repeated_in(self, command: str, effects: Iterable[str]) -> str:
        """The part of a command that stands in an output word for word, or nothing."""
        parts = dict.fromkeys(collapsed(part) for part in (command, *effects))
        suspect = (part for part in parts if _says_something(part))
        found = (part for part in suspect if _stands_in(part, tuple(self._outputs)))
        return next((part for part in found if not _stands_in(part, self._named)), "")


def with_boundary(decision: Decision, command: str, heard: HeardOutputs) -> Decision:
    """The decision on a command of Tier 2 or 3: an effect that repeats an output is asked for."""
    if decision.verdict != Verdict.ALLOW or not decision.effects:
        return decision
    part = heard.repeated_in(command, decision.effects)
    if not part:
        return decision
    return decision.asking(
        RULE,
        f"`{part}` stands word for word in what a tool printed earlier. That is data, so a person "
        "has to approve it.",
    )


def collapsed(text: str) -> str:
    return " ".join(text.split())


def _says_something(part: str) -> bool:
    words = part.split()
    return len(words) >= FEWEST_WORDS or _has_object(words)


def _has_object(words: list[str]) -> bool:
    """A second word that is no verb: a path, a number, a name with a mark in it."""
    return any(not re.fullmatch(r"[a-z][a-z-]*", word) for word in words[1:])


def _stands_in(part: str, texts: Iterable[str]) -> bool:
    bounded: re.Pattern[str] | None = None
    for text in texts:
        if part not in text:
            continue
        bounded = bounded or re.compile(_BEGINS_A_WORD + re.escape(part) + _ENDS_A_WORD)
        if bounded.search(text):
            return True
    return False
