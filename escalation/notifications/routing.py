"""Routing of notifications to channels, and the text of messages: pure functions.

Notifications of one cycle that come together become one message, others one each. In quiet hours
and in bursts, notifications are collected into one summary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from enum import StrEnum
from typing import NamedTuple

from sessions_app.models import Incident, Notification
from sessions_app.text import clean, cut, one_line

Kind = Notification.Kind

MOST_A_MINUTE = 5
"""Single messages to one channel; more than that is a burst."""
BURST_WAIT = timedelta(minutes=1)
# Every cycle may report these again; they are sent once.
ONCE_IN_A_ROW = {
    Kind.INCIDENT_OPENED,
    Kind.INCIDENT_RESOLVED,
    Kind.FIX_VERIFIED,
    Kind.COOLDOWN,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """The facts of a notification that routing needs."""

    number: int
    kind: str
    severity: int
    watch: int | None = None
    incident: int | None = None
    cycle: int | None = None
    is_drill: bool = False
    is_over: bool = False
    """The approval that it requests is decided already."""


class LastNotification(NamedTuple):
    """The last notification about an incident that a channel got."""

    kind: str = ""
    severity: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelRules:
    """The facts of a channel that routing needs."""

    least_severity: int = Incident.Severity.WARNING
    watches: frozenset[int] = frozenset()
    quiet_from: time | None = None
    quiet_until: time | None = None
    lately: int = 0
    """Single messages within the last minute."""
    last_sent: Mapping[int, LastNotification] = ()  # type: ignore[assignment]
    """The last notification about each incident."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One message: its notifications, and when it is due."""

    candidates: tuple[Candidate, ...]
    due_at: datetime
    is_summary: bool = False


def batches(rules: ChannelRules, candidates: Iterable[Candidate], now: datetime) -> list[Batch]:
    """Return the messages for a channel. `now` is local time, as quiet hours are."""
    last_sent, lately = dict(rules.last_sent), rules.lately
    quiet_end = end_of_quiet(rules.quiet_from, rules.quiet_until, now)
    singles_of: list[list[Candidate]] = []
    of_cycle: dict[int | None, list[Candidate]] = {}
    held: list[Candidate] = []
    burst: list[Candidate] = []
    for candidate in candidates:
        if skip_reason(
            rules, candidate, last_sent.get(candidate.incident or 0, LastNotification())
        ):
            continue
        if candidate.incident is not None:
            last_sent[candidate.incident] = LastNotification(candidate.kind, candidate.severity)
        if quiet_end is not None and candidate.severity < Incident.Severity.CRITICAL:
            held.append(candidate)
        elif lately >= MOST_A_MINUTE and candidate.cycle not in of_cycle:
            burst.append(candidate)
        elif candidate.cycle in of_cycle:
            of_cycle[candidate.cycle].append(candidate)
        else:
            lately += 1
            together = [candidate]
            singles_of.append(together)
            if candidate.cycle is not None:
                of_cycle[candidate.cycle] = together
    singles = [Batch(tuple(together), now) for together in singles_of]
    if quiet_end is not None and held:
        singles.append(Batch(tuple(held), quiet_end, is_summary=True))
    if burst:
        singles.append(Batch(tuple(burst), now + BURST_WAIT, is_summary=True))
    return singles


class SkipReason(StrEnum):
    DRILL = "drill"
    DECIDED = "decided"
    SEVERITY = "severity"
    WATCH = "watch"
    REPEATED = "repeated"


def skip_reason(
    rules: ChannelRules, candidate: Candidate, last: LastNotification
) -> SkipReason | None:
    """Return why a channel does not get a notification, or None.

    A notification of no watch is for all channels; a higher severity is never a repetition.
    """
    if candidate.is_drill:
        return SkipReason.DRILL
    if candidate.is_over:
        return SkipReason.DECIDED
    if candidate.severity < rules.least_severity:
        return SkipReason.SEVERITY
    if candidate.watch is not None and rules.watches and candidate.watch not in rules.watches:
        return SkipReason.WATCH
    is_same = candidate.kind == last.kind and candidate.severity <= last.severity
    return SkipReason.REPEATED if candidate.kind in ONCE_IN_A_ROW and is_same else None


