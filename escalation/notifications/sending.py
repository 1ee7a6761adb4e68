"""Sends due messages, and manages channels: address, test, switch.

A message is claimed by a conditional update and sent once. Only if a sender dies between sending it
and recording that, it is sent again.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Q, QuerySet, Sum
from django.utils import timezone

from escalation.notifications.routing import lead, text_of, type_of
from escalation.notifications.services import ACTING, APPROVE, TELEGRAM, service_of
from sessions_app.models import Approval, Channel, Incident, Message, Notification, Session
from sessions_app.redaction.encryption import EncryptedWithAnotherKey, address_of, encrypt_address
from sessions_app.redaction.redact import redacted
from sessions_app.text import clean, one_line

PROJECT = Path(__file__).resolve().parents[2]
TIMEOUT_SECONDS = 30.0
LONGEST_ERROR = 500
PASSED_ON = (
    *("PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
)


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    ok: bool
    error: str
    """Without secrets."""
    service: str = ""
    """The part of the address that may be shown."""


def look_at(address: str) -> DeliveryResult:
    """Validate an address by Apprise. Nothing is sent."""
    return _asked({"address": address})


def deliver(
    address: str,
    *,
    title: str,
    body: str,
    type: str,
    event: dict[str, Any],
    link: str = "",
    buttons: Mapping[str, str] | None = None,
) -> DeliveryResult:
    """Send a message: as text by Apprise, with buttons to a service that has them, or as the event
    to a webhook."""
    message = {
        "title": title,
        "body": f"{body}\n\n{link}" if link else body,
        "text": body,
        "type": type,
        "event": event,
        "link": link,
        "buttons": dict(buttons or {}),
    }
    return _asked({"address": address, **message})


def _asked(question: dict[str, Any]) -> DeliveryResult:
    """Run `deliver`. The address goes by standard input: other users can read a command line."""
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "escalation.notifications.deliver"],
            input=json.dumps(question),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
            cwd=PROJECT,
            env={name: os.environ[name] for name in PASSED_ON if name in os.environ},
            start_new_session=True,
        )
        found = json.loads(ended.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return DeliveryResult(False, f"No response within {TIMEOUT_SECONDS:.0f} s.")
    except (OSError, ValueError, IndexError) as error:
        return DeliveryResult(False, f"Could not be sent: {type(error).__name__}.")
    return DeliveryResult(
        bool(found["ok"]),
        redacted(one_line(clean(found["error"]), LONGEST_ERROR)),
        one_line(clean(found["service"]), 200),
    )


BACK_OFF = tuple(timedelta(minutes=minutes) for minutes in (0.5, 2, 10, 30, 120))
"""Before the second try, the third, and so on; after the last one the message is given up."""
CLAIMED_FOR = timedelta(minutes=2)
LONGEST_WAIT = timedelta(days=1, hours=1)
"""Longest time until the end of quiet hours."""
CLOCKS_DIFFER = timedelta(minutes=1)
MOOT = "The approval was decided before this could be sent."
SWITCHED_OFF = "The channel was switched off before this could be sent."

LinkFor = Callable[[Approval, User], str]
"""Returns the path of a page on which only this account can decide an approval."""
ButtonsFor = Callable[[Approval, Channel, str], Mapping[str, str]]
"""Returns what the buttons of an approval carry at a service: a path, at Telegram the data."""


def ordinary_link(approval: Approval, user: User) -> str:
    """Return no link: the message has the page of the notification, which asks for a login."""
    return ""


def no_buttons(approval: Approval, channel: Channel, service: str) -> Mapping[str, str]:
    return {}


def channels_with_due(now: datetime) -> list[int]:
    rows = _due(now).filter(channel__enabled=True).order_by()
    return list(rows.values_list("channel", flat=True).distinct())


def send_due(
    channel_pk: int, link_for: LinkFor = ordinary_link, buttons_for: ButtonsFor = no_buttons
) -> int:
    """Send the due messages of a channel until one fails, and return how many were sent."""
    sent = 0
    while message := _claim_next(channel_pk):
        if not _send(message, link_for, buttons_for):
            break
        sent += 1
    return sent


def back_off(tries: int) -> timedelta | None:
    """Return the wait after this number of tries, or None to give up."""
    return BACK_OFF[tries - 1] if tries <= len(BACK_OFF) else None


def give_up_waiting(channel: Channel, why: str) -> int:
    """Give up the waiting messages of a channel, and return how many."""
    waiting = channel.messages.filter(state=Message.State.WAITING)
    return waiting.update(state=Message.State.FAILED, error=why)


def _due(now: datetime) -> QuerySet[Message]:
    """Return due messages, also those with times that a clock set back has made impossible."""
    written_later = Q(created_at__gt=now + CLOCKS_DIFFER, tries=0, is_summary=False)
    when = Q(due_at__lte=now) | Q(due_at__gt=now + LONGEST_WAIT) | written_later
    return Message.objects.filter(when, state=Message.State.WAITING)


def _claim_next(channel_pk: int) -> Message | None:
    now = timezone.now()
    for message in _due(now).filter(channel=channel_pk).order_by("due_at", "pk"):
        if _claim(message, now):
            return message
    return None


def _claim(message: Message, now: datetime) -> bool:
    """Claim a message by changing its row; it is due again if the sender dies."""
    mine = Message.objects.filter(
        pk=message.pk,
        state=Message.State.WAITING,
        tries=message.tries,
        due_at=message.due_at,
        channel__enabled=True,
    )
    claimed = Message.objects.filter(pk__in=mine.values("pk"), tries=message.tries).update(
        tries=F("tries") + 1, due_at=now + CLAIMED_FOR
    )
    message.tries += claimed
    return bool(claimed)


def _send(message: Message, link_for: LinkFor, buttons_for: ButtonsFor) -> bool:
    told = list(message.notifications.select_related("approval", "watch").order_by("pk"))
    if told and not message.is_summary:
        current = [each for each in told if not _is_moot(each)]
        if not current:
            _claimed(message).update(state=Message.State.FAILED, error=MOOT)
            return True
        if len(current) < len(told):
            told, message.title, message.body = current, *text_of(current)
    channel = Channel.objects.select_related("owner").filter(pk=message.channel_id).first()
    if channel is None:
        return False  # removed, with its messages
    try:
        address = address_of(channel)
        answer = deliver(
            address,
            title=message.title,
            body=message.body,
            link=_link(message, channel, told, link_for),
            buttons=_buttons(message, channel, told, service_of(address), buttons_for),
            type=type_of(message.severity, [each.kind for each in told]),
            event=event_of(message),
        )
    except EncryptedWithAnotherKey as error:
        answer = DeliveryResult(False, str(error))
    _note(message, answer)
    return answer.ok


EVENT_VERSION = 1
"""Changes when a field of an event changes its meaning or goes; new fields may come."""
EVENT_TYPES = {
    Notification.Kind.INCIDENT_OPENED: "incident.opened",
    Notification.Kind.INCIDENT_CHANGED_HANDS: "incident.assigned",
    Notification.Kind.INCIDENT_RESOLVED: "incident.resolved",
    Notification.Kind.FIX_VERIFIED: "fix.verified",
    Notification.Kind.FIX_DID_NOT_HOLD: "fix.failed",
    Notification.Kind.APPROVAL_WANTED: "approval.requested",
    Notification.Kind.BUDGET: "budget.spent",
    Notification.Kind.COOLDOWN: "cooldown.stopped",
    Notification.Kind.SANDBOX_WORSE: "sandbox.worse",
    Notification.Kind.WORKER_SILENT: "worker.silent",
}
SUMMARY, DIGEST, TEST = "summary", "digest", "test"


def event_of(message: Message) -> dict[str, Any]:
    """Return a message as the event that a webhook gets. A retry has the same id."""
    related = message.notifications.select_related("watch", "incident__watch", "approval")
    told = [_event(notification) for notification in related.order_by("pk")]
    if len(told) == 1 and not message.is_summary:
        return {**told[0], "id": f"msg_{message.pk}"}
    return {
        "id": f"msg_{message.pk}",
        "type": SUMMARY if told else DIGEST,
        "version": EVENT_VERSION,
        "timestamp": message.created_at.isoformat(),
        "severity": message.get_severity_display(),
        "title": message.title,
        "text": message.body,
        "links": {"page": _page("/")},
        "events": told,
    }


def _event(notification: Notification) -> dict[str, Any]:
    incident = notification.incident
    return {
        "type": EVENT_TYPES[Notification.Kind(notification.kind)],
        "version": EVENT_VERSION,
        "timestamp": notification.at.isoformat(),
        "severity": notification.get_severity_display(),
        "title": notification.title,
        "text": notification.text,
        "watch": notification.watch.name if notification.watch else None,
        "service": _service(incident),
        "incident": incident.pk if incident else None,
        "state": incident.state if incident else None,
        "approval": notification.approval_id,
        "cost_usd": _cost(incident),
        "links": {
            "page": _page(notification.path),
            "incident": _page(incident.get_absolute_url()) if incident else None,
        },
    }


def _service(incident: Incident | None) -> str | None:
    is_problem = incident is not None and incident.kind == Incident.Kind.PROBLEM
    return incident.cause if incident and is_problem else None


def _cost(incident: Incident | None) -> float | None:
    if incident is None:
        return None
    spent = Session.objects.filter(cycle__in=incident.cycles.values("pk"))
    return float(spent.aggregate(cost=Sum("cost_usd", default=0))["cost"])


def _page(path: str) -> str:
    return f"{settings.CLAUDEOPS_URL.rstrip('/')}/{path.lstrip('/')}"


def _is_moot(notification: Notification) -> bool:
    return notification.approval is not None and not notification.approval.is_waiting


def _approval_in(message: Message, told: list[Notification]) -> Approval | None:
    """Return the one approval that a message requests; a summary leads to the Overview."""
    asked = [each.approval for each in told if each.approval is not None]
    return asked[0] if len(asked) == 1 and not message.is_summary else None


def _link(message: Message, channel: Channel, told: list[Notification], link_for: LinkFor) -> str:
    """Return the address of the page. A link for one account is made here and never stored."""
    approval = _approval_in(message, told)
    if approval and channel.owner and (path := link_for(approval, channel.owner)):
        return _page(path)
    return _page(lead(told).path if told and not message.is_summary else "")


def _buttons(
    message: Message,
    channel: Channel,
    told: list[Notification],
    service: str,
    buttons_for: ButtonsFor,
) -> Mapping[str, str]:
    """Return the buttons of an approval, for the only reader of a channel.

    A button that acts at once needs the whole command in the message.
    """
    approval = _approval_in(message, told)
    if approval is None or channel.owner is None or not service:
        return {}
    buttons = dict(buttons_for(approval, channel, service))
    if service in ACTING and clean(approval.command) not in message.body:
        buttons.pop(APPROVE, None)
    if service == TELEGRAM:
        return buttons
    return {answer: _page(path) for answer, path in buttons.items()}


@transaction.atomic
def _note(message: Message, answer: DeliveryResult) -> None:
    """Record the result. The channel's row is locked first, as everywhere, to avoid deadlocks."""
    now = timezone.now()
    channel = Channel.objects.filter(pk=message.channel_id)
    if answer.ok:
        channel.update(last_sent_at=now, failures_in_a_row=0, last_error="")
        _claimed(message).update(state=Message.State.SENT, sent_at=now, error="")
        return
    channel.update(failures_in_a_row=F("failures_in_a_row") + 1, last_error=answer.error)
    wait = back_off(message.tries)
    if wait is None:
        _claimed(message).update(state=Message.State.FAILED, error=answer.error)
        return
    again = now + wait
    _claimed(message).update(due_at=again, error=answer.error)
    # Other messages of the channel would fail as well.
    waiting = Message.objects.filter(channel=message.channel_id, state=Message.State.WAITING)
    waiting.filter(due_at__lt=again).update(due_at=again)


