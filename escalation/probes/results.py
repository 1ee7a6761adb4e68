"""Results of probes: Nagios' output and exit codes, the conventions of heartbeats, latencies.

Everything here is pure.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from sessions_app.models import HeartbeatPing, Probe
from sessions_app.text import cut

Status, PingKind = Probe.Status, HeartbeatPing.Kind
LONGEST_OUTPUT = 4_000
MOST_FIGURES = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """One look of a probe."""

    status: int
    output: str = ""
    seconds: float | None = None
    """Latency, where the kind has one."""
    figures: Mapping[str, Figure] = field(default_factory=dict)
    """Performance data of a command."""
    memory: Mapping[str, object] | None = None
    """What the next run of the probe has to know; None keeps what is there."""

    @property
    def is_good(self) -> bool:
        return self.status == Status.OK


def failure(output: str, status: int = Status.CRITICAL, seconds: float | None = None) -> Result:
    return Result(status=status, output=cut(output, LONGEST_OUTPUT), seconds=seconds)


# Output of Nagios' plugins: `TEXT | PERFDATA`, then lines of more text, and after a second bar
# more performance data.


@dataclass(frozen=True, slots=True)
class Figure:
    value: float
    unit: str = ""


FIGURE = re.compile(r"(?:'((?:[^']|'')+)'|([^\s='|]+))=(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)([^\s;]*)")


def nagios_result(exit_code: int, output: str, seconds: float | None = None) -> Result:
    """Reads the exit code and the output of a plugin. Other codes than 0 to 3 are unknown."""
    lines = output.strip().splitlines()
    first, _bar, performance = lines[0].partition("|") if lines else ("", "", "")
    text, bar, more = "\n".join(lines[1:]).partition("|")
    status = exit_code if exit_code in Status.values else Status.UNKNOWN
    words = [first.strip() or "(no output)", text.strip()]
    if status != exit_code:
        words.insert(0, f"exit code {exit_code}:")
    return Result(
        status=status,
        output=cut("\n".join(filter(None, words)), LONGEST_OUTPUT),
        seconds=seconds,
        figures=figures_in(f"{performance} {more if bar else ''}"),
    )


def figures_in(performance: str) -> dict[str, Figure]:
    """Reads performance data: `'label'=value[unit];[warn];[crit];[min];[max]`."""
    found: dict[str, Figure] = {}
    for quoted, plain, value, unit in FIGURE.findall(performance):
        if len(found) == MOST_FIGURES:
            break
        found[(quoted.replace("''", "'") if quoted else plain)[:100]] = Figure(float(value), unit)
    return found


# Heartbeats follow healthchecks: the bare address and exit code 0 are a success, `/start` begins a
# job, `/fail` and any other exit code are a failure; the body is kept.

PING_PATH = re.compile(r"(?:start|fail|[0-9]{1,3})?")


class NotAPing(ValueError):
    """The last part of the address is none of the conventions."""


def ping_of(part: str) -> tuple[str, int | None]:
    """Returns the kind and the exit code of a call. Raises NotAPing."""
    if not PING_PATH.fullmatch(part) or (part.isdigit() and int(part) > 255):
        raise NotAPing(part)
    if part.isdigit():
        return (PingKind.SUCCESS if int(part) == 0 else PingKind.FAIL), int(part)
    return {"": PingKind.SUCCESS, "start": PingKind.START, "fail": PingKind.FAIL}[part], None


@dataclass(frozen=True, kw_only=True, slots=True)
class HeartbeatState:
    """Last call of a heartbeat that ended a job, and the start of one that has not ended."""

    heard_at: datetime
    """Last call that ended a job; before the first, the time when the probe was made."""
    started_at: datetime | None = None


def heard(
    state: HeartbeatState, kind: str, exit_code: int | None, body: str, at: datetime
) -> tuple[HeartbeatState, Result | None]:
    """Returns the state after a call, and its result; a start has none."""
    if kind == PingKind.START:
        return HeartbeatState(heard_at=state.heard_at, started_at=at), None
    seconds = None
    if state.started_at is not None and at >= state.started_at:
        seconds = (at - state.started_at).total_seconds()
    status = Status.OK if kind == PingKind.SUCCESS else Status.CRITICAL
    words = body.strip() or ("It was called." if status == Status.OK else "It reports a failure.")
    if exit_code:
        words = f"exit code {exit_code}: {words}"
    result = Result(status=status, output=cut(words, LONGEST_OUTPUT), seconds=seconds)
    return HeartbeatState(heard_at=at), result


def not_ahead(state: HeartbeatState, now: datetime) -> HeartbeatState:
    """Returns the state with times that lie ahead set to now: the clock was set back since."""
    started_at = min(state.started_at, now) if state.started_at else None
    return replace(state, heard_at=min(state.heard_at, now), started_at=started_at)


def overdue(
    state: HeartbeatState, now: datetime, interval: timedelta, grace: timedelta
) -> Result | None:
    """Returns the failure of a heartbeat that is late, or None."""
    if state.started_at is not None and now > state.started_at + max(grace, timedelta(seconds=1)):
        return failure(f"The job that began at {_clock(state.started_at)} has not ended.")
    if now > state.heard_at + interval + grace:
        return failure(f"It was not called in time: the last call was at {_clock(state.heard_at)}.")
    return None


def _clock(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")


# Latencies are counted in buckets, so that sums can be added and percentiles read from them.

BUCKETS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0),
)
"""Upper bounds in seconds; one more bucket has what took longer."""


def counted(histogram: Sequence[int], seconds: float) -> list[int]:
    """Returns the histogram with one more latency. Empty buckets at the end are not stored."""
    bucket = bisect_left(BUCKETS, seconds)
    longer = [*histogram, *[0] * (bucket + 1 - len(histogram))]
    longer[bucket] += 1
    return longer


def added(histograms: Iterable[Sequence[int]]) -> list[int]:
    total = [0] * (len(BUCKETS) + 1)
    for histogram in histograms:
        for bucket, count in enumerate(histogram[: len(total)]):
            total[bucket] += count
    return total


def percentile(histogram: Sequence[int], share: float) -> float | None:
    """Returns the latency below which a share of the results is, by interpolation in a bucket."""
    wanted = sum(histogram) * share
    below = 0.0
    for bucket, count in enumerate(histogram):
        if count and below + count >= wanted:
            if bucket >= len(BUCKETS):
                return BUCKETS[-1]
            lower = BUCKETS[bucket - 1] if bucket else 0.0
            return lower + (BUCKETS[bucket] - lower) * (wanted - below) / count
        below += count
    return None