def end_of_quiet(begin: time | None, end: time | None, now: datetime) -> datetime | None:
    """Return the end of the quiet hours, which may pass midnight; None outside of them."""
    if begin is None or end is None or begin == end:
        return None
    clock = now.time()
    passes_midnight = begin > end
    is_quiet = clock >= begin or clock < end if passes_midnight else begin <= clock < end
    if not is_quiet:
        return None
    ends_tomorrow = passes_midnight and clock >= begin
    day = now.date() + timedelta(days=int(ends_tomorrow))
    return datetime.combine(day, end, tzinfo=now.tzinfo)


# Texts are short enough for every service. Secrets were redacted when they were stored.
LONGEST_TITLE = 200
LONGEST_TEXT = 1_200
LINES_IN_A_SUMMARY = 15
LONGEST_LINE = 120

GOOD = {
    Notification.Kind.INCIDENT_RESOLVED,
    Notification.Kind.FIX_VERIFIED,
}
TYPES = {
    Incident.Severity.NOTICE: "info",
    Incident.Severity.WARNING: "warning",
    Incident.Severity.CRITICAL: "failure",
}


def title_of(notification: Notification) -> str:
    return one_line(clean(f"{_about(notification)}{notification.title}"), LONGEST_TITLE)


def body_of(notification: Notification) -> str:
    kind = Notification.Kind(notification.kind).label
    said = f"{kind[0].upper()}{kind[1:]}, {notification.get_severity_display()}."
    return "\n\n".join(filter(None, [said, cut(clean(notification.text), LONGEST_TEXT)]))


def lead(notifications: Sequence[Notification]) -> Notification:
    """Return the notification that a message is about: an approval first, then the most severe."""
    return min(notifications, key=lambda one: (one.approval_id is None, -one.severity, one.pk))


def text_of(notifications: Sequence[Notification]) -> tuple[str, str]:
    """Return title and body of a message about one notification, or about those of one cycle."""
    first = lead(notifications)
    others = [title_of(one) for one in notifications if one is not first]
    if not others:
        return title_of(first), body_of(first)
    lines = [f"- {one_line(title, LONGEST_LINE)}" for title in others[:LINES_IN_A_SUMMARY]]
    if left := len(others) - len(lines):
        lines.append(f"… and {left} more.")
    return title_of(first), "\n".join([f"{body_of(first)}\n\nIn the same cycle:", *lines])


def summary_title(notifications: Sequence[Notification]) -> str:
    counted = Counter(Notification.Kind(notification.kind).label for notification in notifications)
    kinds = ", ".join(f"{count} × {kind}" for kind, count in counted.most_common())
    return one_line(f"{len(notifications)} notifications: {kinds}", LONGEST_TITLE)


def summary_body(notifications: Sequence[Notification]) -> str:
    """Return a line for each notification, the most severe first, up to a limit."""
    ordered = sorted(
        notifications, key=lambda notification: (-notification.severity, notification.pk)
    )
    lines = [
        f"- {one_line(f'[{each.get_severity_display()}] {title_of(each)}', LONGEST_LINE)}"
        for each in ordered[:LINES_IN_A_SUMMARY]
    ]
    if left := len(ordered) - len(lines):
        lines.append(f"… and {left} more.")
    return "\n".join(lines)


def type_of(severity: int, kinds: Sequence[str]) -> str:
    """Return Apprise's type, by which services choose a colour and a symbol."""
    if kinds and GOOD.issuperset(kinds):
        return "success"
    return TYPES[Incident.Severity(severity)]


def _about(notification: Notification) -> str:
    """Return the name of the watch as a prefix, unless the title has it."""
    if notification.watch is None:
        return ""
    name = notification.watch.name
    is_said = notification.title.startswith(f"{name}: ") or f"({name})" in notification.title
    return "" if is_said else f"{name}: "
