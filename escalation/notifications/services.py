"""Messages with buttons, in the formats of ntfy, Telegram and Slack, and calls of their APIs.

`deliver` imports this in a process without Django.
"""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any
from urllib.parse import parse_qs

NTFY, TELEGRAM, SLACK = "ntfy", "telegram", "slack"
APPROVE, REJECT = "approve", "reject"
LABELS = {APPROVE: "Approve", REJECT: "Reject"}
ACTING = (NTFY, TELEGRAM)
"""Services whose buttons answer at once; those of the others open a page that asks again."""
STYLES = {APPROVE: "primary", REJECT: "danger"}

_API = r"(?:\?(?P<query>.*))?"
_NTFY = re.compile(r"ntfys?://|https://ntfy\.sh/")
# One private chat: its number is that of the person. A group has a negative number.
_TELEGRAM = re.compile(
    rf"tgram://(?:bot)?(?P<token>\d+:[\w-]+)/(?P<chat>[1-9]\d*)/?{_API}", re.ASCII
)
_SLACK = re.compile(
    r"(?:slack://(?:[\w.-]+@)?|https://hooks\.slack\.com/services/)"
    rf"(?P<path>[A-Z0-9]+/[A-Z0-9]+/[A-Za-z0-9]+)/?{_API}",
    re.ASCII,
)
TELEGRAM_API = "https://api.telegram.org"
SLACK_API = "https://hooks.slack.com"
SECONDS = 15.0
MOST_BYTES = 1_000_000
NTFY_BYTES = 3_900
"""Above 4,096 bytes, ntfy makes a text an attachment."""
SLACK_TITLE, SLACK_TEXT, TELEGRAM_TEXT = 150, 2_900, 4_000


class ServiceError(Exception):
    """Raised if a service did not take a call. The text holds no secret."""

    def __init__(self, text: str, *, retry_after: float = 0.0) -> None:
        super().__init__(text)
        self.retry_after = retry_after


@dataclass(frozen=True, kw_only=True, slots=True)
class ButtonMessage:
    title: str
    text: str
    link: str
    """Page that shows it."""
    type: str = "info"
    buttons: Mapping[str, str] = field(default_factory=dict)
    """Address, or at Telegram the data, of each answer."""


@dataclass(frozen=True, slots=True)
class TelegramChat:
    """Private chat of a bot."""

    token: str
    chat: int
    api: str = TELEGRAM_API

    @property
    def bot(self) -> int:
        """Number of the bot: the part of its token that is no secret."""
        return int(self.token.partition(":")[0])


def service_of(address: str) -> str:
    """Return the service if buttons can be sent to an address, otherwise an empty string."""
    if _NTFY.match(address):
        return NTFY
    if telegram_chat(address):
        return TELEGRAM
    return SLACK if _SLACK.fullmatch(address) else ""


def telegram_chat(address: str) -> TelegramChat | None:
    found = _TELEGRAM.fullmatch(address)
    if found is None:
        return None
    api = _api_of(found["query"], TELEGRAM_API)
    return TelegramChat(found["token"], int(found["chat"]), api)


def slack_hook(address: str) -> str:
    """Return the address that a message is posted to, or an empty string."""
    found = _SLACK.fullmatch(address)
    if found is None:
        return ""
    return f"{_api_of(found['query'], SLACK_API)}/services/{found['path']}"


def _api_of(query: str | None, usual: str) -> str:
    """Return the server of the API: `?api=` names another, such as an own Bot API server."""
    given = parse_qs(query or "").get("api", [""])[0].rstrip("/")
    return given if given.startswith(("https://", "http://")) else usual


# Formats


NTFY_PRIORITIES = {"failure": 5, "warning": 4}
NTFY_TAGS = {"failure": "rotating_light", "warning": "warning", "success": "white_check_mark"}


