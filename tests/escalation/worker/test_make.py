from __future__ import annotations

import errno
import gzip
import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from django_q.models import OrmQ, Schedule

from escalation.queue import enqueue_session
from escalation.worker import backup
from escalation.worker.backup import make_backup, rows_of
from sessions_app.models import Cycle, Session, SessionEvent
from tests.factories import CycleFactory, SessionEventFactory, SessionFactory, WatchFactory

pytestmark = pytest.mark.django_db(transaction=True)


def quiet(words: str) -> None:
    """Nobody looks at the progress."""


def rows_in(path: Path) -> Counter[str]:
    found: Counter[str] = Counter()
    table = ""
    for line in gzip.decompress(path.read_bytes()).splitlines():
        value: Any = json.loads(line)
        if isinstance(value, list):
            found[table] += 1
        else:
            table = value.get("table", "")
    return found


@pytest.fixture
def target(tmp_path, settings) -> Path:
    settings.CLAUDEOPS_STATE_DIR.mkdir()
    settings.CLAUDEOPS_ENV_FILE = tmp_path / ".env"
    return tmp_path / "ops.backup"


def test_a_backup_is_readable_only_by_its_owner_and_leaves_no_draft(target):
    SessionFactory()

    made = make_backup(target, quiet)

    assert target.stat().st_mode & 0o777 == 0o600
    assert made.size == target.stat().st_size
    assert [path.name for path in target.parent.iterdir() if ".part" in path.name] == []


def test_queue_is_not_in_a_backup(target):
    watch = WatchFactory()
    enqueue_session(SessionFactory(status=Session.Status.QUEUED))
    assert OrmQ.objects.exists()
    assert Schedule.objects.filter(name=f"watch-{watch.pk}").exists()

    make_backup(target, quiet)

    assert b'"django_q.' not in gzip.decompress(target.read_bytes())


def test_a_backup_contains_keys_settings_and_the_archive(target, settings, tmp_path):
    settings.CLAUDEOPS_ARCHIVE_DIR = str(tmp_path / "archive")
    (tmp_path / "archive" / "a").mkdir(parents=True)
    (tmp_path / "archive" / "a" / "1.jsonl.gz").write_bytes(b"old words")
    for key in ("secret_key", "encryption_key"):
        (settings.CLAUDEOPS_STATE_DIR / key).write_text("s3cret")
    (settings.CLAUDEOPS_STATE_DIR / "home").mkdir()
    settings.CLAUDEOPS_ENV_FILE.write_text("CLAUDEOPS_PORT=8123")

    make_backup(target, quiet)

    lines = [json.loads(line) for line in gzip.decompress(target.read_bytes()).splitlines()]
    names = [line["file"] for line in lines if "file" in line]
    assert names == ["secret_key", "encryption_key", "archive/a/1.jsonl.gz", "env"]


def test_a_backup_is_consistent_while_sessions_write(target):
    """A session is always written together with its event: none may be there alone."""
    cycle = CycleFactory()
    stop, began = threading.Event(), threading.Event()

    def write() -> None:
        while not stop.is_set():
            with transaction.atomic():
                session = SessionFactory(cycle=cycle)
                SessionEventFactory(session=session)
            began.set()
        connection.close()

    writer = threading.Thread(target=write)
    writer.start()
    assert began.wait(10)
    try:
        for number in range(3):
            before = Session.objects.count()
            path = target.with_name(f"{number}.backup")
            make_backup(path, lambda words: None)
            rows = rows_in(path)
            assert rows["sessions_app.session"] == rows["sessions_app.sessionevent"] >= before
    finally:
        stop.set()
        writer.join()

    assert SessionEvent.objects.count() > 3


def test_a_writer_does_not_wait_for_a_backup(target, monkeypatch):
    CycleFactory()
    written: list[int] = []

    def change() -> None:
        written.append(Cycle.objects.update(outcome_reason="changed meanwhile"))
        connection.close()

    def reading(model, alias):
        if not written:
            other = threading.Thread(target=change)
            other.start()
            other.join()
        return rows_of(model, alias)

    monkeypatch.setattr(backup, "rows_of", reading)

    make_backup(target, quiet)

    assert written == [1]
    assert b"changed meanwhile" not in gzip.decompress(target.read_bytes())


def test_a_full_disk_leaves_no_draft(target, monkeypatch):
    def full(model, alias):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(backup, "rows_of", full)
    before = set(target.parent.iterdir())

    with pytest.raises(OSError, match="No space left"):
        make_backup(target, quiet)

    assert set(target.parent.iterdir()) == before


def test_a_file_that_appeared_meanwhile_is_not_overwritten(target, monkeypatch):
    target.write_text("somebody's")

    with pytest.raises(FileExistsError):
        make_backup(target, quiet)

    assert target.read_text() == "somebody's"
