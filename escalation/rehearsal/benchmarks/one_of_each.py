"""One row of everything that does not grow with the runs: its pages have something to show."""

from __future__ import annotations

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.utils import timezone

from sessions_app.models import (
    AccountClock,
    Happening,
    Incident,
    IncidentEvent,
    LoginFailure,
    Message,
    PauseSwitch,
    Target,
    WallsProof,
    Watch,
)
from sessions_app.models.budget_notice import BudgetNotice


def add_one_of_each(watch: Watch) -> None:
    now, severity = timezone.now(), Incident.Severity.WARNING
    PauseSwitch.objects.create(pk=PauseSwitch.THE_ONE)
    AccountClock.objects.create(pk=AccountClock.THE_ONE)
    LoginFailure.objects.create(username="nobody", address="127.0.0.1")
    BudgetNotice.objects.create(budget="day", period=timezone.localdate(), percent=80)
    WallsProof.objects.create(
        kind=WallsProof.Kind.CORPUS, host="lighthouse", tried=1, failed=0, started_at=now
    )
    incident = Incident.objects.order_by("pk").first()
    if incident is not None:
        IncidentEvent.objects.create(incident=incident, kind=IncidentEvent.Kind.OPENED)
    Happening.objects.create(
        kind=Happening.Kind.BUDGET, severity=severity, title="A budget", watch=watch
    )
    target = Target.objects.create(name="lamp", sealed_address=b"")
    Message.objects.create(target=target, title="A word", body="A word", severity=severity)
    _log_a_change(watch)


def _log_a_change(watch: Watch) -> None:
    user = User.objects.create(username="keeper")
    LogEntry.objects.create(
        user=user,
        content_type=ContentType.objects.get_for_model(Watch),
        object_id=str(watch.pk),
        object_repr=str(watch),
        action_flag=CHANGE,
    )
