"""What can go wrong, done on purpose and for real.

A fault gives back what it saw go wrong by itself, such as a page that did not come back; all else
is found by the invariants afterwards.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from escalation.rehearsal.chaos.evidence import DATABASE, Row, ask
from escalation.rehearsal.chaos.installation import WEB, WORKER, Installation
from escalation.rehearsal.chaos.left_behind import is_same
from escalation.rehearsal.chaos.small_disk import keep_full

FILL_THE_DISK = "fill the disk"
VICTIM_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Scene:
    """What a fault falls upon: one round's cycle, among others in the same installation."""

    installation: Installation
    cycle: int
    chance: random.Random

    def kill_running(self, who: str) -> None:
        """The CLI or the runner of this round's run, which may have to be waited for a little."""
        give_up = time.monotonic() + VICTIM_SECONDS
        while not (victims := self._running(who)) and time.monotonic() < give_up:
            time.sleep(0.05)
        for row in victims:
            # By number and start together: the number alone may by now mean somebody else.
            if is_same(row[f"{who}_pid"], row[f"{who}_started"]):
                _kill(row[f"{who}_pid"])

    def _running(self, who: str) -> list[Row]:
        rows = ask(
            self.installation.state,
            "SELECT * FROM sessions WHERE cycle_id = ? AND status = 'running'",
            self.cycle,
        )
        return [row for row in rows if row[f"{who}_pid"]]


Fault = Callable[[Scene], list[str]]


def nothing(scene: Scene) -> list[str]:
    """A round without a fault of its own, for comparison."""
    return []


def kill_cli(scene: Scene) -> list[str]:
    scene.kill_running("cli")
    return []


def kill_worker(scene: Scene) -> list[str]:
    """The one process that runs the tier; the cluster around it lives on."""
    scene.kill_running("runner")
    return []


def kill_part_of_the_queue(scene: Scene) -> list[str]:
    """Any process that the queue's guard looks after, idle or not."""
    if parts := scene.installation.parts_of_the_queue():
        _kill(scene.chance.choice(parts))
    return []


def kill_cluster(scene: Scene) -> list[str]:
    """All processes of the worker at once, as when the machine runs out of memory."""
    scene.installation.kill(WORKER)
    return []


def kill_web_server(scene: Scene) -> list[str]:
    """It comes back, says that all is well, and shows the run that it missed a part of."""
    with scene.installation.one_at_a_time:
        scene.installation.kill(WEB)
        website = scene.installation.website
        if trouble := website.wait_until_ready():
            return [f"after the web server was killed, {trouble}"]
        sessions = ask(
            scene.installation.state,
            "SELECT max(id) AS last FROM sessions WHERE cycle_id = ?",
            scene.cycle,
        )
        trouble = website.live_trouble(sessions[0]["last"])
    return [f"after the web server was killed, {trouble}"] if trouble else []


def lock_database(scene: Scene) -> list[str]:
    """Another writer holds the database for a while."""
    with (
        scene.installation.one_at_a_time,
        closing(sqlite3.connect(scene.installation.state / DATABASE, timeout=30)) as holder,
    ):
        holder.execute("BEGIN IMMEDIATE")
        time.sleep(scene.chance.uniform(0.5, 4.0))
        holder.rollback()
    return []


def fill_disk(scene: Scene) -> list[str]:
    """The state directory's disk is full for a while: database, spool, transcripts."""
    with scene.installation.one_at_a_time:
        keep_full(scene.installation.state, scene.chance.uniform(1.0, 5.0))
    return []


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


FAULTS: dict[str, Fault] = {
    "nothing": nothing,
    "kill the CLI": kill_cli,
    "kill a worker": kill_worker,
    "kill part of the queue": kill_part_of_the_queue,
    "kill the cluster": kill_cluster,
    "kill the web server": kill_web_server,
    "lock the database": lock_database,
    FILL_THE_DISK: fill_disk,
}
