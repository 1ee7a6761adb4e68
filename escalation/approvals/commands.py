"""One command's approval: the answer that is there already, and taking what was approved, once."""

from __future__ import annotations

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from escalation.approvals.asking import CommandAsked, ask_for_command
from sessions_app.models import Approval, Session

State = Approval.State


def asked_again(session: Session, asked: CommandAsked) -> Approval | None:
    """The question about this same command in this chain, as long as it holds: the CLI may have
    given up waiting, or the run may have been cut off, before the answer came."""
    now = timezone.now()
    holds = Q(state=State.WAITING, session=session) | Q(state=State.REJECTED)
    unused = Q(state=State.APPROVED, used_at=None)
    return (
        Approval.objects.filter(
            kind=Approval.Kind.COMMAND,
            fingerprint=asked.fingerprint,
            session__cycle=session.cycle_id,
            session__tier=session.tier,
            expires_at__gt=now,
        )
        .filter(holds | unused)
        .select_related("decided_by")
        .order_by("-pk")
        .first()
    )


@transaction.atomic
def question_about(session: Session, asked: CommandAsked) -> Approval:
    return asked_again(session, asked) or ask_for_command(session, asked)


def take(approval: Approval) -> bool:
    """Begin what was approved. False: it was begun before, by another call."""
    unused = Approval.objects.filter(pk=approval.pk, state=State.APPROVED, used_at=None)
    return bool(unused.update(used_at=timezone.now()))


def give_back(approval: Approval) -> None:
    """It was taken, but nothing of it has begun."""
    Approval.objects.filter(pk=approval.pk, state=State.APPROVED).update(used_at=None)
