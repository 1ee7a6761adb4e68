"""Targets as people make, try, switch and remove them."""

from __future__ import annotations

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from escalation.word import courier
from escalation.word.courier import Answer
from escalation.word.sending import SWITCHED_OFF, give_up_waiting
from sessions_app.models import Incident, Message, Target
from sessions_app.reading.sealing import SealedWithAnotherKey
from sessions_app.reading.target_addresses import address_of, sealed_address

LONGEST_ADDRESS = 2_000
TEST_TITLE = "Claude Ops: a test"
TEST_BODY = "Word from Claude Ops arrives here. This is only a test: nothing happened."
NO_ADDRESS = "Give an address, like mailto://… or ntfy://…: docs/word.md has examples."
TOO_LONG = f"An address has at most {LONGEST_ADDRESS} characters."
ONE_LINE = "An address is one line, without spaces."


def objection_to(address: str) -> str:
    """What is plainly wrong with an address, or nothing."""
    if not address:
        return NO_ADDRESS
    if len(address) > LONGEST_ADDRESS:
        return TOO_LONG
    return "" if address.isprintable() and " " not in address else ONE_LINE


def set_address(target: Target, address: str) -> str:
    """Put a new address in, sealed, in place of what was there. Gives what is wrong with it; then
    nothing is changed. The caller saves."""
    if objection := objection_to(address):
        return objection
    found = courier.look_at(address)
    if not found.ok:
        return found.said
    target.sealed_address, target.service = sealed_address(address), found.service
    return ""


def send_test(target: Target) -> Answer:
    """Now, and once: what came of it is shown, and stands among its messages."""
    try:
        word = {"title": TEST_TITLE, "body": TEST_BODY, "type": "info"}
        answer = courier.deliver(address_of(target), **word)
    except SealedWithAnotherKey as error:
        answer = Answer(False, str(error))
    _note_test(target, answer)
    return answer


@transaction.atomic
def _note_test(target: Target, answer: Answer) -> None:
    now = timezone.now()
    Message.objects.create(
        target=target,
        title=TEST_TITLE,
        body=TEST_BODY,
        severity=Incident.Severity.NOTICE,
        state=Message.State.SENT if answer.ok else Message.State.FAILED,
        tries=1,
        sent_at=now if answer.ok else None,
        error=answer.said[:500],
    )
    row = Target.objects.filter(pk=target.pk)
    if answer.ok:
        row.update(last_sent_at=now, failures_in_a_row=0, last_error="")
    else:
        row.update(failures_in_a_row=F("failures_in_a_row") + 1, last_error=answer.said[:500])


@transaction.atomic
def set_enabled(target: Target, *, enabled: bool) -> int:
    """Gives how many messages that still waited will never be sent."""
    Target.objects.filter(pk=target.pk).update(enabled=enabled)
    target.enabled = enabled
    return 0 if enabled else give_up_waiting(target, SWITCHED_OFF)
