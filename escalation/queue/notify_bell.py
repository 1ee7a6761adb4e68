"""The bell across hosts: PostgreSQL's NOTIFY, which it delivers when the transaction commits."""

from __future__ import annotations

import logging
import os
import select
import time
from dataclasses import dataclass
from typing import Any

import psycopg
from django.db import Error, connections
from django.db.backends.base.base import BaseDatabaseWrapper

logger = logging.getLogger(__name__)

CHANNEL = "claudeops_queue"


@dataclass(frozen=True, slots=True)
class Ear:
    connection: BaseDatabaseWrapper
    owner: int
    """A forked process must have a connection of its own."""


class NotifyBell:
    def __init__(self, database: str) -> None:
        self._database = database
        self._ear: Ear | None = None

    def ring_at_commit(self) -> None:
        with connections[self._database].cursor() as cursor:
            cursor.execute(f"NOTIFY {CHANNEL}")

    def listen(self) -> None:
        """On a connection of its own: the one that does the queries is closed after each."""
        if self._ear and self._ear.owner == os.getpid():
            return
        connection = connections.create_connection(self._database)
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"LISTEN {CHANNEL}")
        except Error as error:
            logger.warning("PostgreSQL gives no bell, the queue is only polled: %s", error)
            connection.close()
        else:
            self._ear = Ear(connection, os.getpid())

    def wait(self, seconds: float) -> bool:
        if self._ear is None:
            time.sleep(seconds)
            return False
        try:
            return self._rang_within(self._ear.connection.connection, seconds)
        except (psycopg.Error, OSError) as error:
            logger.warning("The bell of PostgreSQL fell silent; it is hung up anew: %s", error)
            self._ear.connection.close()
            self._ear = None
            time.sleep(seconds)
            return False

    def _rang_within(self, ear: psycopg.Connection[Any], seconds: float) -> bool:
        # Not left to `notifies`, which wakes ten times a second to look.
        poll = select.poll()
        poll.register(ear.fileno(), select.POLLIN)
        return bool(poll.poll(seconds * 1000)) and bool(list(ear.notifies(timeout=0)))