def _claimed(message: Message) -> QuerySet[Message]:
    """Return the message if this sender still holds the claim."""
    return Message.objects.filter(pk=message.pk, state=Message.State.WAITING, tries=message.tries)


LONGEST_ADDRESS = 2_000
TEST_TITLE = "Claude Ops: a test"
TEST_BODY = "Notifications of Claude Ops arrive here. This is only a test."
NO_ADDRESS = "Give an address, like mailto://… or ntfy://…: docs/notifications.md has examples."
TOO_LONG = f"An address has at most {LONGEST_ADDRESS} characters."
ONE_LINE = "An address is one line, without spaces."


def objection_to(address: str) -> str:
    """Return an error for an address that is missing, too long or not one line."""
    if not address:
        return NO_ADDRESS
    if len(address) > LONGEST_ADDRESS:
        return TOO_LONG
    return "" if address.isprintable() and " " not in address else ONE_LINE


def set_address(channel: Channel, address: str, found: DeliveryResult | None = None) -> str:
    """Set the encrypted address, or return an error and change nothing. The caller saves.

    `found` is what `look_at` said before, for a caller that holds a lock now.
    """
    if objection := objection_to(address):
        return objection
    found = found or look_at(address)
    if not found.ok:
        return found.error
    channel.encrypted_address, channel.service = encrypt_address(address), found.service
    return ""


