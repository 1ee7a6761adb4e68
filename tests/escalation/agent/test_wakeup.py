"""The wakeup of the thread that reads a run."""

from __future__ import annotations

import select
import threading
import time
from pathlib import Path

from escalation.agent.process import ReaderWakeup, StopAsked, Watcher, run_process


def is_heard(wakeup: ReaderWakeup) -> bool:
    return bool(select.select([wakeup], [], [], 0)[0])


def test_several_notifications_wake_the_reader_once():
    wakeup = ReaderWakeup()

    with wakeup.opened():
        for _ in range(3):
            wakeup.notify()
        before = is_heard(wakeup)
        wakeup.clear()

        assert (before, is_heard(wakeup)) == (True, False)


def test_a_notification_without_a_reader_is_ignored():
    wakeup = ReaderWakeup()

    wakeup.notify()
    with wakeup.opened():
        assert not is_heard(wakeup)
    wakeup.notify()


def test_a_notification_wakes_the_reader_at_once(tmp_path: Path, monkeypatch):
    """With a tick of a minute, only the wakeup can have called it."""
    monkeypatch.setattr("escalation.agent.process.TICK_SECONDS", 60)
    wakeup, stopped = ReaderWakeup(), StopAsked("person", "enough")
    asked = threading.Event()

    def ring_later() -> None:
        time.sleep(0.2)
        asked.set()
        wakeup.notify()

    ringing = threading.Thread(target=ring_later)
    ringing.start()
    ended = run_process(
        ["sleep", "100"],
        environment={"PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        prompt="",
        timeout_seconds=90,
        watcher=Watcher(
            on_stdout=lambda line: None,
            on_stderr=lambda line: None,
            has_result=lambda: False,
            on_tick=lambda: stopped if asked.is_set() else None,
            wakeup=wakeup,
        ),
    )
    ringing.join()

    assert ended.stop == stopped
