"""From what happened to messages that wait to be sent: decided and written in one transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from escalation.word.routing import Batch, Listener, Said, Told, batches
from escalation.word.wording import body_of, summary_body, summary_title, title_of
from sessions_app.models import Happening, Message, Target

AT_ONCE = 200
MINUTE = timedelta(minutes=1)
CLOCKS_DIFFER = timedelta(seconds=30)
"""Of hosts that share the database."""


def something_waits() -> bool:
    return Happening.objects.filter(passed_on_at=None).exists()


def pass_on() -> int:
    """Write the messages for all that nobody has looked at yet. Gives their number."""
    written = 0
    while something_waits():
        written += _pass_some_on()
    return written


@transaction.atomic
def _pass_some_on() -> int:
    """The targets' rows are the lock: where two hosts pass on at once, one waits for the other."""
    targets = list(_listening().select_for_update(of=("self",)))
    now = timezone.now()
    happened = list(_waiting()[:AT_ONCE])
    Happening.objects.filter(pk__in=[each.pk for each in happened]).update(passed_on_at=now)
    by_number = {each.pk: each for each in happened}
    told = [_as_told(each) for each in happened]
    said = _last_said(happened)
    written = 0
    for target in targets:
        listener = _as_listener(target, said[target.pk], now)
        for batch in batches(listener, told, timezone.localtime(now)):
            _write(target, batch, [by_number[each.number] for each in batch.told], now)
            written += 1
    return written


def _listening() -> QuerySet[Target]:
    """Whose account was switched off hears nothing any more."""
    rows = Target.objects.filter(Q(owner=None) | Q(owner__is_active=True), enabled=True)
    return rows.order_by("pk").prefetch_related("watches")


def _waiting() -> QuerySet[Happening]:
    rows = Happening.objects.filter(passed_on_at=None).order_by("pk")
    return rows.select_related("watch", "incident", "approval__session__cycle")


def _as_told(happening: Happening) -> Told:
    """The end of an incident is heard by whom its beginning was: it weighs as much."""
    incident, approval = happening.incident, happening.approval
    drill = (incident and incident.drill) or (approval and approval.session.cycle.drill)
    return Told(
        number=happening.pk,
        kind=happening.kind,
        severity=max(happening.severity, incident.severity if incident else 0),
        watch=happening.watch_id,
        incident=happening.incident_id,
        is_drill=bool(drill),
        is_over=approval is not None and not approval.is_waiting,
    )


def _as_listener(target: Target, said: dict[int, Said], now: datetime) -> Listener:
    lately = target.messages.filter(created_at__gt=now - MINUTE, is_summary=False)
    return Listener(
        least_severity=target.least_severity,
        watches=frozenset(watch.pk for watch in target.watches.all()),
        quiet_from=target.quiet_from,
        quiet_until=target.quiet_until,
        lately=lately.exclude(happenings=None).count(),
        last_said=said,
    )


def _last_said(happened: Iterable[Happening]) -> defaultdict[int, dict[int, Said]]:
    """What each target was last told of each of these incidents."""
    incidents = {each.incident_id for each in happened if each.incident_id}
    said: defaultdict[int, dict[int, Said]] = defaultdict(dict)
    if not incidents:
        return said
    rows = Happening.objects.filter(incident__in=incidents).exclude(messages=None)
    for target, incident, kind, severity in rows.order_by("pk").values_list(
        "messages__target", "incident", "kind", "severity"
    ):
        said[target][incident] = Said(kind, severity)
    return said


def _write(target: Target, batch: Batch, told: Sequence[Happening], now: datetime) -> None:
    severity = max(each.severity for each in batch.told)
    if not batch.is_summary:
        [happening] = told
        message = Message.objects.create(
            target=target,
            title=title_of(happening),
            body=body_of(happening),
            severity=severity,
            due_at=batch.due_at,
            created_at=now,
        )
        message.happenings.set(told)
        return
    summary = _open_summary(target, batch.due_at, now) or Message(
        target=target, is_summary=True, due_at=batch.due_at, severity=severity, created_at=now
    )
    summary.save()
    summary.happenings.add(*told)
    gathered = list(summary.happenings.select_related("watch"))
    summary.title, summary.body = summary_title(gathered), summary_body(gathered)
    summary.severity = max(severity, summary.severity)
    summary.save()


def _open_summary(target: Target, due_at: datetime, now: datetime) -> Message | None:
    """One that is not due yet takes in what comes."""
    rows = target.messages.filter(
        is_summary=True,
        state=Message.State.WAITING,
        tries=0,
        due_at__gt=now,
        due_at__lte=due_at + CLOCKS_DIFFER,
    )
    return rows.first()
