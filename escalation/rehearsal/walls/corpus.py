"""The commands that are tried, as data: one JSON object a line.

`{"tier": 1, "expect": "deny", "command": "docker restart web"}`. A line that is wrong is named with
what is wrong with it, and the others still count: one typing mistake must not hide 300 answers. A
corpus of somebody else may have fields of its own, which are passed over.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from escalation.tiers import HIGHEST_TIER, LOWEST_TIER

Find = Callable[[str], str | None]
"""Where a program is; None where it is not."""
SHIPPED = Path(__file__).parent / "corpus.jsonl"
ALLOW, CONTAIN, DENY = EXPECTATIONS = ("allow", "contain", "deny")
_KNOWN = {"tier", "expect", "command", "needs", "group", "why"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    tier: int
    expect: str
    command: str
    needs: tuple[str, ...] = ()
    """Programs without which the command says nothing about the walls."""
    group: str = ""
    why: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Corpus:
    rows: tuple[Row, ...]
    wrong: tuple[str, ...] = ()
    """`line 7: …` for each line that could not be used."""
    left_out: tuple[str, ...] = ()
    """Commands whose program is not on this machine, with its name."""

    text: str = ""
    """As it was read."""

    def of_tier(self, tier: int) -> Corpus:
        return replace(self, rows=tuple(row for row in self.rows if row.tier == tier))


def read(path: Path = SHIPPED, *, find: Find = shutil.which) -> Corpus:
    """Raise OSError where there is no such file."""
    return parse(path.read_bytes().decode("utf-8-sig", "replace"), find=find)


def parse(text: str, *, find: Find = shutil.which) -> Corpus:
    rows, wrong, left_out = [], [], []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            row = _row(line)
        except ValueError as error:
            wrong.append(f"line {number}: {error}")
            continue
        if missing := [program for program in row.needs if find(program) is None]:
            left_out.append(f"{row.command} (there is no {', '.join(missing)} here)")
        else:
            rows.append(row)
    return Corpus(rows=tuple(rows), wrong=tuple(wrong), left_out=tuple(left_out), text=text)


def _row(line: str) -> Row:
    found = _object(line)
    tier, expect, command = found.get("tier"), found.get("expect"), found.get("command")
    if type(tier) is not int or not LOWEST_TIER <= tier <= HIGHEST_TIER:
        raise ValueError(f'"tier" is {tier!r}, not a number from {LOWEST_TIER} to {HIGHEST_TIER}')
    if expect not in EXPECTATIONS:
        raise ValueError(f'"expect" is {expect!r}, not one of {", ".join(EXPECTATIONS)}')
    if not isinstance(command, str) or not command.strip():
        raise ValueError(f'"command" is {command!r}, not a text')
    if unknown := [name for name in sorted(set(found) - _KNOWN) if _seems_known(name)]:
        raise ValueError(f"unknown: {', '.join(unknown)}")
    return Row(
        tier=tier,
        expect=expect,
        command=command,
        needs=_names(found.get("needs")),
        group=str(found.get("group") or ""),
        why=str(found.get("why") or ""),
    )


def _seems_known(name: str) -> bool:
    """A typing mistake in one of ours would change what is tried."""
    return bool(get_close_matches(name.lower(), _KNOWN, n=1, cutoff=0.8))


def _object(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from error
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return found


def _names(needs: Any) -> tuple[str, ...]:
    """One program as a text, or several as a list."""
    names = [needs] if isinstance(needs, str) else needs or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f'"needs" is {needs!r}, not the name of a program')
    return tuple(name for part in names for name in part.replace(",", " ").split())
