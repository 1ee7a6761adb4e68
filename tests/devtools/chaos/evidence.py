"""All that is known about a finished round, each piece read from where it lies, by plain means.

The record is read by SQL, not through the models: what is checked must not do the reading. Nothing
here imports from the rest of Claude Ops, and a test holds that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from escalation.rehearsal.chaos.api_log import Exchange, exchanges
from escalation.rehearsal.chaos.left_behind import left_files, living_processes
from escalation.rehearsal.chaos.raw_transcripts import Entry, ids, own_words, transcripts
from escalation.rehearsal.chaos.record import SQLITE, Ask, RecordAway, Row, opened, value_of

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
    other_states: tuple[Path, ...] = ()
    """The state directories of further hosts."""
    address: str = ""

    @property
    def record(self) -> str:
        return self.address or f"{SQLITE}{self.state / DATABASE}"

    @property
    def drill(self) -> Path:
        return (self.drills / f"cycle-{self.cycle}").resolve()

    @property
    def cli(self) -> Path:
        return self.state / "claude" / f"cycle-{self.cycle}"

    def transcripts(self) -> dict[str, list[Entry]]:
        """Of every host. A conversation that was put back elsewhere is there too: the longest."""
        found: dict[str, list[Entry]] = {}
        for state in (self.state, *self.other_states):
            for name, entries in transcripts(state / "claude" / f"cycle-{self.cycle}").items():
                found[name] = max(found.get(name, []), entries, key=len)
        return found


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
    with opened(place.record) as ask_record:
        (cycle,) = ask_record("SELECT * FROM sessions_app_cycle WHERE id = ?", place.cycle)
        rows = ask_record("SELECT * FROM sessions WHERE cycle_id = ? ORDER BY id", place.cycle)
        events = {row["id"]: _events(ask_record, row["id"]) for row in rows}
        held = [name for row in rows for name in _held(ask_record, row["id"])]
    seen = exchanges(place.drill / "requests.jsonl")
    known = {str(row["id"]) for row in rows}
    return Evidence(
        cycle=cycle,
        runs=_runs(rows, events, seen, place.transcripts()),
        strangers=sorted({one.run for one in seen} - known),
        held=held,
        processes=living_processes([row["run_mark"] for row in rows], place.drill),
        files=[
            name
            for state in (place.state, *place.other_states)
            for name in left_files(state, [row["id"] for row in rows])
        ],
    )


def ask(record: str, query: str, *parameters: Any) -> list[Row]:
    """One question to the record."""

    def look() -> list[Row]:
        with opened(record) as ask_record:
            return ask_record(query, *parameters)

    return _patiently(look)


def _patiently(look: Callable[[], Seen]) -> Seen:
    """The fault of another round may hold up even a reader for a while."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return look()
        except RecordAway:
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


def _events(ask_record: Ask, session: int) -> list[Row]:
    query = (
        "SELECT sequence, source, kind, payload FROM sessions_app_sessionevent"
        " WHERE session_id = ? ORDER BY sequence"
    )
    found = ask_record(query, session)
    return [{**event, "payload": value_of(event["payload"])} for event in found]


def _held(ask_record: Ask, session: int) -> list[str]:
    query = "SELECT session_id FROM sessions_app_conversation WHERE in_use_by_id = ?"
    return [row["session_id"] for row in ask_record(query, session)]
