"""The daily digest: what needs you, what was fixed, changed or is flaky, and what it cost.

It takes a fixed number of queries. Drills are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from decimal import Decimal

from django.db import transaction
from django.db.models import Count, Q, QuerySet, Sum
from django.utils import timezone

from sessions_app.models import Approval, Change, Channel, Incident, Message, ServiceState, Session
from sessions_app.models.incident import IncidentQuerySet
from sessions_app.redaction.redact import redacted
from sessions_app.text import ago, clean, money, one_line

FLAKY_DAYS = timedelta(days=7)
FLAKY_TIMES = 2
"""A problem that occurred this often within that time is flaky."""
SHOWN = 10
LONGEST_LINE = 160


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    title: str
    lines: tuple[str, ...]
    more: int = 0
    """Number of lines that are not shown."""

    def __str__(self) -> str:
        shown = [f"- {line}" for line in self.lines]
        left = [f"… and {self.more} more"] if self.more else []
        return "\n".join([f"{self.title}:", *shown, *left])


@dataclass(frozen=True, kw_only=True, slots=True)
class Digest:
    since: datetime
    until: datetime
    needs_you: Section
    """What the pages and `claudeops status` count, too."""
    in_hand: Section
    """Unresolved incidents that an account owns or a cycle works on."""
    fixed: Section
    """By the agent, and verified."""
    resolved: Section
    """By a person, or recovered without a fix."""
    changed: Section
    flaky: Section
    not_looked_at: Section
    """Services that the last cycle of their watch did not mention."""
    runs: int
    cost_usd: Decimal
    without_figure: int
    """Sessions that have ended and whose cost is not known."""

    @property
    def is_empty(self) -> bool:
        """Test for a digest without news; healthy cycles are no news."""
        return not any(section.lines for section in self._sections)

    @property
    def _sections(self) -> tuple[Section, ...]:
        resolved = (self.fixed, self.resolved)
        others = (self.changed, self.flaky, self.not_looked_at)
        return (self.needs_you, self.in_hand, *resolved, *others)

    @property
    def title(self) -> str:
        count = len(self.needs_you.lines) + self.needs_you.more
        if count:
            return f"Daily digest: {count} thing{'s' if count > 1 else ''} need you"
        return "Daily digest: nothing needs you"

    @property
    def body(self) -> str:
        told = [str(section) for section in self._sections if section.lines]
        return "\n\n".join([*told, self._cost])

    @property
    def _cost(self) -> str:
        unknown = f"; the cost of {self.without_figure} is not known" if self.without_figure else ""
        return f"Cost: {money(self.cost_usd)} for {self.runs} sessions{unknown}."


def load_digest(since: datetime, until: datetime, watches: Iterable[int] = ()) -> Digest:
    """Load the digest of these watches, or of all, with what belongs to no watch."""
    chosen = list(watches)
    incidents = Incident.objects.filter(drill="").select_related("watch")
    sessions = Session.objects.filter(cycle__drill="", started_at__gte=since, started_at__lt=until)
    approvals = Approval.objects.answerable()
    changes = Change.objects.filter(at__gte=since, at__lt=until, session__cycle__drill="")
    services = ServiceState.objects.not_looked_at(until)
    if chosen:
        services = services.filter(watch__in=chosen)
        incidents = incidents.filter(Q(watch__in=chosen) | Q(watch=None))
        sessions = sessions.filter(cycle__watch__in=chosen)
        approvals = approvals.filter(session__cycle__watch__in=chosen)
        changes = changes.filter(watch__in=chosen)
    cost = sessions.aggregate(
        runs=Count("pk"),
        spent=Sum("cost_usd"),
        unknown=Count("pk", filter=Q(cost_usd=None) & ~Q(status__in=Session.OPEN_STATUSES)),
    )
    return Digest(
        since=since,
        until=until,
        needs_you=_needs_you(incidents.waiting_for_person(until), approvals, until),
        in_hand=_in_hand(incidents, until),
        fixed=_fixed(incidents, since, until),
        resolved=_resolved(incidents, since, until),
        changed=_changed(changes),
        flaky=_flaky(incidents, until),
        not_looked_at=_not_looked_at(services, until),
        runs=cost["runs"],
        cost_usd=cost["spent"] or Decimal(0),
        without_figure=cost["unknown"],
    )


def _needs_you(
    incidents: QuerySet[Incident], approvals: QuerySet[Approval], now: datetime
) -> Section:
    """List approvals and incidents that wait for a person."""
    asked = approvals.select_related("session__cycle__watch").order_by("expires_at")
    return _section(
        "Needs you",
        [
            *(f"approval wanted: {one.session.cycle.subject}, {one.why}" for one in asked),
            *(_told(one, now) for one in incidents.order_by("-severity", "pk")),
        ],
    )


def _told(incident: Incident, now: datetime) -> str:
    unverified = "; the fix is not verified" if incident.is_unverified else ""
    return (
        f"[{incident.get_severity_display()}] {incident.subject}: {incident.title} "
        f"(first seen {ago(incident.first_seen_at, now)}{unverified})"
    )


def _in_hand(incidents: IncidentQuerySet, now: datetime) -> Section:
    waiting = incidents.waiting_for_person(now).values("pk")
    rest = incidents.filter(state__in=Incident.UNRESOLVED_STATES).exclude(pk__in=waiting)
    found = rest.select_related("owner").order_by("-severity", "pk")
    return _section("In hand", [f"{one.subject}: {one.title} ({_with_whom(one)})" for one in found])


def _with_whom(incident: Incident) -> str:
    owner = f", {incident.owner.get_username()} owns it" if incident.owner else ""
    state = "seems recovered" if incident.seems_recovered else incident.get_state_display()
    return f"{state}{owner}"


def _fixed(incidents: QuerySet[Incident], since: datetime, until: datetime) -> Section:
    by_agent = incidents.filter(resolved_as=Incident.ResolvedBy.AGENT)
    return _section("Fixed", [_ended(one) for one in _resolved_in(by_agent, since, until)])


def _resolved(incidents: QuerySet[Incident], since: datetime, until: datetime) -> Section:
    others = incidents.exclude(resolved_as=Incident.ResolvedBy.AGENT)
    return _section("Resolved", [_ended(one) for one in _resolved_in(others, since, until)])


def _resolved_in(
    incidents: QuerySet[Incident], since: datetime, until: datetime
) -> QuerySet[Incident]:
    ended = incidents.filter(resolved_at__gte=since, resolved_at__lt=until)
    return ended.order_by("resolved_at")


def _ended(incident: Incident) -> str:
    return f"{incident.subject}: {incident.title} ({incident.get_resolved_as_display()})"


def _changed(changes: QuerySet[Change]) -> Section:
    found = changes.select_related("watch").order_by("at")
    return _section(
        "Changed",
        [f"{f'{one.watch.name}: ' if one.watch else ''}{one.action}" for one in found],
    )


def _flaky(incidents: QuerySet[Incident], until: datetime) -> Section:
    lately = incidents.filter(first_seen_at__gte=until - FLAKY_DAYS, kind=Incident.Kind.PROBLEM)
    counted = (
        lately.order_by()
        .values("watch__name", "cause")
        .annotate(times=Count("pk") + Sum("times_reopened"))
        .filter(times__gte=FLAKY_TIMES)
        .order_by("-times", "cause")
    )
    return _section(
        "Flaky",
        [
            f"{one['watch__name'] or 'this installation'}: {one['cause']} "
            f"({one['times']} times in {FLAKY_DAYS.days} days)"
            for one in counted
        ],
    )


def _not_looked_at(services: QuerySet[ServiceState], until: datetime) -> Section:
    found = services.select_related("watch").order_by("watch__name", "service")
    return _section(
        "Not looked at",
        [f"{one.watch.name}: {one.name} (last seen {ago(one.seen_at, until)})" for one in found],
    )


def _section(title: str, lines: Sequence[str]) -> Section:
    shown = [redacted(one_line(clean(line), LONGEST_LINE)) for line in lines[:SHOWN]]
    return Section(title=title, lines=tuple(shown), more=max(0, len(lines) - SHOWN))


DAY = timedelta(days=1)
LONGEST_LOOK_BACK = timedelta(days=3)


def is_due(at: time, last: datetime, now: datetime) -> bool:
    """Test whether a digest is due; `now` is local time.

    A missed one comes later the same day. A last one more than a day ahead is ignored: the clock
    was wrong.
    """
    moment = datetime.combine(now.date(), at, tzinfo=now.tzinfo)
    return moment <= now and (last < moment or last > now + DAY)


def since_when(last: datetime | None, now: datetime) -> datetime:
    """Return the start of the digest: the last one, at most three days ago."""
    if last is None or last > now:
        return now - DAY
    return max(last, now - LONGEST_LOOK_BACK)


def write_due() -> int:
    """Write the digests that are due, and return their number."""
    now = timezone.localtime()
    rows = Channel.objects.filter(
        Q(owner=None) | Q(owner__is_active=True), enabled=True, digest_at__isnull=False
    )
    return sum(_write(channel, now) for channel in rows if _is_due(channel, now))


def digest_of(channel: Channel, now: datetime) -> Digest:
    watches = channel.watches.values_list("pk", flat=True)
    return load_digest(since_when(channel.digest_sent_at, now), now, watches)


def _is_due(channel: Channel, now: datetime) -> bool:
    assert channel.digest_at is not None
    return is_due(channel.digest_at, channel.digest_sent_at or channel.created_at, now)


@transaction.atomic
def _write(channel: Channel, now: datetime) -> bool:
    mine = Channel.objects.filter(pk=channel.pk, digest_sent_at=channel.digest_sent_at)
    if not mine.update(digest_sent_at=now):
        return False
    digest = digest_of(channel, now)
    if digest.is_empty and not channel.digest_when_quiet:
        return False
    send(channel, digest)
    return True


def send(channel: Channel, digest: Digest) -> Message:
    """Write a digest to the outbox."""
    return Message.objects.create(
        channel=channel, title=digest.title, body=digest.body, severity=Incident.Severity.NOTICE
    )
