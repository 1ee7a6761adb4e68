"""The bell of one machine: who listens is woken, and nothing that is broken stops a caller."""

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

from escalation.queue.fifo_bell import FifoBell

PROJECT = Path(__file__).resolve().parents[3]
LISTENER = """
import sys
from pathlib import Path
import django
django.setup()
from escalation.queue.fifo_bell import FifoBell
bell = FifoBell(Path(sys.argv[1]), "default")
bell.listen()
print("listening", flush=True)
print(bell.wait(30), flush=True)
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "bell"


@pytest.fixture
def bell(directory: Path) -> FifoBell:
    """One that listens."""
    bell = FifoBell(directory, "default")
    bell.listen()
    return bell


def other(directory: Path) -> FifoBell:
    """As another process has it."""
    return FifoBell(directory, "default")


def fifos(directory: Path) -> list[Path]:
    return sorted(directory.iterdir())


def test_it_wakes_who_sleeps(bell, directory):
    threading.Timer(0.1, other(directory).ring).start()
    began = time.monotonic()

    assert bell.wait(20)
    assert time.monotonic() - began < 10


def test_without_a_ring_the_sleep_ends_by_itself(bell):
    assert not bell.wait(0.05)


def test_a_ring_before_the_sleep_is_not_missed(bell, directory):
    other(directory).ring()

    assert bell.wait(0)


def test_many_rings_wake_once(bell, directory):
    for _ in range(5):
        other(directory).ring()

    assert [bell.wait(0), bell.wait(0)] == [True, False]


def test_every_process_that_listens_is_woken(directory):
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

    other(directory).ring()

    assert [listener.communicate(timeout=40)[0] for listener in listeners] == ["True\n"] * 3


def test_the_fifo_of_a_process_that_died_is_removed(bell, directory):
    dead = subprocess.run(
        [sys.executable, "-c", LISTENER.replace("wait(30)", "wait(0)"), str(directory)],
        cwd=PROJECT,
        check=True,
        capture_output=True,
    )
    assert b"listening" in dead.stdout
    assert len(fifos(directory)) == 2

    other(directory).ring()

    assert len(fifos(directory)) == 1
    assert bell.wait(0)


def test_a_directory_that_was_cleaned_up_is_made_again(bell, directory):
    for path in fifos(directory):
        path.unlink()
    directory.rmdir()

    bell.listen()
    other(directory).ring()

    assert bell.wait(0)


def test_to_listen_twice_is_to_listen_once(bell, directory):
    bell.listen()

    assert len(fifos(directory)) == 1


def test_a_listener_with_enough_rings_does_not_hold_up_who_rings(bell, directory):
    [fifo] = fifos(directory)
    descriptor = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(descriptor, b"!" * 4096)
    os.close(descriptor)

    other(directory).ring()

    assert bell.wait(0)


def test_a_ring_that_nobody_hears_is_no_error(directory):
    other(directory).ring()

    assert not directory.exists()


def test_where_no_fifo_can_be_made_it_only_sleeps(tmp_path, caplog):
    in_the_way = tmp_path / "bell"
    in_the_way.write_text("a file, not a directory")
    bell = FifoBell(in_the_way, "default")

    bell.listen()
    bell.ring()

    assert not bell.wait(0.01)
    assert "only polled" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_it_rings_when_the_transaction_is_committed(bell, directory):
    with transaction.atomic():
        other(directory).ring_at_commit()
        early = bell.wait(0)

    assert (early, bell.wait(0)) == (False, True)


@pytest.mark.django_db(transaction=True)
def test_it_is_silent_about_what_was_rolled_back(bell, directory):
    with transaction.atomic():
        other(directory).ring_at_commit()
        transaction.set_rollback(True)

    assert not bell.wait(0)
