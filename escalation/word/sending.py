"""Messages that are due: each is claimed, carried out once, and tried again where that failed.

A message is sent once, whoever else looks at the same moment. Only where a sender dies between
sending and writing it down, it is sent again: to be told twice is better than not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from escalation.word import courier
from escalation.word.courier import Answer
from escalation.word.wording import type_of
from sessions_app.models import Approval, Happening, Message, Target
from sessions_app.reading.sealing import SealedWithAnotherKey
from sessions_app.reading.target_addresses import address_of

BACK_OFF = tuple(timedelta(minutes=minutes) for minutes in (0.5, 2, 10, 30, 120))
"""Before the second try, the third, …; after the last one it is given up."""
CLAIMED_FOR = timedelta(minutes=2)
LONGEST_WAIT = timedelta(days=1, hours=1)
"""Until the end of quiet hours."""
CLOCKS_DIFFER = timedelta(minutes=1)
MOOT = "It was answered before this could be sent."
SWITCHED_OFF = "The target was switched off before this could be sent."

LinkFor = Callable[[Approval, User], str]
"""The path of a page on which this account, and no other, may answer an approval."""


def ordinary_link(approval: Approval, user: User) -> str:
    """None of its own: the happening's page, which asks for a login."""
    return ""


def targets_with_due(now: datetime) -> list[int]:
    rows = _due(now).filter(target__enabled=True).order_by()
    return list(rows.values_list("target", flat=True).distinct())


def send_due(target_number: int, link_for: LinkFor = ordinary_link) -> int:
    """All that waits for one target, until one fails. Gives how many were sent."""
    sent = 0
    while message := _claim_next(target_number):
        if not _send(message, link_for):
            break
        sent += 1
    return sent


def back_off(tries: int) -> timedelta | None:
    """How long to wait after so many tries; None: given up."""
    return BACK_OFF[tries - 1] if tries <= len(BACK_OFF) else None


def give_up_waiting(target: Target, why: str) -> int:
    """What was meant for a moment that is over shall not come in a flood some day."""
    waiting = target.messages.filter(state=Message.State.WAITING)
    return waiting.update(state=Message.State.FAILED, error=why)


def _due(now: datetime) -> QuerySet[Message]:
    """After the clock was set back, what was written before that must not wait for it to come
    round again: what is not written yet by the clock, or due later than anything ever is."""
    written_later = Q(created_at__gt=now + CLOCKS_DIFFER, tries=0, is_summary=False)
    when = Q(due_at__lte=now) | Q(due_at__gt=now + LONGEST_WAIT) | written_later
    return Message.objects.filter(when, state=Message.State.WAITING)


def _claim_next(target_number: int) -> Message | None:
    now = timezone.now()
    for message in _due(now).filter(target=target_number).order_by("due_at", "pk"):
        if _claim(message, now):
            return message
    return None


def _claim(message: Message, now: datetime) -> bool:
    """Whoever changes the row has it; should it die, the message is due again after a while."""
    mine = Message.objects.filter(
        pk=message.pk,
        state=Message.State.WAITING,
        tries=message.tries,
        due_at=message.due_at,
        target__enabled=True,
    )
    claimed = Message.objects.filter(pk__in=mine.values("pk"), tries=message.tries).update(
        tries=F("tries") + 1, due_at=now + CLAIMED_FOR
    )
    message.tries += claimed
    return bool(claimed)


def _send(message: Message, link_for: LinkFor) -> bool:
    told = list(message.happenings.select_related("approval")[:2])
    if _is_moot(told):
        _claimed(message).update(state=Message.State.FAILED, error=MOOT)
        return True
    target = Target.objects.select_related("owner").get(pk=message.target_id)
    kinds = list(message.happenings.values_list("kind", flat=True).distinct())
    try:
        answer = courier.deliver(
            address_of(target),
            title=message.title,
            body=f"{message.body}\n\n{_address(target, told, link_for)}",
            type=type_of(message.severity, kinds),
        )
    except SealedWithAnotherKey as error:
        answer = Answer(False, str(error))
    _note(message, answer)
    return answer.ok


def _is_moot(told: list[Happening]) -> bool:
    if len(told) != 1 or told[0].approval is None:
        return False
    return not told[0].approval.is_waiting


def _address(target: Target, told: list[Happening], link_for: LinkFor) -> str:
    """Made when it is sent: a link that opens a door is never stored."""
    path = told[0].path if len(told) == 1 else ""
    if len(told) == 1 and told[0].approval and target.owner:
        path = link_for(told[0].approval, target.owner) or path
    return f"{settings.CLAUDEOPS_URL.rstrip('/')}/{path.lstrip('/')}"


@transaction.atomic
def _note(message: Message, answer: Answer) -> None:
    """The target first, as everywhere: who takes rows in another order may wait for ever."""
    now = timezone.now()
    target = Target.objects.filter(pk=message.target_id)
    if answer.ok:
        target.update(last_sent_at=now, failures_in_a_row=0, last_error="")
        _claimed(message).update(state=Message.State.SENT, sent_at=now, error="")
        return
    target.update(failures_in_a_row=F("failures_in_a_row") + 1, last_error=answer.said)
    wait = back_off(message.tries)
    if wait is None:
        _claimed(message).update(state=Message.State.FAILED, error=answer.said)
        return
    again = now + wait
    _claimed(message).update(due_at=again, error=answer.said)
    # What else waits for it would fail as well, and hold up a sender each time.
    waiting = Message.objects.filter(target=message.target_id, state=Message.State.WAITING)
    waiting.filter(due_at__lt=again).update(due_at=again)


def _claimed(message: Message) -> QuerySet[Message]:
    """As long as it is still ours."""
    return Message.objects.filter(pk=message.pk, state=Message.State.WAITING, tries=message.tries)
