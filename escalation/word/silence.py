"""A worker that is silent is noticed by whoever lives: another host's worker, or the web server.

What nobody can notice from inside is that all of them are gone, or the machine, or its network: for
that there is `CLAUDEOPS_PING_URL` and a monitor elsewhere.
"""

from __future__ import annotations

from django.db import transaction
from django.db.models import F, Q

from escalation.word.happenings import tell
from sessions_app.models import Happening, Incident, WorkerBeat
from sessions_app.models.clock import shared_now
from sessions_app.reading.formatting import ago

TITLE = "The worker on {host} is silent"
TEXT = (
    "It was last seen {ago}. {rest} Look at its log, and start it again with `make up` or "
    "`claudeops worker`. If it was stopped on purpose, nothing needs to be done."
)
NOBODY_LEFT = "No other worker is seen either: nothing that is queued will start."
OTHERS_LEFT = "Workers on other hosts go on."


def tell_of_silent_workers() -> int:
    """Once for each silence, whoever looks. Gives how many were told."""
    now = shared_now()
    silent = WorkerBeat.objects.filter(seen_at__lt=now - WorkerBeat.SILENCE).filter(
        Q(silence_told_at=None) | Q(silence_told_at__lt=F("seen_at"))
    )
    return sum(_tell_of(beat) for beat in silent)


@transaction.atomic
def _tell_of(beat: WorkerBeat) -> bool:
    now = shared_now()
    untold = WorkerBeat.objects.filter(
        pk=beat.pk, seen_at=beat.seen_at, silence_told_at=beat.silence_told_at
    )
    if not untold.update(silence_told_at=now):
        return False
    rest = OTHERS_LEFT if WorkerBeat.lately_seen().exists() else NOBODY_LEFT
    tell(
        Happening.Kind.WORKER_SILENT,
        TITLE.format(host=beat.host),
        severity=Incident.Severity.CRITICAL,
        text=TEXT.format(ago=ago(beat.seen_at, now), rest=rest),
    )
    return True
