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

from escalation.rehearsal.chaos.evidence import DATABASE, ask
from escalation.rehearsal.chaos.hosts import Host
from escalation.rehearsal.chaos.installation import WEB, WORKER, Installation
from escalation.rehearsal.chaos.left_behind import is_same
from escalation.rehearsal.chaos.record import Row
from escalation.rehearsal.chaos.small_disk import keep_full

FILL_THE_DISK = "fill the disk"
KILL_A_HOST = "kill a host"
VICTIM_SECONDS = 3.0
TAKE_OVER_SECONDS = 120.0


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

    def host_at_work(self) -> Host | None:
        """The host whose CLI runs for this round; None where the round is over already."""
        names = {host.name: host for host in self.installation.others}
        while not self._is_over():
            for row in self._running("cli"):
                if row["host"] in names:
                    return names[row["host"]]
            time.sleep(0.05)
        return None

    def goes_on_without(self, host: str) -> bool:
        """Another host has begun with what follows, or all is over."""
        query = "SELECT host, status FROM sessions WHERE cycle_id = ? ORDER BY id DESC"
        (last, *_earlier) = ask(self.installation.record, query, self.cycle)
        return self._is_over() or (last["host"] not in {"", host} and last["status"] != "queued")

    def _is_over(self) -> bool:
        query = "SELECT state FROM sessions_app_cycle WHERE id = ?"
        (cycle,) = ask(self.installation.record, query, self.cycle)
        return bool(cycle["state"] == "finished")

    def _running(self, who: str) -> list[Row]:
        rows = ask(
            self.installation.record,
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
    workers = [host.service for host in scene.installation.others] or [WORKER]
    scene.installation.kill(scene.chance.choice(workers))
    return []


def kill_web_server(scene: Scene) -> list[str]:
    """It comes back, says that all is well, and shows the run that it missed a part of."""
    with scene.installation.one_at_a_time:
        scene.installation.kill(WEB)
        website = scene.installation.website
        if trouble := website.wait_until_ready():
            return [f"after the web server was killed, {trouble}"]
        sessions = ask(
            scene.installation.record,
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


def kill_host(scene: Scene) -> list[str]:
    """All of a host at once, while it runs a tier of this round, and it does not come back."""
    if (host := scene.host_at_work()) is None:
        return []
    scene.installation.take_down(host)
    began = time.monotonic()
    try:
        while not (goes_on := scene.goes_on_without(host.name)) and (
            time.monotonic() - began < TAKE_OVER_SECONDS
        ):
            time.sleep(0.5)
    finally:
        scene.installation.bring_back(host)
    if goes_on:
        return []
    return [f"nobody went on with the work of {host.name} within {TAKE_OVER_SECONDS:.0f} s"]


def restart_database(scene: Scene) -> list[str]:
    """The server dies as in a loss of power and comes back some seconds later."""
    server = scene.installation.postgres
    assert server is not None, "only where there are several hosts"
    with scene.installation.one_at_a_time:
        server.stop(scene.chance.choice(["immediate", "fast"]))
        time.sleep(scene.chance.uniform(0.0, 5.0))
        server.start()
    return []


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
ACROSS_HOSTS: dict[str, Fault] = {
    "nothing": nothing,
    "kill the CLI": kill_cli,
    "kill a worker": kill_worker,
    "kill the cluster": kill_cluster,
    KILL_A_HOST: kill_host,
    "restart the database": restart_database,
}
"""What is played with several hosts, which share a PostgreSQL server."""
EVERY_FAULT = {**FAULTS, **ACROSS_HOSTS}
