"""The edits of a run, read from its stored stream events: which file, and what was changed in it.

Only what the CLI says it has done: a call that failed, was refused or never answered is no edit.
Newer CLIs send the patch itself with the result; without it the diff is made from the call.
Nothing here raises: a field that is missing or of another type is read as empty.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sessions_app.reading import stream_shape as shape
from sessions_app.reading.plain_text import cut

EDITING_TOOLS = frozenset({"Edit", "Write", "NotebookEdit", "MultiEdit"})
VERBS = {"Write": "write"}
LONGEST_DIFF = 20_000
LONGEST_PATH = 1_000
LONGEST_COMPARED = 200_000
"""Of a text that is compared line by line."""
CUT_OFF = "… ("


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    call: str
    """The CLI's id of the call."""
    tool: str
    path: str
    diff: str
    at: datetime

    @property
    def action(self) -> str:
        return f"{VERBS.get(self.tool, 'edit')} {self.path}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Heard:
    """One line of the stream."""

    payload: Any
    at: datetime


def edits_in(lines: Iterable[Heard]) -> list[Edit]:
    """In the order of their results, each once."""
    begun: dict[str, Mapping[str, Any]] = {}
    done: dict[str, Edit] = {}
    for line in lines:
        data = shape.mapping(line.payload)
        begun |= {
            shape.text(block.get("id")): block
            for block in shape.calls_of(data)
            if block.get("name") in EDITING_TOOLS and block.get("id")
        }
        for result in shape.results_of(data):
            call = shape.text(result.get("tool_use_id"))
            if call in begun and call not in done and not result.get("is_error"):
                done[call] = _edit(call, begun[call], data, line.at)
    return list(done.values())


def is_cut(diff: str) -> bool:
    return diff.rpartition("\n")[2].startswith(CUT_OFF) or CUT_OFF in diff[-60:]


def _edit(call: str, block: Mapping[str, Any], line: Mapping[str, Any], at: datetime) -> Edit:
    given = shape.mapping(block.get("input"))
    path = shape.text(given.get("file_path")) or shape.text(given.get("notebook_path"))
    told = shape.mapping(line.get("tool_use_result") or line.get("toolUseResult"))
    diff = _told_patch(told) or _own_diff(given, told)
    return Edit(
        call=call[:100],
        tool=shape.text(block.get("name")),
        path=path[:LONGEST_PATH],
        diff=cut(diff, LONGEST_DIFF),
        at=at,
    )


def _told_patch(told: Mapping[str, Any]) -> str:
    """The patch that the CLI sends with its result."""
    hunks = told.get("structuredPatch")
    listed = [shape.mapping(hunk) for hunk in hunks] if isinstance(hunks, list) else []
    return "\n".join(line for hunk in listed for line in _hunk(hunk))


def _hunk(hunk: Mapping[str, Any]) -> list[str]:
    lines = hunk.get("lines")
    numbers = [hunk.get(name) for name in ("oldStart", "oldLines", "newStart", "newLines")]
    if not isinstance(lines, list) or not all(isinstance(number, int) for number in numbers):
        return []
    head = "@@ -{},{} +{},{} @@".format(*numbers)
    return [head, *(shape.text(line) for line in lines)]


def _own_diff(given: Mapping[str, Any], told: Mapping[str, Any]) -> str:
    if "new_source" in given:
        return _between("", shape.text(given.get("new_source")))
    if "content" in given:
        before = shape.text(told.get("originalFile"))
        return _between(before, shape.text(given.get("content")))
    steps = given.get("edits")
    pairs = [shape.mapping(step) for step in steps] if isinstance(steps, list) else [given]
    found = [
        _between(shape.text(pair.get("old_string")), shape.text(pair.get("new_string")))
        for pair in pairs
    ]
    return "\n".join(filter(None, found))


def _between(before: str, after: str) -> str:
    """As `diff -u` has it, without the names of the files."""
    if max(len(before), len(after)) > LONGEST_COMPARED:
        return "\n".join([*_marked("-", before), *_marked("+", after)])
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="")
    return "\n".join(list(lines)[2:])


def _marked(sign: str, text: str) -> Sequence[str]:
    return [f"{sign}{line}" for line in text[:LONGEST_DIFF].splitlines()]
