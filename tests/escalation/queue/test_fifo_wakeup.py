"""Wakeups on one host: listeners wake, and a broken FIFO stops no caller."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from django.db import transaction

from escalation.queue.broker import FifoWakeup

PROJECT = Path(__file__).resolve().parents[3]
LISTENER = """
import sys
from pathlib import Path
import django
django.setup()
from escalation.queue.broker import FifoWakeup
wakeup = FifoWakeup(Path(sys.argv[1]), "default")
wakeup.listen()
print("listening", flush=True)
print(wakeup.wait(30), flush=True)
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "wakeup"


@pytest.fixture
def wakeup(directory: Path) -> FifoWakeup:
    """One that listens."""
    wakeup = FifoWakeup(directory, "default")
    wakeup.listen()
    return wakeup


def other(directory: Path) -> FifoWakeup:
    """As another process has it."""
    return FifoWakeup(directory, "default")


def fifos(directory: Path) -> list[Path]:
    return sorted(directory.iterdir())


def test_a_wakeup_ends_the_sleep(wakeup, directory):
    threading.Timer(0.1, other(directory).wake).start()
    began = time.monotonic()

    assert wakeup.wait(20)
    assert time.monotonic() - began < 10


def test_without_a_wakeup_the_sleep_times_out(wakeup):
    assert not wakeup.wait(0.05)


def test_a_wakeup_before_the_sleep_is_not_missed(wakeup, directory):
    other(directory).wake()

    assert wakeup.wait(0)


def test_many_wakeups_wake_once(wakeup, directory):
    for _ in range(5):
        other(directory).wake()

    assert [wakeup.wait(0), wakeup.wait(0)] == [True, False]


def test_every_listening_process_is_woken(directory):
    listeners = [
        subprocess.Popen(
            [sys.executable, "-c", LISTENER, str(directory)],
            cwd=PROJECT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for listener in listeners:
        assert listener.stdout is not None
        listener.stdout.readline()

    other(directory).wake()

    assert [listener.communicate(timeout=40)[0] for listener in listeners] == ["True\n"] * 3


def test_the_fifo_of_a_dead_process_is_removed(wakeup, directory):
    dead = subprocess.run(
        [sys.executable, "-c", LISTENER.replace("wait(30)", "wait(0)"), str(directory)],
        cwd=PROJECT,
        check=True,
        capture_output=True,
    )
    assert b"listening" in dead.stdout
    assert len(fifos(directory)) == 2

    other(directory).wake()

    assert len(fifos(directory)) == 1
    assert wakeup.wait(0)


def test_a_removed_directory_is_created_again(wakeup, directory):
    for path in fifos(directory):
        path.unlink()
    directory.rmdir()

    wakeup.listen()
    other(directory).wake()

    assert wakeup.wait(0)


def test_listening_twice_opens_one_fifo(wakeup, directory):
    wakeup.listen()

    assert len(fifos(directory)) == 1


def test_a_full_fifo_does_not_block_the_sender(wakeup, directory):
    [fifo] = fifos(directory)
    descriptor = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(descriptor, b"!" * 4096)
    os.close(descriptor)

    other(directory).wake()

    assert wakeup.wait(0)


def test_a_wakeup_without_a_listener_is_no_error(directory):
    other(directory).wake()

    assert not directory.exists()


def test_without_a_fifo_the_listener_only_sleeps(tmp_path, caplog):
    in_the_way = tmp_path / "wakeup"
    in_the_way.write_text("a file, not a directory")
    wakeup = FifoWakeup(in_the_way, "default")

    wakeup.listen()
    wakeup.wake()

    assert not wakeup.wait(0.01)
    assert "only polled" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_a_commit_sends_the_wakeup(wakeup, directory):
    with transaction.atomic():
        other(directory).wake_at_commit()
        early = wakeup.wait(0)

    assert (early, wakeup.wait(0)) == (False, True)


@pytest.mark.django_db(transaction=True)
def test_a_rollback_sends_no_wakeup(wakeup, directory):
    with transaction.atomic():
        other(directory).wake_at_commit()
        transaction.set_rollback(True)

    assert not wakeup.wait(0)
