"""Asks Telegram for pressed buttons, by long polling in a thread of the worker.

No address of this installation has to be reachable from outside. A bot answers one program alone:
a lease in the database chooses one worker for it.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.db import IntegrityError, connection
from django.db.models import Q
from django.utils import timezone

from escalation.errors import OperationRefused
from escalation.notifications.services import (
    ServiceError,
    TelegramChat,
    call_telegram,
    telegram_chat,
)
from escalation.queue import installation_lock
from escalation.supervisor import approval_answers, approvals
from sessions_app.models import Approval, Channel, TelegramBot
from sessions_app.models.installation import shared_now
from sessions_app.redaction.encryption import EncryptedWithAnotherKey, address_of
from sessions_app.text import clean, one_line

logger = logging.getLogger(__name__)

LOOK_SECONDS = 3.0
POLL_SECONDS = 20
"""How long Telegram holds a question open."""
LONGER = 10.0
AT_ONCE = 10
BACK_OFF_SECONDS = 15.0
LONGEST_BACK_OFF = 300.0
ASK_FOR = timedelta(hours=1)
"""After its time is over, a late press is still told that it comes too late."""
LONGEST_ANSWER, LONGEST_TEXT = 200, 4_000
FORGED = "This button is not valid here. Nothing was answered."
NOT_RECORDED = "The answer could not be recorded. Press again, or answer on the page."

Chats = Mapping[int, tuple[Channel, TelegramChat]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Pressed:
    """A pressed button, as Telegram reports it."""

    query: str
    data: str
    person: int
    chat: int
    message: int
    text: str
    entities: Any


def read_press(update: Any) -> Pressed | None:
    """Return the press in an update, or None for anything else."""
    match update:
        case {
            "callback_query": {
                "id": str(query),
                "data": str(data),
                "from": {"id": int(person)},
                "message": {"message_id": int(message), "chat": {"id": int(chat)}, **rest},
            }
        }:
            text = rest.get("text")
            return Pressed(
                query=query,
                data=data,
                person=person,
                chat=chat,
                message=message,
                text=text if isinstance(text, str) else "",
                entities=rest.get("entities"),
            )
    return None


def bots() -> dict[int, dict[int, tuple[Channel, TelegramChat]]]:
    """Return the private chats of each bot, of channels that one person reads."""
    found: dict[int, dict[int, tuple[Channel, TelegramChat]]] = {}
    readable = Channel.objects.filter(enabled=True, owner__is_active=True)
    for channel in readable.filter(service__startswith="Telegram").order_by("pk"):
        try:
            chat = telegram_chat(address_of(channel))
        except EncryptedWithAnotherKey:
            continue
        if chat is not None:
            found.setdefault(chat.bot, {})[chat.chat] = (channel, chat)
    return found


def answers_may_come() -> bool:
    """Test for a request that waits or has ended lately. Otherwise Telegram is not asked."""
    lasts = max(settings.CLAUDEOPS_APPROVAL_EXPIRES, settings.CLAUDEOPS_COMMAND_APPROVAL_EXPIRES)
    since = timezone.now() - timedelta(seconds=lasts) - ASK_FOR
    return Approval.objects.filter(asked_at__gt=since, session__cycle__drill="").exists()


def lease(number: int, holder: str) -> TelegramBot | None:
    """Take or renew the lease of a bot; None while another worker has it."""
    now = shared_now()
    free = Q(holder=holder) | Q(until__lt=now) | Q(until__gt=now + 10 * TelegramBot.LENGTH)
    row = TelegramBot.objects.filter(number=number)
    if not row.exists():
        try:
            with installation_lock():
                TelegramBot.objects.create(number=number, until=now - TelegramBot.LENGTH)
        except IntegrityError:
            pass  # another worker was faster
    taken = row.filter(free).update(holder=holder, until=now + TelegramBot.LENGTH)
    return row.first() if taken else None


def release(holder: str) -> None:
    """Let another worker take over at once."""
    TelegramBot.objects.filter(holder=holder).update(until=shared_now())


def poll(number: int, chats: Chats, holder: str, *, seconds: int = POLL_SECONDS) -> float:
    """Ask once for pressed buttons and answer them. Return the seconds to wait before the next
    time, or a negative number while another worker asks."""
    bot = lease(number, holder)
    if bot is None:
        return -1.0
    chat = next(iter(chats.values()))[1]
    question = {
        "offset": bot.next_update,
        "timeout": seconds,
        "limit": AT_ONCE,
        "allowed_updates": ["callback_query"],
    }
    try:
        updates = call_telegram(chat, "getUpdates", question, seconds=seconds + LONGER)
    except ServiceError as error:
        wait = min(max(error.retry_after, BACK_OFF_SECONDS), LONGEST_BACK_OFF)
        _write(
            number, holder, error=one_line(clean(str(error)), 500), lasts=timedelta(seconds=wait)
        )
        return wait
    for update in updates if isinstance(updates, list) else []:
        _take(update, chats, chat)
        if isinstance(update, dict) and isinstance(update.get("update_id"), int):
            _write(number, holder, next_update=update["update_id"] + 1)
    _write(number, holder, error="")
    return 0.0


def _write(number: int, holder: str, lasts: timedelta = timedelta(0), **facts: Any) -> None:
    """Store facts of a bot if this worker still has its lease, and renew the lease."""
    until = shared_now() + TelegramBot.LENGTH + lasts
    TelegramBot.objects.filter(number=number, holder=holder).update(until=until, **facts)


def _take(update: Any, chats: Chats, bot: TelegramChat) -> None:
    """Answer one update. Whatever is not a valid press of the only reader changes nothing."""
    press = read_press(update)
    if press is None:
        return
    text, is_known = _decided(press, chats)
    _tell(bot, "answerCallbackQuery", {"callback_query_id": press.query, **_alert(text)})
    if is_known:
        edited = f"{press.text}\n\n{text}"[:LONGEST_TEXT]
        entities = {"entities": press.entities} if isinstance(press.entities, list) else {}
        place = {"chat_id": press.chat, "message_id": press.message}
        _tell(bot, "editMessageText", {**place, "text": edited, **entities})


def _decided(press: Pressed, chats: Chats) -> tuple[str, bool]:
    """Record the answer. Return what to tell, and whether the button has had its effect."""
    known = chats.get(press.chat)
    if known is None or press.person != press.chat:
        return FORGED, False
    try:
        valid = approvals.pressed(press.data, Approval.Way.TELEGRAM)
        if valid is None or valid.channel != known[0].pk:
            return FORGED, False
        try:
            said = approval_answers.press(valid)
        except OperationRefused as refused:
            valid.approval.refresh_from_db()
            return str(refused), not valid.approval.is_waiting
        return f"{said} {valid.approval.answer_text}", True
    except Exception:
        logger.exception("Could not record an answer from Telegram")
        connection.close()
        return NOT_RECORDED, False


def _alert(text: str) -> dict[str, Any]:
    return {"text": one_line(text, LONGEST_ANSWER), "show_alert": True}


def _tell(bot: TelegramChat, method: str, params: Mapping[str, Any]) -> None:
    """Tell the person; the answer is recorded already, whatever Telegram says."""
    try:
        call_telegram(bot, method, params)
    except ServiceError as error:
        logger.warning("Telegram did not take %s: %s", method, error)


class TelegramThread:
    """Asks for the buttons of all bots, each in a thread of its own."""

    def __init__(self) -> None:
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._asking: dict[int, threading.Thread] = {}

    def work_until(self, stop: threading.Event) -> None:
        while not stop.wait(LOOK_SECONDS):
            self.look(stop)
        try:
            release(self.holder)
        except Exception:
            logger.exception("Could not release the leases of Telegram bots")
        connection.close()

    def look(self, stop: threading.Event) -> None:
        """Begin to ask where nobody asks. An error is logged, and tried again later."""
        try:
            if not answers_may_come():
                return
            for number, chats in bots().items():
                running = self._asking.get(number)
                if running is None or not running.is_alive():
                    job = partial(self._ask, number, chats, stop)
                    self._asking[number] = threading.Thread(target=job, daemon=True)
                    self._asking[number].start()
        except Exception:
            logger.exception("Could not ask Telegram; retrying")
            connection.close()

    def _ask(self, number: int, chats: Chats, stop: threading.Event) -> None:
        """Ask once. The channels may have changed before the next time."""
        try:
            wait = poll(number, chats, self.holder)
            stop.wait(LOOK_SECONDS if wait < 0 else wait)
        except Exception:
            logger.exception("Could not ask Telegram; retrying")
        finally:
            connection.close()
