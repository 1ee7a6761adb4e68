"""All that is known about a finished round, each piece read from where it lies, by plain means.

The record is read by SQL, not through the models: what is checked must not do the reading. Nothing
here imports from the rest of Claude Ops, and a test holds that.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from escalation.rehearsal.chaos.api_log import Exchange, exchanges
from escalation.rehearsal.chaos.left_behind import left_files, living_processes
from escalation.rehearsal.chaos.raw_transcripts import Entry, ids, own_words, transcripts

Row = dict[str, Any]
DATABASE = "claudeops.sqlite3"
PATIENCE_SECONDS = 60.0
Seen = TypeVar("Seen")


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where the traces of one drill lie."""

    state: Path
    drills: Path
    """Outside the disk that may be filled: a witness must not fall with whom it watches."""
    cycle: int

    @property
    def drill(self) -> Path:
        return (self.drills / f"cycle-{self.cycle}").resolve()

    @property
    def cli(self) -> Path:
        return self.state / "claude" / f"cycle-{self.cycle}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One session of the record, and what each witness says about it."""

    row: Row
    events: list[Row]
    exchanges: list[Exchange]
    words: list[Entry]
    """What the CLI wrote down about this run alone."""
    transcript: list[Entry]

    @property
    def key(self) -> int:
        return int(self.row["id"])

    @property
    def did_nothing(self) -> bool:
        """It was cut off before a first answer: no witness has heard a word of it.

        A second request would show that the first answer was heard, whatever was written down.
        """
        heard = any(event["payload"].get("type") == "assistant" for event in self.events)
        return not (self.words or heard or self.results) and len(self.exchanges) < 2

    @property
    def results(self) -> list[dict[str, Any]]:
        """The CLI's own last words, as they came out of it."""
        return [
            event["payload"] for event in self.events if event["payload"].get("type") == "result"
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    cycle: Row
    runs: list[Run]
    strangers: list[str] = field(default_factory=list)
    """Runs that the API has seen and the record has not."""
    held: list[str] = field(default_factory=list)
    """Conversations that the record says are in use."""
    processes: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)


def resumed_line(run: Run, runs: list[Run]) -> list[Run]:
    """The run, and those before it whose conversation it goes on with, newest first."""
    by_key = {one.key: one for one in runs}
    line = [run]
    while line[-1].row["continued_by"] == "resume" and len(line) <= len(runs):
        parent = by_key.get(line[-1].row["parent_session_id"])
        if parent is None:
            break
        line.append(parent)
    return line


def gather(place: Place) -> Evidence:
    return _patiently(lambda: _gather(place))


def _gather(place: Place) -> Evidence:
    with _record(place.state) as record:
        (cycle,) = _rows(record, "SELECT * FROM sessions_app_cycle WHERE id = ?", place.cycle)
        rows = _rows(record, "SELECT * FROM sessions WHERE cycle_id = ? ORDER BY id", place.cycle)
        events = {row["id"]: _events(record, row["id"]) for row in rows}
        held = [name for row in rows for name in _held(record, row["id"])]
    seen = exchanges(place.drill / "requests.jsonl")
    known = {str(row["id"]) for row in rows}
    return Evidence(
        cycle=cycle,
        runs=_runs(rows, events, seen, transcripts(place.cli)),
        strangers=sorted({one.run for one in seen} - known),
        held=held,
        processes=living_processes([row["run_mark"] for row in rows], place.drill),
        files=left_files(place.state, [row["id"] for row in rows]),
    )


def ask(state: Path, query: str, *parameters: Any) -> list[Row]:
    """One question to the record."""

    def look() -> list[Row]:
        with _record(state) as record:
            return _rows(record, query, *parameters)

    return _patiently(look)


def _patiently(look: Callable[[], Seen]) -> Seen:
    """The fault of another round may hold up even a reader for a while."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return look()
        except sqlite3.OperationalError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.5)


def _runs(
    rows: list[Row],
    events: dict[int, list[Row]],
    seen: list[Exchange],
    files: dict[str, list[Entry]],
) -> list[Run]:
    runs, before = [], set[str]()
    for row in rows:
        transcript = files.get(row["session_id"], [])
        runs.append(
            Run(
                row=row,
                events=events[row["id"]],
                exchanges=[one for one in seen if one.run == str(row["id"])],
                words=own_words(transcript, before),
                transcript=transcript,
            )
        )
        before |= ids(transcript)
    return runs


def _events(record: sqlite3.Connection, session: int) -> list[Row]:
    query = (
        "SELECT sequence, source, kind, payload FROM sessions_app_sessionevent"
        " WHERE session_id = ? ORDER BY sequence"
    )
    found = _rows(record, query, session)
    return [{**event, "payload": json.loads(event["payload"])} for event in found]


def _held(record: sqlite3.Connection, session: int) -> list[str]:
    query = "SELECT session_id FROM sessions_app_conversation WHERE in_use_by_id = ?"
    return [row["session_id"] for row in _rows(record, query, session)]


@contextmanager
def _record(state: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(state / DATABASE, timeout=30)) as record:
        record.row_factory = sqlite3.Row
        yield record


def _rows(record: sqlite3.Connection, query: str, *parameters: Any) -> list[Row]:
    return [dict(row) for row in record.execute(query, parameters)]
