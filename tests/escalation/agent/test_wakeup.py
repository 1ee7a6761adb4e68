"""The bell that wakes the reader of a run."""

from __future__ import annotations

import select
import threading
import time
from pathlib import Path

from escalation.agent import Bell, StopAsked, Watcher, run_process


def is_heard(bell: Bell) -> bool:
    return bool(select.select([bell], [], [], 0)[0])


def test_rung_by_many_it_is_heard_once():
    bell = Bell()

    with bell.hung():
        for _ in range(3):
            bell.ring()
        before = is_heard(bell)
        bell.silence()

        assert (before, is_heard(bell)) == (True, False)


def test_while_it_does_not_hang_nobody_is_hurt_by_ringing():
    bell = Bell()

    bell.ring()
    with bell.hung():
        assert not is_heard(bell)
    bell.ring()


def test_the_reader_of_a_run_comes_round_at_once(tmp_path: Path, monkeypatch):
    """With a tick of a minute, only the bell can have called it."""
    monkeypatch.setattr("escalation.agent.process.TICK_SECONDS", 60)
    bell, stopped = Bell(), StopAsked("person", "enough")
    asked = threading.Event()

    def ring_later() -> None:
        time.sleep(0.2)
        asked.set()
        bell.ring()

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
            bell=bell,
        ),
    )
    ringing.join()

    assert ended.stop == stopped
