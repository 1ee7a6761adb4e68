"""Doors: what a command may reach besides reading files, in the words an operator writes.

`docker network processes ssh bus kube host write:/srv/app read:/home/me/app`; a minus in front of
a word closes what a tier would open.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches

DOCKER, NETWORK, PROCESSES, SSH, BUS, KUBE, HOST = NAMES = (
    *("docker", "network", "processes", "ssh", "bus", "kube", "host"),
)
AGENT = "agent"
"""What `ssh` opens for a command beside which no key may lie: the operator's agent alone. It is no
word of an operator."""
MEANING = {
    DOCKER: "the Docker engine, through a filter that knows the tier",
    NETWORK: "the network, for programs that are understood",
    PROCESSES: "the host's processes, without their environments",
    SSH: "the operator's keys, for ssh, scp and rsync",
    BUS: "systemd and the journal",
    KUBE: "the operator's kubeconfig, for kubectl and helm",
    HOST: "the host itself, for what cannot work in a room (sudo); never at Tier 1",
}
_PATHS = ("write", "read")
_LOWEST_TIER_ON_HOST = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Doors:
    """An open set of doors."""

    names: frozenset[str] = field(default_factory=frozenset)
    writable: tuple[str, ...] = ()
    """Paths besides the working directory that may be written, from Tier 2 on."""
    readable: tuple[str, ...] = ()
    """Paths that are shown although a room hides them otherwise."""

    def words(self) -> tuple[str, ...]:
        """As an operator would write them, in one order."""
        return (
            *(name for name in NAMES if name in self.names),
            *(f"write:{path}" for path in self.writable),
            *(f"read:{path}" for path in self.readable),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """One word of an operator."""

    kind: str
    """A door's name, "write" or "read"."""
    path: str = ""
    closes: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class DoorRow:
    """One line of the table that an operator sees."""

    word: str
    meaning: str
    change: str
    """Against the tier below: "opened", "closed" or nothing."""


def parse_doors(text: str) -> tuple[tuple[Wish, ...], tuple[str, ...]]:
    """An operator's words, and a sentence for each that is none."""
    wishes, problems = [], []
    for word in text.replace(",", " ").split():
        closes, plain = word.startswith("-"), word.removeprefix("-")
        kind, colon, path = plain.partition(":")
        if kind in _PATHS:
            problem = _problem_of_path(kind, path)
            path = posixpath.normpath(path) if path else path
        elif plain in NAMES:
            problem = ""
        else:
            problem = _unknown(plain)
        if problem:
            problems.append(problem)
        else:
            wishes.append(Wish(kind=kind, path=path, closes=closes))
    return tuple(wishes), tuple(problems)


def _problem_of_path(kind: str, path: str) -> str:
    if not path.startswith("/"):
        return f"`{kind}:{path}` is no absolute path: write it as `{kind}:/srv/app`."
    if "\0" in path or ".." in path.split("/"):
        return f"`{kind}:{path}` goes through `..`: name the directory itself."
    if posixpath.normpath(path).lstrip("/") == "":
        return f"`{kind}:{path}` would open the whole file system: name a directory in it."
    return ""


def _unknown(word: str) -> str:
    near = get_close_matches(word, (*NAMES, "write:", "read:"), n=1, cutoff=0.5)
    hint = f"did you mean `{near[0]}`?" if near else f"doors are {', '.join(NAMES)}, write:/PATH"
    return f"`{word}` is no door: {hint}"


def problems_at(tier: int, text: str) -> tuple[str, ...]:
    """What is wrong with an operator's words for a tier."""
    wishes, problems = parse_doors(text)
    opened = {wish.kind for wish in wishes if not wish.closes}
    if HOST in opened and tier < _LOWEST_TIER_ON_HOST:
        problems = (
            *problems,
            f"`{HOST}` is never open at Tier {tier}: name it at Tier 2 or 3, or leave it out.",
        )
    return problems


def default_doors(tier: int) -> Doors:
    everywhere = frozenset(NAMES) - {HOST}
    return Doors(names=everywhere | {HOST} if tier >= _LOWEST_TIER_ON_HOST else everywhere)


def doors_for(tier: int, tier_words: str = "", watch_words: str = "") -> Doors:
    """The tier's defaults, changed by the words for the tier, then by those of the watch.

    A word that is wrong opens nothing: it is shown where it is written.
    """
    doors = default_doors(tier)
    for words in (tier_words, watch_words):
        for wish in parse_doors(words)[0]:
            doors = _with(doors, wish)
    if tier < _LOWEST_TIER_ON_HOST:
        doors = Doors(names=doors.names - {HOST}, writable=doors.writable, readable=doors.readable)
    return doors


def _with(doors: Doors, wish: Wish) -> Doors:
    names, paths = set(doors.names), {"write": doors.writable, "read": doors.readable}
    if wish.kind in paths:
        others = tuple(path for path in paths[wish.kind] if path != wish.path)
        paths[wish.kind] = others if wish.closes else (*others, wish.path)
    elif wish.closes:
        names.discard(wish.kind)
    else:
        names.add(wish.kind)
    return Doors(names=frozenset(names), writable=paths["write"], readable=paths["read"])


def door_table(doors: Doors, below: Doors | None = None) -> tuple[DoorRow, ...]:
    """Every door that is open, or open at the tier below, and what changed against that."""
    now, before = doors.words(), doors.words() if below is None else below.words()
    return tuple(
        DoorRow(
            word=word,
            meaning=_meaning(word),
            change="closed" if word not in now else "opened" if word not in before else "",
        )
        for word in _in_order((*now, *before))
    )


def _meaning(word: str) -> str:
    kind, _, path = word.partition(":")
    if kind == "write":
        return f"writing in {path}, from Tier 2 on"
    return MEANING.get(word, f"reading {path}, which is hidden otherwise")


def _in_order(words: Iterable[str]) -> tuple[str, ...]:
    unique = tuple(dict.fromkeys(words))
    return (*(name for name in NAMES if name in unique), *(w for w in unique if w not in NAMES))