def send_test(channel: Channel) -> DeliveryResult:
    """Send a test message now and record its result."""
    try:
        event = {
            "id": f"msg_test_{secrets.token_hex(8)}",
            "type": TEST,
            "version": EVENT_VERSION,
            "timestamp": timezone.now().isoformat(),
            "severity": Incident.Severity.NOTICE.label,
            "title": TEST_TITLE,
            "text": TEST_BODY,
            "links": {"page": _page("/")},
        }
        answer = deliver(
            address_of(channel), title=TEST_TITLE, body=TEST_BODY, type="info", event=event
        )
    except EncryptedWithAnotherKey as error:
        answer = DeliveryResult(False, str(error))
    _note_test(channel, answer)
    return answer


@transaction.atomic
def _note_test(channel: Channel, answer: DeliveryResult) -> None:
    if not _lock(channel):
        return
    now = timezone.now()
    Message.objects.create(
        channel=channel,
        title=TEST_TITLE,
        body=TEST_BODY,
        severity=Incident.Severity.NOTICE,
        state=Message.State.SENT if answer.ok else Message.State.FAILED,
        tries=1,
        sent_at=now if answer.ok else None,
        error=answer.error,
    )
    row = Channel.objects.filter(pk=channel.pk)
    if answer.ok:
        row.update(last_sent_at=now, failures_in_a_row=0, last_error="")
    else:
        row.update(failures_in_a_row=F("failures_in_a_row") + 1, last_error=answer.error)


@transaction.atomic
def set_enabled(channel: Channel, *, enabled: bool) -> int:
    """Switch a channel, and return how many waiting messages were given up."""
    Channel.objects.filter(pk=channel.pk).update(enabled=enabled)
    channel.enabled = enabled
    return 0 if enabled else give_up_waiting(channel, SWITCHED_OFF)


@transaction.atomic
def remove(channel: Channel) -> None:
    """Delete a channel and its messages."""
    if _lock(channel):
        channel.delete()


def _lock(channel: Channel) -> bool:
    """Lock the row of a channel before its messages are changed; False if it was removed."""
    return bool(Channel.objects.select_for_update().filter(pk=channel.pk).values_list("pk"))
