"""The faults of a chaos run.

A fault returns problems that it sees itself, such as a missing page; everything else
is found by the invariants.
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

from tests.devtools.chaos.evidence import DATABASE, ask
from tests.devtools.chaos.hosts import Host
from tests.devtools.chaos.installation import WEB, WORKER, Installation
from tests.devtools.chaos.leftovers import is_same
from tests.devtools.chaos.record import Row
from tests.devtools.chaos.small_disk import keep_full

FILL_THE_DISK = "fill the disk"
KILL_A_HOST = "kill a host"
VICTIM_SECONDS = 3.0
TAKE_OVER_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Scene:
    """The target of a fault: the cycle of one experiment."""

    installation: Installation
    cycle: int
    chance: random.Random

    def kill_running(self, who: str) -> None:
        """Wait for the CLI or the runner process of this experiment."""
        give_up = time.monotonic() + VICTIM_SECONDS
        while not (victims := self._running(who)) and time.monotonic() < give_up:
            time.sleep(0.05)
        for row in victims:
            # By id and start time: the id alone may have been reused.
            if is_same(row[f"{who}_pid"], row[f"{who}_started"]):
                _kill(row[f"{who}_pid"])

    def host_at_work(self) -> Host | None:
        """Return the host that runs this experiment; None if the experiment is over."""
        names = {host.name: host for host in self.installation.others}
        while not self._is_over():
            for row in self._running("cli"):
                if row["host"] in names:
                    return names[row["host"]]
            time.sleep(0.05)
        return None

    def goes_on_without(self, host: str) -> bool:
        """Whether another host continued, or the cycle is over."""
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
    """Do nothing, for comparison."""
    return []


def kill_cli(scene: Scene) -> list[str]:
    scene.kill_running("cli")
    return []


def kill_worker(scene: Scene) -> list[str]:
    """Kill the process that runs the tier; the cluster continues."""
    scene.kill_running("runner")
    return []


def kill_part_of_the_queue(scene: Scene) -> list[str]:
    """Kill any process of the cluster, idle or not."""
    if parts := scene.installation.parts_of_the_queue():
        _kill(scene.chance.choice(parts))
    return []


def kill_cluster(scene: Scene) -> list[str]:
    """Kill all processes of the worker at once."""
    workers = [host.service for host in scene.installation.others] or [WORKER]
    scene.installation.kill(scene.chance.choice(workers))
    return []


def kill_web_server(scene: Scene) -> list[str]:
    """Kill the web server and check that it returns and shows the run."""
    with scene.installation.installation_lock:
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
    """Lock the database for a while."""
    with (
        scene.installation.installation_lock,
        closing(sqlite3.connect(scene.installation.state / DATABASE, timeout=30)) as holder,
    ):
        holder.execute("BEGIN IMMEDIATE")
        time.sleep(scene.chance.uniform(0.5, 4.0))
        holder.rollback()
    return []


def fill_disk(scene: Scene) -> list[str]:
    """Fill the disk of the state directory for a while."""
    with scene.installation.installation_lock:
        keep_full(scene.installation.state, scene.chance.uniform(1.0, 5.0))
    return []


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def kill_host(scene: Scene) -> list[str]:
    """Kill a whole host while it runs a tier of this experiment."""
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
    """Kill the database server and start it again some seconds later."""
    server = scene.installation.postgres
    assert server is not None, "only where there are several hosts"
    with scene.installation.installation_lock:
        server.stop(scene.chance.choice(["immediate", "fast"]))
        time.sleep(scene.chance.uniform(0.0, 5.0))
        server.start()
    return []


def send_alert_storm(scene: Scene) -> list[str]:
    """Send many alerts at once, while other faults happen."""
    assert scene.installation.outside is not None, "only on one host"
    scene.installation.outside.storm()
    return []


def break_probed_target(scene: Scene) -> list[str]:
    """Break what a probe looks at, until it is down."""
    assert scene.installation.outside is not None, "only on one host"
    with scene.installation.installation_lock:
        return scene.installation.outside.break_target(scene.installation.record)


FAULTS: dict[str, Fault] = {
    "nothing": nothing,
    "kill the CLI": kill_cli,
    "kill a worker": kill_worker,
    "kill part of the queue": kill_part_of_the_queue,
    "kill the cluster": kill_cluster,
    "kill the web server": kill_web_server,
    "lock the database": lock_database,
    FILL_THE_DISK: fill_disk,
    "send an alert storm": send_alert_storm,
    "break a probe's target": break_probed_target,
}
ACROSS_HOSTS: dict[str, Fault] = {
    "nothing": nothing,
    "kill the CLI": kill_cli,
    "kill a worker": kill_worker,
    "kill the cluster": kill_cluster,
    KILL_A_HOST: kill_host,
    "restart the database": restart_database,
}
"""Faults for several hosts that share a PostgreSQL server."""
EVERY_FAULT = {**FAULTS, **ACROSS_HOSTS}
