"""Stores notifications, and routes them: writes their messages in one transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from escalation.notifications.routing import (
    Batch,
    Candidate,
    ChannelRules,
    LastNotification,
    batches,
    summary_body,
    summary_title,
    text_of,
)
from sessions_app.models import Approval, Channel, Cycle, Incident, Message, Notification, Watch
from sessions_app.redaction.redact import redacted


def notify(
    kind: str,
    title: str,
    *,
    severity: int = Incident.Severity.WARNING,
    text: str = "",
    watch: Watch | None = None,
    incident: Incident | None = None,
    approval: Approval | None = None,
    cycle: Cycle | None = None,
    path: str = "",
) -> Notification:
    """Store a notification in the caller's transaction; the worker sends it later."""
    return Notification.objects.create(
        kind=kind,
        title=redacted(title),
        text=redacted(text),
        severity=severity,
        watch=watch,
        incident=incident,
        approval=approval,
        cycle=cycle,
        path=path,
    )


AT_ONCE = 200
MINUTE = timedelta(minutes=1)
CLOCKS_DIFFER = timedelta(seconds=30)
"""Clocks of hosts that share the database."""


def something_waits() -> bool:
    return Notification.objects.filter(passed_on_at=None).exists()


def pass_on() -> int:
    """Write the messages for all new notifications, and return their number."""
    written = 0
    while something_waits():
        written += _pass_some_on()
    return written


@transaction.atomic
def _pass_some_on() -> int:
    """Route up to 200 notifications. The rows of the channels are the lock between hosts."""
    channels = list(_listening().select_for_update(of=("self",)))
    now = timezone.now()
    new = list(_waiting()[:AT_ONCE])
    Notification.objects.filter(pk__in=[each.pk for each in new]).update(passed_on_at=now)
    by_number = {each.pk: each for each in new}
    candidates = [_candidate(each) for each in new]
    last_sent = _last_sent(new)
    written = 0
    for channel in channels:
        rules = _rules(channel, last_sent[channel.pk], now)
        for batch in batches(rules, candidates, timezone.localtime(now)):
            _write(channel, batch, [by_number[each.number] for each in batch.candidates], now)
            written += 1
    return written


def _listening() -> QuerySet[Channel]:
    """Return the channels that are on and whose owner, if any, is active."""
    rows = Channel.objects.filter(Q(owner=None) | Q(owner__is_active=True), enabled=True)
    return rows.order_by("pk").prefetch_related("watches")


def _waiting() -> QuerySet[Notification]:
    rows = Notification.objects.filter(passed_on_at=None).order_by("pk")
    return rows.select_related("watch", "incident", "approval__session__cycle")


def _candidate(notification: Notification) -> Candidate:
    """Return the facts for routing. The end of an incident has the severity of its beginning."""
    incident, approval = notification.incident, notification.approval
    drill = (incident and incident.drill) or (approval and approval.session.cycle.drill)
    return Candidate(
        number=notification.pk,
        kind=notification.kind,
        severity=max(notification.severity, incident.severity if incident else 0),
        watch=notification.watch_id,
        incident=notification.incident_id,
        cycle=notification.cycle_id,
        is_drill=bool(drill),
        is_over=approval is not None and not approval.is_waiting,
    )


def _rules(channel: Channel, last_sent: dict[int, LastNotification], now: datetime) -> ChannelRules:
    lately = channel.messages.filter(created_at__gt=now - MINUTE, is_summary=False)
    return ChannelRules(
        least_severity=channel.least_severity,
        watches=frozenset(watch.pk for watch in channel.watches.all()),
        quiet_from=channel.quiet_from,
        quiet_until=channel.quiet_until,
        lately=lately.exclude(notifications=None).count(),
        last_sent=last_sent,
    )


def _last_sent(new: Iterable[Notification]) -> defaultdict[int, dict[int, LastNotification]]:
    """Return the last notification about each of these incidents, by channel."""
    incidents = {each.incident_id for each in new if each.incident_id}
    found: defaultdict[int, dict[int, LastNotification]] = defaultdict(dict)
    if not incidents:
        return found
    rows = Notification.objects.filter(incident__in=incidents).exclude(messages=None)
    for channel, incident, kind, severity in rows.order_by("pk").values_list(
        "messages__channel", "incident", "kind", "severity"
    ):
        found[channel][incident] = LastNotification(kind, severity)
    return found


def _write(
    channel: Channel, batch: Batch, notifications: Sequence[Notification], now: datetime
) -> None:
    severity = max(each.severity for each in batch.candidates)
    if not batch.is_summary:
        title, body = text_of(notifications)
        message = Message.objects.create(
            channel=channel,
            title=title,
            body=body,
            severity=severity,
            due_at=batch.due_at,
            created_at=now,
        )
        message.notifications.set(notifications)
        return
    summary = _open_summary(channel, batch.due_at, now) or Message(
        channel=channel, is_summary=True, due_at=batch.due_at, severity=severity, created_at=now
    )
    summary.save()
    summary.notifications.add(*notifications)
    gathered = list(summary.notifications.select_related("watch"))
    summary.title, summary.body = summary_title(gathered), summary_body(gathered)
    summary.severity = max(severity, summary.severity)
    summary.save()


def _open_summary(channel: Channel, due_at: datetime, now: datetime) -> Message | None:
    """Return a summary that is not due yet, to which notifications are added."""
    rows = channel.messages.filter(
        is_summary=True,
        state=Message.State.WAITING,
        tries=0,
        due_at__gt=now,
        due_at__lte=due_at + CLOCKS_DIFFER,
    )
    return rows.first()
