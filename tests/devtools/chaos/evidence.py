"""Gathers the evidence about a finished experiment, without code of Claude Ops.

The database is read by SQL, not through the models that are checked. A test makes sure that nothing
is imported from the rest of Claude Ops.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tests.devtools.chaos.api_log import LoggedExchange, exchanges
from tests.devtools.chaos.leftovers import left_files, living_processes
from tests.devtools.chaos.raw_transcripts import Entry, ids, own_words, transcripts
from tests.devtools.chaos.record import SQLITE, Ask, RecordAway, Row, opened, value_of

DATABASE = "claudeops.sqlite3"
TIMEOUT_SECONDS = 60.0
Seen = TypeVar("Seen")


@dataclass(frozen=True, kw_only=True, slots=True)
class DrillTraces:
    """The paths of the evidence of one drill."""

    state: Path
    drills: Path
    """Not on the disk that may be filled."""
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
        """Return the transcripts of every host, the longest copy of each."""
        found: dict[str, list[Entry]] = {}
        for state in (self.state, *self.other_states):
            for name, entries in transcripts(state / "claude" / f"cycle-{self.cycle}").items():
                found[name] = max(found.get(name, []), entries, key=len)
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionEvidence:
    """One stored session and the independent evidence about it."""

    row: Row
    events: list[Row]
    exchanges: list[LoggedExchange]
    words: list[Entry]
    """The transcript entries of this run alone."""
    transcript: list[Entry]

    @property
    def key(self) -> int:
        return int(self.row["id"])

    @property
    def did_nothing(self) -> bool:
        """Whether it was interrupted before the first answer, by all evidence.

        A second request would show that the first answer arrived.
        """
        heard = any(event["payload"].get("type") == "assistant" for event in self.events)
        return not (self.words or heard or self.results) and len(self.exchanges) < 2

    @property
    def results(self) -> list[dict[str, Any]]:
        """The result lines of the CLI."""
        return [
            event["payload"] for event in self.events if event["payload"].get("type") == "result"
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class DrillEvidence:
    cycle: Row
    runs: list[SessionEvidence]
    strangers: list[str] = field(default_factory=list)
    """Runs that the API has seen but the database does not have."""
    held: list[str] = field(default_factory=list)
    """Conversations that are marked as in use."""
    processes: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)


def resumed_line(run: SessionEvidence, runs: list[SessionEvidence]) -> list[SessionEvidence]:
    """Return the run and those whose conversation it continues, newest first."""
    by_key = {one.key: one for one in runs}
    line = [run]
    while line[-1].row["continued_by"] == "resume" and len(line) <= len(runs):
        parent = by_key.get(line[-1].row["parent_session_id"])
        if parent is None:
            break
        line.append(parent)
    return line


def gather(place: DrillTraces) -> DrillEvidence:
    return _with_retry(lambda: _gather(place))


def _gather(place: DrillTraces) -> DrillEvidence:
    with opened(place.record) as ask_record:
        (cycle,) = ask_record("SELECT * FROM sessions_app_cycle WHERE id = ?", place.cycle)
        rows = ask_record("SELECT * FROM sessions WHERE cycle_id = ? ORDER BY id", place.cycle)
        events = {row["id"]: _events(ask_record, row["id"]) for row in rows}
        held = [name for row in rows for name in _held(ask_record, row["id"])]
    seen = exchanges(place.drill / "requests.jsonl")
    known = {str(row["id"]) for row in rows}
    return DrillEvidence(
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
    """Run one query."""

    def look() -> list[Row]:
        with opened(record) as ask_record:
            return ask_record(query, *parameters)

    return _with_retry(look)


def _with_retry(look: Callable[[], Seen]) -> Seen:
    """Retry: the fault of another experiment may block a reader for a while."""
    give_up = time.monotonic() + TIMEOUT_SECONDS
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
    seen: list[LoggedExchange],
    files: dict[str, list[Entry]],
) -> list[SessionEvidence]:
    runs, before = [], set[str]()
    for row in rows:
        transcript = files.get(row["session_id"], [])
        runs.append(
            SessionEvidence(
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
