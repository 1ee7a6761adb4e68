"""Wakeups across hosts, with a real PostgreSQL server and separate processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]

# Two state directories on one database: as two hosts have it.
SETUP = """
import sys, time
import django
django.setup()
from django.db import connection, connections, transaction
from django_q.conf import Conf
from django_q.models import OrmQ
from escalation.queue.broker import WakingBroker
Conf.POLL = 600
END_ALL_OTHERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
"""
WORKER = (
    SETUP
    + """
broker = WakingBroker("claudeops")
broker.dequeue()
print("asleep", flush=True)
taken, began = [], time.monotonic()
while not taken and time.monotonic() - began < 30:
    taken = broker.dequeue()
print([payload for key, payload in taken], flush=True)
"""
)


class Hosts:
    def __init__(self, directory: Path, database: str) -> None:
        self._directory, self._database = directory, database

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Each process has a state directory of its own."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=PROJECT,
            env={
                **kept,
                "CLAUDEOPS_STATE_DIR": str(self._directory / str(id(arguments))),
                "DJANGO_SETTINGS_MODULE": "claudeops.settings",
                "DATABASE_URL": self._database,
            },
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> str:
        process = self.start(*arguments)
        said, _nothing = process.communicate(timeout=90)
        assert process.returncode == 0
        return said


@pytest.fixture
def hosts(new_postgres_database, tmp_path: Path) -> Hosts:
    return Hosts(tmp_path, new_postgres_database())


def asleep(worker: subprocess.Popen[str]) -> subprocess.Popen[str]:
    assert worker.stdout is not None
    assert worker.stdout.readline() == "asleep\n"
    return worker


def test_a_task_of_one_host_wakes_the_worker_of_another(hosts):
    worker = asleep(hosts.start("-c", WORKER))

    hosts.run("-c", SETUP + "WakingBroker('claudeops').enqueue('work')")

    assert worker.communicate(timeout=40)[0] == "['work']\n"


def test_of_two_woken_workers_one_takes_each_task(hosts):
    workers = [asleep(hosts.start("-c", WORKER)) for _ in range(2)]

    for task in ("one", "two"):
        hosts.run("-c", SETUP + f"WakingBroker('claudeops').enqueue('{task}')")

    said = [worker.communicate(timeout=40)[0] for worker in workers]
    assert sorted(said) == ["['one']\n", "['two']\n"]


def test_a_commit_wakes_and_a_rollback_does_not(hosts):
    said = hosts.run(
        "-c",
        SETUP
        + """
broker, other = WakingBroker("claudeops"), WakingBroker("claudeops")
broker._wakeup.listen()
heard = []
with transaction.atomic():
    other.enqueue("work")
    heard.append(broker._wakeup.wait(0.3))
heard.append(broker._wakeup.wait(5))
with transaction.atomic():
    other.enqueue("more")
    transaction.set_rollback(True)
heard.append(broker._wakeup.wait(0.3))
print(heard, OrmQ.objects.count())
""",
    )

    assert said == "[False, True, False] 1\n"


def test_a_wakeup_before_the_sleep_is_not_missed(hosts):
    said = hosts.run(
        "-c",
        SETUP
        + """
broker = WakingBroker("claudeops")
broker._wakeup.listen()
broker.enqueue("work")
time.sleep(0.2)
print(broker._wakeup.wait(5), broker._wakeup.wait(0.1))
""",
    )

    assert said == "True False\n"


def test_a_closed_connection_is_opened_again(hosts):
    said = hosts.run(
        "-c",
        SETUP
        + """
broker = WakingBroker("claudeops")
broker.dequeue()
with connection.cursor() as cursor:
    cursor.execute(END_ALL_OTHERS)
while broker._wakeup._listener is not None:  # the break is noticed
    broker._wakeup.wait(0.1)
broker._wakeup.listen()
broker.enqueue("work")
print(broker._wakeup.wait(5), [payload for key, payload in broker.dequeue() or broker._look()])
""",
    )

    assert said == "True ['work']\n"


def test_without_a_listen_connection_the_worker_polls(hosts):
    said = hosts.run(
        "-c",
        SETUP
        + """
from unittest.mock import patch
from django.db import OperationalError
broker = WakingBroker("claudeops")
broker.enqueue("work")
with patch.object(connections, "create_connection", side_effect=None) as create:
    create.return_value.cursor.side_effect = OperationalError("too many clients")
    print([payload for key, payload in broker.dequeue()], broker._wakeup.wait(0.01))
""",
    )

    assert said == "['work'] False\n"
