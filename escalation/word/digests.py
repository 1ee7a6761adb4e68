"""When a digest is due, and that it is written once, whoever looks."""

from __future__ import annotations

from datetime import datetime, time, timedelta

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from escalation.word.digest import Digest, load_digest
from sessions_app.models import Incident, Message, Target

DAY = timedelta(days=1)
LONGEST_LOOK_BACK = timedelta(days=3)


def is_due(at: time, last: datetime, now: datetime) -> bool:
    """`now` is local time. One that was missed while nothing ran comes later the same day. A last
    one that lies a day ahead was sent by a clock that was wrong, and says nothing."""
    moment = datetime.combine(now.date(), at, tzinfo=now.tzinfo)
    return moment <= now and (last < moment or last > now + DAY)


def since_when(last: datetime | None, now: datetime) -> datetime:
    """From the last one on, but never a long story."""
    if last is None or last > now:
        return now - DAY
    return max(last, now - LONGEST_LOOK_BACK)


def write_due() -> int:
    """A message for each target whose hour has come. Gives their number."""
    now = timezone.localtime()
    rows = Target.objects.filter(
        Q(owner=None) | Q(owner__is_active=True), enabled=True, digest_at__isnull=False
    )
    return sum(_write(target, now) for target in rows if _is_due(target, now))


def digest_of(target: Target, now: datetime) -> Digest:
    watches = target.watches.values_list("pk", flat=True)
    return load_digest(since_when(target.digest_sent_at, now), now, watches)


def _is_due(target: Target, now: datetime) -> bool:
    assert target.digest_at is not None
    return is_due(target.digest_at, target.digest_sent_at or target.created_at, now)


@transaction.atomic
def _write(target: Target, now: datetime) -> bool:
    mine = Target.objects.filter(pk=target.pk, digest_sent_at=target.digest_sent_at)
    if not mine.update(digest_sent_at=now):
        return False
    digest = digest_of(target, now)
    if digest.is_empty and not target.digest_when_quiet:
        return False
    send(target, digest)
    return True


def send(target: Target, digest: Digest) -> Message:
    """To the outbox, like all word."""
    return Message.objects.create(
        target=target, title=digest.title, body=digest.body, severity=Incident.Severity.NOTICE
    )
