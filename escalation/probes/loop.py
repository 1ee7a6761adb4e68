"""The loop that runs the probes of this host: one event loop in a thread of the worker.

Due times follow the monotonic clock, so that a clock that is set back delays nothing. The first
run of each probe is spread over its interval. A probe that is still running is not started again,
and missed runs are not made up for. Few probes of one watch run at once, so that a watch with many
slow probes does not delay the others. The database is used from one thread: what changes a state is
written at once, all else in batches.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import threading
import time
import zlib
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from django.db import connection

from escalation.incidents.recorder import settle_by_probes
from escalation.probes import store
from escalation.probes.kinds import CommandSandboxPool, run_probe
from escalation.probes.results import HeartbeatState, Result, heard, not_ahead, overdue
from escalation.probes.states import Rule, after, why_held
from escalation.probes.store import Applied, Configuration, Sums, set_state, state_of
from sessions_app.models import HeartbeatPing, Probe

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
IDLE_LOOK_SECONDS = 8.0
"""How often a host without probes looks for new ones."""
STOP_SECONDS = 1.0
"""How soon the end of the worker is noticed."""
LEASE_SECONDS = 15.0
WRITE_SECONDS = 30.0
RELOAD_SECONDS = 60.0
SHORTEST_SLEEP = 0.05
LATE_LOOK_SECONDS = 30
"""How often a heartbeat is looked at that has not been called."""
AT_ONCE, OF_ONE_WATCH, COMMANDS_AT_ONCE = 64, 16, 4
RESTART_SECONDS = 10.0
THREADS = 16

T = TypeVar("T")
Run = Callable[[Probe, CommandSandboxPool], Awaitable[Result]]


class ProbeLoop:
    """Probes of this host in memory, with their schedule."""

    def __init__(self, run: Run = run_probe) -> None:
        self._run = run
        self._configuration = Configuration()
        self._probes: dict[int, Probe] = {}
        self._heap: list[tuple[float, int]] = []
        self._scheduled: dict[int, float] = {}
        """Due time of each probe; other entries of the heap are out of date."""
        self._running: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._urgent: list[Applied] = []
        self._dirty: dict[int, Probe] = {}
        self._sums = Sums()
        self._signature: object = None
        self._watches: frozenset[int] = frozenset()
        self._last_ping = 0
        self._sandboxes = CommandSandboxPool()
        self._database = ThreadPoolExecutor(1, thread_name_prefix="probes-database")
        self._wakeup, self._to_store = asyncio.Event(), asyncio.Event()
        self._all = asyncio.Semaphore(AT_ONCE)
        self._commands = asyncio.Semaphore(COMMANDS_AT_ONCE)
        self._of_watch: dict[int, asyncio.Semaphore] = {}

    async def work_until(self, stop: Callable[[], bool]) -> None:
        """Runs probes until asked to stop, then writes what is known and gives the leases back."""
        asyncio.get_running_loop().set_default_executor(
            ThreadPoolExecutor(THREADS, thread_name_prefix="probes")
        )
        keeping = asyncio.create_task(self._keep_up(stop))
        try:
            while not stop():
                self._start_due(time.monotonic())
                await self._sleep()
                if keeping.done():
                    break
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await keeping
            await self._in_database(self._finish)
            await asyncio.to_thread(self._sandboxes.close)
            self._database.shutdown(wait=False)

    async def _sleep(self) -> None:
        due = self._heap[0][0] if self._heap else time.monotonic() + 1
        seconds = min(STOP_SECONDS, max(SHORTEST_SLEEP, due - time.monotonic()))
        try:
            async with asyncio.timeout(seconds):
                await self._wakeup.wait()
        except TimeoutError:
            pass
        self._wakeup.clear()

    # The schedule.

    def _start_due(self, now: float) -> None:
        while self._heap and self._heap[0][0] <= now:
            due, number = heapq.heappop(self._heap)
            probe = self._probes.get(number)
            if probe is None or self._scheduled.get(number) != due:
                continue
            spread = 1.0 if probe.last_run_at else (1.0 + _share(probe)) / 2
            self._schedule(probe, max(due + _interval(probe) * spread, now + SHORTEST_SLEEP))
            if number not in self._running:
                self._start(probe)

    def _schedule(self, probe: Probe, due: float) -> None:
        self._scheduled[probe.pk] = due
        heapq.heappush(self._heap, (due, probe.pk))

    def _start(self, probe: Probe) -> None:
        self._running.add(probe.pk)
        task = asyncio.create_task(self._run_one(probe))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_one(self, probe: Probe) -> None:
        try:
            if probe.kind == Probe.Kind.HEARTBEAT:
                self._look_at_heartbeat(probe)
                return
            of_watch = self._of_watch.setdefault(probe.watch_id, asyncio.Semaphore(OF_ONE_WATCH))
            limit = self._commands if probe.kind == Probe.Kind.COMMAND else self._all
            async with of_watch, limit:
                result = await self._run(probe, self._sandboxes)
            self.apply(probe, result, datetime.now(UTC))
        except Exception:
            logger.exception("Probe %s failed to run; it is tried again", probe.name)
        finally:
            self._running.discard(probe.pk)

    # Results.

    def apply(self, probe: Probe, result: Result, at: datetime) -> None:
        """Changes the state of a probe. What has to be stored at once waits for the database."""
        current = self._probes.get(probe.pk)
        if current is None or _look(current) != _look(probe):
            return  # changed or removed while it ran
        probe = current
        configuration = self._configuration
        in_maintenance = configuration.in_maintenance(probe, at)
        parents = [
            (parent.name, state_of(parent))
            for number in configuration.parents.get(probe.pk, ())
            if (parent := self._probes.get(number)) is not None
        ]
        held = why_held(muted=probe.is_muted, in_maintenance=in_maintenance, parents=parents)
        rule = Rule(fail_after=probe.fail_after, recover_after=probe.recover_after)
        step = after(state_of(probe), is_good=result.is_good, at=at, rule=rule, held=bool(held))
        was_asked = probe.run_asked_at is not None and (
            probe.last_run_at is None or probe.run_asked_at > probe.last_run_at
        )
        set_state(probe, step.state, result, at)
        self._sums.count(probe.pk, result, at, planned=in_maintenance)
        self._dirty[probe.pk] = probe
        if step.change or step.tells_failure or step.tells_recovery or was_asked:
            self._urgent.append(
                Applied(probe=probe, result=result, step=step, at=at, why_held=held)
            )
            self._to_store.set()

    def _look_at_heartbeat(self, probe: Probe) -> None:
        now = datetime.now(UTC)
        known = heartbeat_state(probe)
        state = not_ahead(known, now)
        if state != known:
            self._remember(probe, state)
        late = overdue(
            state,
            now,
            timedelta(seconds=probe.interval_seconds),
            timedelta(seconds=probe.timeout_seconds),
        )
        if late is not None:
            self.apply(probe, late, now)

    def _take_ping(self, ping: HeartbeatPing) -> None:
        self._last_ping = max(self._last_ping, ping.pk)
        probe = self._probes.get(ping.probe_id)
        if probe is None or ping.pk <= int(str(probe.memory.get("ping", 0))):
            return
        state, result = heard(heartbeat_state(probe), ping.kind, ping.exit_code, ping.body, ping.at)
        self._remember(probe, state, ping=ping.pk)
        if result is not None:
            self.apply(probe, result, ping.at)

    def _remember(self, probe: Probe, state: HeartbeatState, **more: int) -> None:
        probe.memory = {
            **probe.memory,
            **more,
            "heard_at": state.heard_at.isoformat(),
            "started_at": state.started_at.isoformat() if state.started_at else "",
        }
        self._dirty[probe.pk] = probe

    # The database.

    async def _keep_up(self, stop: Callable[[], bool]) -> None:
        """Leases, reads and writes, every few seconds. An error is logged and tried again."""
        next_lease = next_write = next_reload = 0.0
        while not stop():
            now = time.monotonic()
            try:
                if now >= next_lease:
                    self._watches = await self._in_database(store.lease_watches)
                    next_lease = now + LEASE_SECONDS
                signature = (await self._in_database(store.signature), self._watches)
                if signature != self._signature or now >= next_reload:
                    await self._write()
                    self._take(await self._in_database(lambda: store.load(self._watches)))
                    self._signature, next_reload = signature, now + RELOAD_SECONDS
                await self._hear()
                if self._watches:
                    await self._in_database(lambda: settle_by_probes(self._watches))
                if self._urgent or now >= next_write:
                    await self._write()
                    next_write = now + WRITE_SECONDS if now >= next_write else next_write
            except Exception:
                logger.exception("The probes could not use the database; trying again")
                # Looked up there: each thread has a connection of its own.
                await self._in_database(lambda: connection.close())
            await self._pause(stop)

    async def _pause(self, stop: Callable[[], bool]) -> None:
        """Waits for the next look, or less if a change of state has to be stored."""
        until = time.monotonic() + (LOOK_SECONDS if self._probes else IDLE_LOOK_SECONDS)
        while not stop() and not self._urgent and (left := until - time.monotonic()) > 0:
            self._to_store.clear()
            try:
                async with asyncio.timeout(min(left, STOP_SECONDS)):
                    await self._to_store.wait()
            except TimeoutError:
                continue

    async def _hear(self) -> None:
        numbers = [
            number for number, probe in self._probes.items() if probe.kind == Probe.Kind.HEARTBEAT
        ]
        if numbers:
            last = self._last_ping
            for ping in await self._in_database(lambda: store.pings_after(last, numbers)):
                self._take_ping(ping)

    async def _write(self) -> None:
        applied, dirty = self._urgent, list(self._dirty.values())
        if not applied and not dirty:
            return
        self._urgent, self._dirty = [], {}
        try:
            await self._in_database(lambda: store.write(applied, dirty, self._sums))
        except BaseException:
            # Stored with the next ones; nothing of the transaction is in the database.
            self._urgent = [*applied, *self._urgent]
            self._dirty = {probe.pk: probe for probe in dirty} | self._dirty
            raise

    def _finish(self) -> None:
        try:
            store.write(self._urgent, list(self._dirty.values()), self._sums)
            store.release_leases()
        except Exception:
            logger.exception("Could not store the last results of the probes")
        finally:
            connection.close()

    def _take(self, configuration: Configuration) -> None:
        """Takes a new configuration; states in memory are newer than those in the database."""
        before, now = self._probes, time.monotonic()
        self._configuration = configuration
        self._probes = {probe.pk: probe for probe in configuration.probes}
        for number, probe in self._probes.items():
            known = before.get(number)
            if known is not None:
                for name in (*Probe.STATE_FIELDS, *Probe.RESULT_FIELDS):
                    setattr(probe, name, getattr(known, name))
                if number in self._dirty:
                    self._dirty[number] = probe
            elif probe.kind == Probe.Kind.HEARTBEAT and "heard_at" not in probe.memory:
                probe.memory = {**probe.memory, "heard_at": probe.created_at.isoformat()}
            is_asked = probe.run_asked_at is not None and (
                probe.last_run_at is None or probe.run_asked_at > probe.last_run_at
            )
            changed = known is None or known.interval_seconds != probe.interval_seconds
            if is_asked and number not in self._running:
                self._schedule(probe, now)
            elif changed:
                self._schedule(probe, now + first_delay(probe))
        self._urgent = [
            replace(one, probe=self._probes.get(one.probe.pk, one.probe)) for one in self._urgent
        ]
        gone = self._scheduled.keys() - self._probes.keys()
        for number in gone:
            del self._scheduled[number]
        if len(self._heap) > 4 * len(self._probes) + 100:
            self._heap = [(due, number) for number, due in self._scheduled.items()]
            heapq.heapify(self._heap)
        self._wakeup.set()

    async def _in_database(self, act: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._database, act)


def heartbeat_state(probe: Probe) -> HeartbeatState:
    heard_at, started_at = (probe.memory.get(name) for name in ("heard_at", "started_at"))
    return HeartbeatState(
        heard_at=datetime.fromisoformat(heard_at) if heard_at else probe.created_at,
        started_at=datetime.fromisoformat(started_at) if started_at else None,
    )


def _look(probe: Probe) -> tuple[object, ...]:
    return probe.kind, probe.target, probe.options


def _interval(probe: Probe) -> float:
    if probe.kind == Probe.Kind.HEARTBEAT:
        return min(probe.interval_seconds, LATE_LOOK_SECONDS)
    return probe.interval_seconds


def first_delay(probe: Probe) -> float:
    """Returns a delay that spreads the probes of many intervals, the same after every start.

    A probe that has never run waits for a few seconds only.
    """
    return _share(probe) * min(_interval(probe), 60.0 if probe.last_run_at else 5.0)


def _share(probe: Probe) -> float:
    return zlib.crc32(f"{probe.watch_id}/{probe.name}".encode()) / 2**32


class ProbeThread:
    """Runs the loop in a thread of the worker, and starts it again after an error."""

    def work_until(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                asyncio.run(_work(stop))
            except Exception:
                logger.exception("The loop of the probes failed; it is started again")
                stop.wait(RESTART_SECONDS)
        connection.close()


async def _work(stop: threading.Event) -> None:
    await ProbeLoop().work_until(stop.is_set)
