"""`claudeops backup`, `restore` and `upgrade`: an installation in one file, and back."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from escalation.worker.backup import Writer, compressed
from tests.devtools.scratch import small_disk_wrapper
from tests.system.conftest import PROJECT, Installation, installed_in, wait_until


@pytest.fixture(scope="module")
def first_played(
    first_installation: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Installation:
    """With a watch and a drill on record."""
    first = installed_in(tmp_path_factory.mktemp("played"))
    shutil.copytree(first_installation.state, first.state)
    watched = first.environment["CLAUDEOPS_WORKDIR"]
    assert first.manage("watch", "add", "shop", watched).returncode == 0
    assert first.manage("drill", "three-tiers").returncode == 0
    return first


@pytest.fixture(scope="module")
def first_older(
    first_played: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Installation:
    """With the tables of an earlier version, which had fewer columns.

    `tests/test_upgrade.py` begins with the versions 0.1 and 0.2.
    """
    older = installed_in(tmp_path_factory.mktemp("older"))
    shutil.copytree(first_played.state, older.state)
    done = older.manage("migrate", "sessions_app", "0041")
    assert done.returncode == 0, done.stderr
    return older


@pytest.fixture
def older(installation: Installation, first_older: Installation) -> Installation:
    shutil.copytree(first_older.state, installation.state)
    return installation


@pytest.fixture
def played(installation: Installation, first_played: Installation) -> Installation:
    shutil.copytree(first_played.state, installation.state)
    return installation


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Installation]:
    (tmp_path / "other").mkdir()
    installation = installed_in(tmp_path / "other")
    yield installation
    installation.stop_everything()


def saved(installation: Installation) -> Path:
    path = installation.state.parent / "ops.backup"
    done = installation.manage("backup", str(path))
    assert done.returncode == 0, done.stderr
    return path


def everything(installation: Installation) -> dict[str, list[str]]:
    """By other eyes than the backup's: every table of the file itself, its triggers, and a search.

    PostgreSQL keeps JSON by its meaning, so that the order of keys is no difference, and how an
    index for words is cut into pieces tells only how it grew.
    """
    tables = installation.rows(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT GLOB 'session_words_*' "
        "AND name NOT GLOB 'run_words_*'"
    )
    left_out = {"sqlite_sequence", "django_migrations"}
    found = {
        name: sorted(map(by_meaning, rows_without_schedules(installation, name)))
        for (name,) in tables
        if name not in left_out and not name.startswith("django_q_")
    }
    kept_in_step = installation.rows("SELECT sql FROM sqlite_master WHERE type = 'trigger'")
    searched = installation.rows("SELECT rowid FROM session_words WHERE session_words MATCH 'web'")
    return found | {
        "(triggers)": sorted(map(str, kept_in_step)),
        "(search)": list(map(str, searched)),
    }


def rows_without_schedules(installation: Installation, table: str) -> list[tuple[object, ...]]:
    """The queue is not part of a backup, and so no watch refers to its schedule afterwards."""
    found = installation.rows(f"SELECT name FROM pragma_table_info('{table}')")  # noqa: S608
    names = ", ".join(f'"{name}"' for (name,) in found if name != "schedule_id")
    return installation.rows(f'SELECT {names} FROM "{table}"')  # noqa: S608


def by_meaning(row: tuple[object, ...]) -> str:
    return repr([_json(value) for value in row])


def _json(value: object) -> object:
    if not isinstance(value, str) or value[:1] not in {"{", "["}:
        return value
    try:
        return json.dumps(json.loads(value), sort_keys=True)
    except ValueError:
        return value


def test_a_restored_installation_is_the_same(played: Installation, other: Installation):
    path = saved(played)

    done = other.manage("restore", str(path))

    assert done.returncode == 0, done.stderr
    assert everything(other) == everything(played)
    assert everything(other)["(search)"] == ["(1,)", "(2,)", "(3,)"]
    for key in ("secret_key", "encryption_key"):
        assert (other.state / key).read_text() == (played.state / key).read_text()
    assert "the key decrypts all checked data" in other.manage("doctor").stdout
    assert other.chain(1) == played.chain(1)
    assert "is kept as" not in done.stdout
    assert path.stat().st_mode & 0o777 == 0o600


def with_queue(path: Path, installation: Installation) -> Path:
    """Return the backup as earlier versions made it, with a foreign task and schedule."""
    with sqlite3.connect(installation.database) as record:
        record.execute(
            "INSERT INTO django_q_ormq (key, payload, lock) VALUES ('a', 'code', '2026-01-01')"
        )
        record.execute("UPDATE django_q_schedule SET func = 'os.system'")
    record.close()
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    old = path.with_name("old.backup")
    with old.open("wb") as file, compressed(file) as out:
        writer = Writer(out)
        for line in lines[:-1]:
            if isinstance(line, dict) and line.get("table") == "sessions_app.watch":
                for name in ("ormq", "schedule"):
                    table = f"django_q_{name}"
                    found = installation.rows(f"SELECT name FROM pragma_table_info('{table}')")  # noqa: S608
                    columns = [column for (column,) in found]
                    writer.write({"table": f"django_q.{name}", "columns": columns})
                    for row in installation.rows(f"SELECT * FROM {table}"):  # noqa: S608
                        writer.write(list(row))
            writer.write(line)
        writer.end()
    return old


def test_queue_of_a_backup_is_not_restored_and_schedules_are_made_at_the_start(
    played: Installation, other: Installation
):
    """Its tasks are code, signed with the key in the same file."""
    path = with_queue(saved(played), played)
    done = other.manage("restore", str(path))
    assert done.returncode == 0, done.stderr

    assert other.rows("SELECT * FROM django_q_ormq") == []
    assert other.rows("SELECT * FROM django_q_schedule") == []
    assert other.rows("SELECT name, schedule_id FROM sessions_app_watch") == [
        ("default", None),
        ("shop", None),
    ]
    other.start("worker")
    wait_until(
        lambda: not other.rows("SELECT 1 FROM sessions_app_watch WHERE schedule_id IS NULL"),
        "the schedules of the watches",
    )
    assert {func for (func,) in other.rows("SELECT func FROM django_q_schedule")} >= {
        "escalation.tasks.start_scheduled_cycle",
        "escalation.tasks.recover_orphans",
    }
    assert other.rows("SELECT 1 FROM django_q_schedule WHERE func = 'os.system'") == []


def damaged(path: Path, how: str) -> Path:
    bad = path.with_name(f"{how}.backup")
    whole = path.read_bytes()
    if how == "truncated":
        bad.write_bytes(whole[: len(whole) // 2])
    elif how == "foreign":
        bad.write_bytes(b"-- PostgreSQL database dump")
    else:
        lines = gzip.decompress(whole).splitlines(keepends=True)
        heading = json.loads(lines[0])
        heading["migrations"].append(["sessions_app", "0999_future"])
        heading["version"] = "9.9"
        with bad.open("wb") as file, compressed(file) as out:
            writer = Writer(out)
            for value in (heading, *map(json.loads, lines[1:-1])):
                writer.write(value)
            writer.end()
    return bad


def test_an_unusable_backup_changes_nothing(played: Installation):
    path = saved(played)
    before = everything(played)
    files = sorted(entry.name for entry in played.state.iterdir())
    said = {
        "truncated": "is cut off or damaged",
        "foreign": "is not a backup",
        "newer": "was made by a newer Claude Ops (9.9; this is",
    }

    for how, words in said.items():
        done = played.manage("restore", str(damaged(path, how)), "--replace", "--no-input")

        assert done.returncode == 2
        assert words in done.stderr
        assert "Traceback" not in done.stderr
    assert everything(played) == before
    assert sorted(entry.name for entry in played.state.iterdir()) == files


def test_an_existing_database_is_replaced_only_on_demand_and_kept_beside(played: Installation):
    path = saved(played)
    played.manage("watch", "remove", "shop", "--no-input")

    refused = played.manage("restore", str(path))
    asked = played.manage("restore", str(path), "--replace", stdin="n\n")
    done = played.manage("restore", str(path), "--replace", "--no-input")

    assert (refused.returncode, asked.returncode, done.returncode) == (2, 2, 0)
    assert "There is a record here already" in refused.stderr
    assert played.rows("SELECT name FROM sessions_app_watch") == [("default",), ("shop",)]
    assert len(list(played.state.glob("claudeops.sqlite3.before-restore-*"))) == 1


def test_a_running_installation_is_not_replaced(played: Installation):
    path = saved(played)
    worker = played.start("worker")
    wait_until(lambda: played.rows("SELECT 1 FROM sessions_app_workerheartbeat"), "a heartbeat")

    done = played.manage("restore", str(path), "--replace", "--no-input")

    assert done.returncode == 2
    assert f"process {worker.pid}" in done.stderr


def test_a_backup_of_an_older_version_is_upgraded(older: Installation, other: Installation):
    ahead = older.manage("upgrade", "--check")

    path = saved(older)
    done = other.manage("restore", str(path))

    assert ahead.returncode == 1
    assert "would apply sessions_app.0042_disagreements" in ahead.stdout
    assert done.returncode == 0, done.stderr
    assert other.rows("SELECT name FROM sessions_app_watch") == [("default",), ("shop",)]
    assert len(other.chain(1)) == 3
    assert other.manage("upgrade", "--check").returncode == 0


def test_upgrade_waits_for_running_sessions(older: Installation):
    with sqlite3.connect(older.database) as record:
        record.execute(
            "UPDATE sessions SET status = 'running', host = 'another', "
            "heartbeat_at = strftime('%Y-%m-%d %H:%M:%S', 'now') WHERE id = 3"
        )
    record.close()

    refused = [older.manage("upgrade"), older.manage("upgrade", "--check"), older.manage("up")]

    assert [done.returncode for done in refused] == [2, 2, 2]
    assert all("Sessions are running (#3)" in done.stderr for done in refused)
    assert older.rows("SELECT max(name) FROM django_migrations WHERE app = 'sessions_app'") == [
        ("0041_alerts",)
    ]


def test_a_full_disk_leaves_no_partial_backup(played: Installation, tmp_path: Path):
    disk = tmp_path / "disk"
    disk.mkdir()
    (played.state / "spool").mkdir(exist_ok=True)
    (played.state / "spool" / "large.jsonl").write_bytes(os.urandom(3_000_000))
    wrapper, trouble = small_disk_wrapper(disk, 1)
    assert not trouble

    script = f'"$0" manage.py backup {disk}/x.backup; echo "code $?"; ls -A {disk}'
    done = subprocess.run(
        [*wrapper, "sh", "-c", script, sys.executable],
        cwd=PROJECT,
        env=played.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.stdout == "code 2\n"
    assert "No space left on device" in done.stderr


def test_a_backup_does_not_overwrite_a_file(played: Installation, tmp_path: Path):
    (tmp_path / "mine").write_text("mine")

    refused = [
        played.manage("backup", str(tmp_path / "mine")),
        played.manage("backup", str(tmp_path)),
        played.manage("backup", str(tmp_path / "nowhere" / "x")),
    ]

    assert [done.returncode for done in refused] == [2, 2, 2]
    assert (tmp_path / "mine").read_text() == "mine"
