"""Finished experiments on disk, for planting violations into their evidence."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.devtools import chaos
from tests.devtools.chaos.api_log import KINDS, total
from tests.devtools.chaos.costs import COLUMNS, Prices
from tests.devtools.chaos.evidence import DrillEvidence, DrillTraces, gather
from tests.devtools.chaos.invariants import violations
from tests.devtools.chaos.raw_transcripts import usages

PROJECT = Path(__file__).resolve().parents[2]
TIMEOUT_SECONDS = 60


@dataclass
class FinishedExperiment:
    """A state directory after a drill, with ways to spoil what lies in it."""

    state: Path
    prices: Prices

    @property
    def place(self) -> DrillTraces:
        return DrillTraces(state=self.state, drills=self.state / "drills", cycle=1)

    @property
    def evidence(self) -> DrillEvidence:
        return gather(self.place)

    @property
    def violations(self) -> list[str]:
        return violations(self.evidence, self.prices)

    def copied_to(self, directory: Path) -> FinishedExperiment:
        """The transcripts' folder is named after the drill's directory, which nobody asks for."""
        shutil.copytree(self.state, directory)
        return FinishedExperiment(directory, self.prices)

    def change(self, *statements: str) -> None:
        database = self.state / "claudeops.sqlite3"
        with contextlib.closing(sqlite3.connect(database)) as record, record:
            for statement in statements:
                assert record.execute(statement).rowcount > 0, f"changes nothing: {statement}"

    def rewrite_log(self, change: Callable[[list[dict[str, Any]]], None]) -> None:
        path = self.place.drill / "requests.jsonl"
        entries = [json.loads(line) for line in path.read_text().splitlines()]
        change(entries)
        path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))

    def transcript(self, session: int) -> Path:
        rows = {run.key: run.row["session_id"] for run in self.evidence.runs}
        (path,) = self.place.cli.rglob(f"{rows[session]}.jsonl")
        return path

    def add_silent_attempt(self, *, beside: int) -> int:
        """One more run from the same place, cut off before a word was said."""
        (row,) = [run.row for run in self.evidence.runs if run.key == beside]
        silent = {
            **row,
            **dict.fromkeys(COLUMNS.values(), 0),
            **{"status": "interrupted", "session_id": "", "run_mark": "", "report": None},
            **{"cost_usd": None, "estimated_cost_usd": None},
        }
        del silent["id"]
        names, marks = ", ".join(silent), ", ".join("?" * len(silent))
        insert = f"INSERT INTO sessions ({names}) VALUES ({marks})"  # noqa: S608 (all of it is ours)
        database = self.state / "claudeops.sqlite3"
        with contextlib.closing(sqlite3.connect(database)) as record, record:
            return int(record.execute(insert, list(silent.values())).lastrowid or 0)

    def correct_costs(self, session: int) -> None:
        """A session that was cut off counts just what its transcript proves, at no stated cost."""
        (run,) = [run for run in self.evidence.runs if run.key == session]
        proved = total(usages(run.words))
        counted = ", ".join(f"{COLUMNS[kind]} = {proved[kind]}" for kind in KINDS)
        unstated = "cost_usd = NULL, estimated_cost_usd = NULL"
        self.change(update("sessions", f"{counted}, {unstated}", f"id = {session}"))


def update(table: str, what: str, where: str) -> str:
    return f"UPDATE {table} SET {what} WHERE {where}"  # noqa: S608 (all of it is ours)


def delete(table: str, where: str) -> str:
    return f"DELETE FROM {table} WHERE {where}"  # noqa: S608 (all of it is ours)


def play_drill(state: Path, *, kill_first_cli: bool = False) -> None:
    """One drill in the foreground, with the real CLI; its first run may be cut off by a kill."""
    environment = {
        **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
        "CLAUDEOPS_STATE_DIR": str(state),
        "CLAUDEOPS_SCENARIOS_DIR": str(Path(chaos.__file__).parent / "scenarios"),
        "CLAUDEOPS_LOG_LEVEL": "ERROR",
    }
    manage = [sys.executable, "manage.py"]
    subprocess.run([*manage, "migrate", "-v0"], cwd=PROJECT, env=environment, check=True)
    with subprocess.Popen(
        [*manage, "drill", "chaos"], cwd=PROJECT, env=environment, stdout=subprocess.DEVNULL
    ) as drill:
        if kill_first_cli:
            os.kill(_talking_cli(state), signal.SIGKILL)
        assert drill.wait(TIMEOUT_SECONDS) is not None


def _talking_cli(state: Path) -> int:
    """The CLI of the first run, once a tool has answered it."""
    query = (
        "SELECT cli_pid FROM sessions JOIN sessions_app_sessionevent AS event"
        " ON event.session_id = sessions.id WHERE event.kind = 'user' AND cli_pid > 0"
    )
    give_up = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < give_up:
        with contextlib.closing(sqlite3.connect(state / "claudeops.sqlite3")) as record:
            if row := record.execute(query).fetchone():
                return int(row[0])
        time.sleep(0.05)
    raise AssertionError("no tool has answered")
