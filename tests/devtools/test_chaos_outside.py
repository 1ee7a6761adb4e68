"""The invariants of alerts and probes: what is planted into a record is reported."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from tests.devtools.chaos import outside
from tests.devtools.chaos.outside import Outside
from tests.devtools.chaos.record import SQLITE
from tests.tables import each_row

GOOD = [("a", "now", "run"), ("b", "now", "replay")]


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(outside, "SETTLING_SECONDS", 0)
    return tmp_path / "record"


def written(file: Path, deliveries: list[tuple[str, str | None, str]], probe: str) -> str:
    file.unlink(missing_ok=True)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.executescript(
            "CREATE TABLE sessions_app_delivery (identity, judged_at, verdict);"
            "CREATE TABLE sessions_app_probe (state);"
            "CREATE TABLE sessions_app_incident (id, found_by, state);"
        )
        connection.executemany("INSERT INTO sessions_app_delivery VALUES (?, ?, ?)", deliveries)
        connection.execute("INSERT INTO sessions_app_probe VALUES (?)", [probe])
        if probe == "down":
            connection.execute("INSERT INTO sessions_app_incident VALUES (7, 'probe', 'open')")
    return f"{SQLITE}{file}"


@each_row(
    "deliveries, probe, violated",
    [
        (GOOD, "up", 0),
        (GOOD[:1], "up", 1),  # lost
        ([*GOOD, GOOD[0], GOOD[0]], "up", 1),  # stored three times, sent twice
        ([*GOOD, ("a", None, "")], "up", 1),  # not judged
        (GOOD, "down", 2),  # the probe and its incident
    ],
)
def test_what_is_not_accounted_for_is_reported(record, deliveries, probe, violated):
    sender = Outside("", "", Path(), attempts=Counter(a=2, b=1), accepted=Counter(a=1, b=1))

    assert len(sender.violations(written(record, deliveries, probe))) == violated
