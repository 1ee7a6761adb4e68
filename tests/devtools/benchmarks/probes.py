"""Measures probes: processor of a worker that runs many, and the size of a year of 100."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from django.db import connection
from django.utils import timezone

from escalation.probes.store import day_of, five_minutes_of
from escalation.worker.parent import start_worker, stop_children
from sessions_app.models import Probe, ProbeChange, ProbeSum, Watch
from tests.devtools.benchmarks import Tell
from tests.devtools.benchmarks.usage import busy_seconds

SERVER = """
import asyncio, sys
async def answer(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\nok")
    await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""
SETTLE_SECONDS = 15.0
YEAR, PROBES_OF_A_YEAR, CHANGES_A_MONTH = 365, 100, 20


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeCost:
    probes: int
    seconds: float
    cpu_percent: float
    runs: int


def measure_processor(probes: int, seconds: float, tell: Tell) -> ProbeCost:
    """Measure the process of a worker that runs HTTP probes, each once a minute."""
    Probe.objects.all().delete()
    with _server() as port:
        watch, _made = Watch.objects.get_or_create(name="bench", defaults={"workdir": "/tmp"})  # noqa: S108
        Probe.objects.bulk_create(
            Probe(
                watch=watch,
                name=f"probe-{number}",
                service=f"service-{number % 20}",
                kind=Probe.Kind.HTTP,
                target=f"http://127.0.0.1:{port}/{number}",
                last_run_at=timezone.now(),
                state=Probe.State.UP,
            )
            for number in range(probes)
        )
        worker = start_worker()
        try:
            tell(f"{probes} probes a minute, for {seconds:.0f} s")
            time.sleep(SETTLE_SECONDS)
            pid = worker.process.pid
            before = busy_seconds([pid])
            time.sleep(seconds)
            busy = busy_seconds([pid]) - before
        finally:
            stop_children([worker])
    runs = sum(ProbeSum.objects.filter(period="day").values_list("runs", flat=True))
    return ProbeCost(probes=probes, seconds=seconds, cpu_percent=busy / seconds * 100, runs=runs)


def measure_year(tell: Tell) -> float:
    """Return the megabytes that a year of 100 probes takes, after housekeeping."""
    tell("a year of 100 probes")
    Probe.objects.all().delete()
    before = _database_bytes()
    watch, _made = Watch.objects.get_or_create(name="bench", defaults={"workdir": "/tmp"})  # noqa: S108
    now = timezone.now()
    for number in range(PROBES_OF_A_YEAR):
        probe = Probe.objects.create(
            watch=watch, name=f"year-{number}", service=f"service-{number}", kind=Probe.Kind.TCP
        )
        histogram = [0, 0, 1, 3, 30, 200, 40, 9]
        fives = int(ProbeSum.KEPT / timedelta(minutes=5))
        starts = [five_minutes_of(now) - timedelta(minutes=5) * back for back in range(fives)]
        days = [day_of(now) - timedelta(days=back) for back in range(YEAR)]
        ProbeSum.objects.bulk_create(
            [
                *(_sum(probe, "5m", start, [0, 0, 0, 1, 3, 1]) for start in starts),
                *(_sum(probe, "day", start, histogram) for start in days),
            ]
        )
        ProbeChange.objects.bulk_create(
            ProbeChange(probe=probe, kind="down", status=2, output="connection refused " * 20)
            for _change in range(CHANGES_A_MONTH * 12)
        )
    return (_database_bytes() - before) / 1_000_000


def _sum(probe: Probe, period: str, start: object, histogram: list[int]) -> ProbeSum:
    return ProbeSum(probe=probe, period=period, start=start, runs=5, histogram=histogram)


@contextmanager
def _server() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None, "it has a pipe"
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def _database_bytes() -> int:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT pg_database_size(current_database())")
            return int(cursor.fetchone()[0])
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Path(str(connection.settings_dict["NAME"])).stat().st_size
