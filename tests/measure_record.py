"""Measures what one session costs the database (docs/scale.md):

    .venv/bin/python -m tests.measure_record [--drills N] [--postgresql]

Plays a drill of three tiers N times with the real CLI in a scratch installation, in this process,
and tells for each tier the queries, the events and the bytes that it leaves, and by how much the
database has grown for a run, indexes and all. A first drill, not counted, probes the CLI.
"""

from __future__ import annotations

import os
import sys
import tempfile
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from tests.devtools.postgres import own_postgres
from tests.measure_walk import NOT_A_QUERY

SCENARIO = "three-tiers"
EVENTS = "SELECT count(*), coalesce(sum(length({payload})), 0) FROM sessions_app_sessionevent"
ARCHIVED = "SELECT coalesce(sum(length(content)), 0) FROM sessions_app_transcriptchunk"


@dataclass
class Counted:
    queries: int = 0
    transactions: int = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        """A run may use threads: each has a connection of its own."""
        from django.db import connection
        from django.db.backends.signals import connection_created

        def watch_connection(connection: Any, **_: Any) -> None:
            connection.execute_wrappers.append(self._query)

        connection_created.connect(watch_connection)
        try:
            with connection.execute_wrapper(self._query):
                yield
        finally:
            connection_created.disconnect(watch_connection)

    def _query(self, execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if str(sql).startswith(NOT_A_QUERY):
            self.transactions += 1
        else:
            self.queries += 1
        return execute(sql, *rest)


@dataclass(frozen=True)
class Cost:
    """Of one run."""

    queries: int
    transactions: int
    events: int
    event_bytes: int
    archive_bytes: int
    log_bytes: int
    """What PostgreSQL wrote into its write-ahead log meanwhile."""


def set_up(state: str, address: str) -> None:
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "claudeops.settings",
        "CLAUDEOPS_STATE_DIR": state,
        "CLAUDEOPS_LOG_LEVEL": "WARNING",
        "DATABASE_URL": address,
    }
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)


def play() -> dict[int, Cost]:
    """One drill, by tier."""
    from django_q.models import OrmQ

    from escalation.drills.drill import start_drill
    from escalation.tasks import run_session

    found = {}
    cycle = start_drill(SCENARIO)
    while (row := OrmQ.objects.order_by("pk").first()) is not None:
        (number,) = row.task["args"]
        row.delete()
        tier = cycle.sessions.get(pk=number).tier
        before, counted = standing(), Counted()
        with counted.counting():
            run_session(number)
        more = [after - earlier for after, earlier in zip(standing(), before, strict=True)]
        found[tier] = Cost(counted.queries, counted.transactions, *more)
    return found


def standing() -> tuple[int, int, int, int]:
    """Events, their bytes, bytes in the archive, and bytes in the write-ahead log, so far."""
    payload = "payload::text" if on_postgresql() else "payload"
    events, event_bytes = asked(EVENTS.format(payload=payload))
    (archived,) = asked(ARCHIVED)
    (log,) = asked("SELECT pg_current_wal_lsn() - '0/0'") if on_postgresql() else (0,)
    return events, event_bytes, archived, int(log)


def size() -> int:
    if on_postgresql():
        return int(asked("SELECT pg_database_size(current_database())")[0])
    (free,) = asked("PRAGMA freelist_count")
    return int((asked("PRAGMA page_count")[0] - free) * asked("PRAGMA page_size")[0])


def on_postgresql() -> bool:
    from django.db import connection

    return connection.vendor == "postgresql"


def asked(query: str) -> tuple[Any, ...]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(query)
        row: tuple[Any, ...] = cursor.fetchone()
    return row


def main(arguments: list[str]) -> None:
    parser = ArgumentParser()
    parser.add_argument("--drills", type=int, default=5)
    parser.add_argument("--postgresql", action="store_true")
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        state = stack.enter_context(tempfile.TemporaryDirectory(prefix="claudeops-record-"))
        server = stack.enter_context(own_postgres()) if options.postgresql else None
        set_up(state, server.new_database() if server else f"sqlite:///{state}/record.sqlite3")
        play()
        before, by_tier = size(), defaultdict(list)
        for _ in range(options.drills):
            for tier, cost in play().items():
                by_tier[tier].append(cost)
        print_table(by_tier, (size() - before) / sum(map(len, by_tier.values())))


def print_table(by_tier: dict[int, list[Cost]], growth: float) -> None:
    print(f"{'':30}" + "".join(f"{f'Tier {tier}':>12}" for tier in sorted(by_tier)))
    for name in Cost.__dataclass_fields__:
        means = [
            fmean(getattr(cost, name) for cost in costs) for _tier, costs in sorted(by_tier.items())
        ]
        print(f"{name.replace('_', ' '):30}" + "".join(f"{mean:>12,.0f}" for mean in means))
    print(f"the database grows for a run by {growth:,.0f} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