def ntfy_body(message: ButtonMessage, topic: str) -> dict[str, Any]:
    """Return the JSON that publishes a message. A text that had to be cut cannot be approved."""
    text = message.text.encode()[:NTFY_BYTES].decode(errors="ignore")
    buttons = dict(message.buttons)
    if text != message.text:
        buttons.pop(APPROVE, None)
    acts: list[dict[str, Any]] = [
        {"action": "http", "label": LABELS[answer], "url": url, "method": "POST", "clear": True}
        for answer, url in buttons.items()
    ]
    tag = NTFY_TAGS.get(message.type)
    return {
        "topic": topic,
        "title": message.title,
        "message": text,
        "priority": NTFY_PRIORITIES.get(message.type, 3),
        "tags": [tag] if tag else [],
        "click": message.link,
        "actions": [*acts, {"action": "view", "label": "Open", "url": message.link}],
    }


def telegram_body(message: ButtonMessage, chat: int) -> dict[str, Any]:
    """Return the parameters of sendMessage. The link stays text: Telegram refuses messages with
    buttons that lead to a local address."""
    text = message.text[:TELEGRAM_TEXT]
    body: dict[str, Any] = {
        "chat_id": chat,
        "text": f"<b>{escape(message.title)}</b>\n\n{escape(text)}\n\n{escape(message.link)}",
        "parse_mode": "HTML",
        "link_preview_options": {"is_disabled": True},
    }
    row = [
        {"text": LABELS[answer], "callback_data": data} for answer, data in message.buttons.items()
    ]
    return {**body, "reply_markup": {"inline_keyboard": [row]}} if row else body


def slack_body(message: ButtonMessage) -> dict[str, Any]:
    """Return the JSON of an incoming webhook. Its buttons open the page that asks again."""
    text = _slack_text(message.text)[:SLACK_TEXT]
    buttons = [
        _slack_button(f"{LABELS[answer]}…", url, STYLES[answer])
        for answer, url in message.buttons.items()
    ]
    blocks: list[dict[str, Any]] = [
        {
            "type": "header",
            "text": {"type": "plain_text", "text": message.title[:SLACK_TITLE], "emoji": False},
        },
        {"type": "section", "text": {"type": "mrkdwn", "text": text or "…"}},
        {"type": "actions", "elements": [*buttons, _slack_button("Open", message.link)]},
    ]
    return {"text": _slack_text(message.title), "blocks": blocks, "unfurl_links": False}


def _slack_text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _slack_button(label: str, url: str, style: str = "") -> dict[str, Any]:
    button = {"type": "button", "text": {"type": "plain_text", "text": label}, "url": url}
    return {**button, "style": style} if style else button


# Calls


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_arguments: Any) -> None:
        """Follow none: the body of a message belongs to the address that was given."""


def post(
    url: str,
    body: Mapping[str, Any],
    *,
    headers: Iterable[tuple[str, str]] = (),
    seconds: float = SECONDS,
) -> tuple[int, bytes]:
    """Post JSON, and return status and body. Raise ServiceError without an answer."""
    request = urllib.request.Request(  # noqa: S310 (http and https only: `_api_of`, `deliver`)
        url,
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "User-Agent": "claudeops", **dict(headers)},
        method="POST",
    )
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=seconds) as answer:
            return answer.status, answer.read(MOST_BYTES)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(MOST_BYTES)
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", "") or error or type(error).__name__
        raise ServiceError(f"No answer: {reason}") from error


def call_telegram(
    chat: TelegramChat, method: str, params: Mapping[str, Any], *, seconds: float = SECONDS
) -> Any:
    """Call a method of the Bot API, and return its result. Raise ServiceError."""
    status, raw = post(f"{chat.api}/bot{chat.token}/{method}", params, seconds=seconds)
    try:
        answer = json.loads(raw)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise ServiceError(f"Telegram answered with {status}.")
    if answer.get("ok") is not True:
        told = answer.get("parameters")
        wait = told.get("retry_after") if isinstance(told, dict) else None
        raise ServiceError(
            f"Telegram answered with {status}: {answer.get('description', 'no reason')}",
            retry_after=float(wait) if isinstance(wait, int | float) else 0.0,
        )
    return answer.get("result")
