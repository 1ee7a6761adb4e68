"""Sends one message by Apprise or as a webhook: `python -m escalation.notifications.deliver`.

Reads a JSON object from standard input and prints one. The process has no Django, database or keys,
and its parent ends it when it hangs. The result never holds a secret part of the address.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import http.client
import ipaddress
import json
import logging
import re
import ssl
import sys
import time
from typing import Any
from urllib.parse import SplitResult, parse_qs, parse_qsl, unquote, urlencode, urlsplit

import apprise

from escalation.notifications import services
from escalation.notifications.services import ButtonMessage, ServiceError

HIDDEN = "[redacted: part of the address]"
SHORTEST_PART = 4
PARTS = re.compile(r"[/:@?&=,;#+\s]+")
HOST = re.compile(r"(?=.*\.)[A-Za-z0-9.-]+|localhost")
# Debug lines of Apprise that hold the reason of a failure.
REASON = "Socket Exception"
UNKNOWN = "Apprise does not support this address: see docs/notifications.md for examples."


class CapturedLog(logging.Handler):
    """Collects what Apprise logs about a failure; its functions only return true or false."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if record.levelno >= logging.WARNING or line.startswith(REASON):
            self.lines.append(line)


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """Validate an address, and send a message to it if `asked` has one."""
    address = asked["address"]
    if address.partition("://")[0] in WEBHOOKS:
        return _webhook(asked)
    captured = _capture_log()
    service = apprise.Apprise.instantiate(address)
    if service is None:
        error = " ".join([UNKNOWN, *captured.lines])
        return {"ok": False, "service": "", "error": without_secrets(error, address, "")}
    host = shown_host(service)
    found = {"ok": True, "error": "", "service": f"{service.service_name}{host and f' ({host})'}"}
    if "body" in asked and _has_own_format(asked):
        error = _sent_with_buttons(service, asked)
        return found | {"ok": not error, "error": without_secrets(error, address, host)}
    if "body" in asked:
        found["ok"] = _sent(service, asked)
        error = " ".join(captured.lines) or ("" if found["ok"] else "Apprise gave no reason.")
        found["error"] = without_secrets(error, address, host)
    return found


def shown_host(service: apprise.NotifyBase) -> str:
    """Return the host if it names a machine: many services have a token or a topic in its place."""
    host = str(getattr(service, "host", "") or "")
    shown: str = service.url(privacy=True)  # type: ignore[no-untyped-call]
    is_token = "host" not in service.template_tokens
    return "" if is_token or host not in shown or not _is_machine(host) else host


def without_secrets(error: str, address: str, shown: str) -> str:
    """Redact every part of the address except the service and the host that may be shown."""
    schema, colon, _rest = address.partition("://")
    parts = {form for part in PARTS.split(address) for form in (part, unquote(part))}
    for part in sorted(parts - {schema if colon else "", shown}, key=len, reverse=True):
        if len(part) >= SHORTEST_PART:
            error = error.replace(part, HIDDEN)
    return error


def _is_machine(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return HOST.fullmatch(host) is not None
    return True


def _capture_log() -> CapturedLog:
    captured, logger = CapturedLog(), logging.getLogger("apprise")
    logger.addHandler(captured)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    return captured


def _sent(service: apprise.NotifyBase, asked: dict[str, Any]) -> bool:
    if asked.get("link"):
        service.click = asked["link"]  # type: ignore[attr-defined]  # ntfy opens it
    messenger = apprise.Apprise()
    messenger.add(service)
    return bool(
        messenger.notify(
            body=asked["body"],
            title=asked["title"],
            notify_type=asked["type"],
            body_format=apprise.NotifyFormat.TEXT,
        )
    )


def _has_own_format(asked: dict[str, Any]) -> bool:
    """Test for a message with buttons, or for Telegram or Slack at a server of one's own."""
    name = services.service_of(asked["address"])
    has_server = name in (services.TELEGRAM, services.SLACK) and "api=" in asked["address"]
    return bool(name) and bool(asked.get("buttons") or has_server)


def _sent_with_buttons(service: Any, asked: dict[str, Any]) -> str:
    """Send a message in the format of its service, and return why it failed, or nothing."""
    address = asked["address"]
    message = ButtonMessage(
        title=asked["title"],
        text=asked.get("text") or asked["body"],
        link=asked.get("link", ""),
        type=asked["type"],
        buttons=asked.get("buttons") or {},
    )
    try:
        if chat := services.telegram_chat(address):
            services.call_telegram(chat, "sendMessage", services.telegram_body(message, chat.chat))
            return ""
        if hook := services.slack_hook(address):
            return _refused(services.post(hook, services.slack_body(message)))
        url, headers = _ntfy_server(service)
        errors = (
            _refused(services.post(url, services.ntfy_body(message, topic), headers=headers))
            for topic in service.topics
        )
        return " ".join(filter(None, errors))
    except ServiceError as error:
        return str(error)


def _refused(answer: tuple[int, bytes]) -> str:
    status, body = answer
    reason = body.decode(errors="replace")[:200].strip()
    return "" if 200 <= status < 300 else f"The service answered with {status}. {reason}"


def _ntfy_server(service: Any) -> tuple[str, list[tuple[str, str]]]:
    """Return address and headers of the server that Apprise has read from an address of ntfy."""
    if service.mode == "cloud":
        url = service.cloud_notify_url
    else:
        port = f":{service.port}" if service.port else ""
        url = f"http{'s' if service.secure else ''}://{service.host}{port}"
    if service.auth == "token" and service.token:
        return url, [("Authorization", f"Bearer {service.token}")]
    if service.user:
        login = base64.b64encode(f"{service.user}:{service.password or ''}".encode()).decode()
        return url, [("Authorization", f"Basic {login}")]
    return url, []


# Webhooks, signed as Standard Webhooks asks for: base64 of an HMAC-SHA256 over `id.time.body`.

WEBHOOKS = {"webhook": False, "webhooks": True}
"""Schemes of addresses, and whether they use TLS."""
SECRET_PREFIX = "whsec_"  # noqa: S105 (marks a secret)
SHORTEST_SECRET = 24
"""In bytes, as Standard Webhooks requires."""
WEBHOOK_SECONDS = 15.0
UNSIGNED = (
    "A webhook needs a secret of at least 24 bytes in base64, which signs what is sent: "
    "webhooks://HOST/PATH?secret=whsec_…"
)
NO_HOST = "A webhook needs a host: webhooks://HOST/PATH?secret=whsec_…"


def _webhook(asked: dict[str, Any]) -> dict[str, Any]:
    address = asked["address"]
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return {"ok": False, "service": "", "error": NO_HOST}
    secret = _secret_in(parts)
    if not host or secret is None:
        return {"ok": False, "service": "", "error": UNSIGNED if host else NO_HOST}
    found = {"ok": True, "error": "", "service": f"webhook ({host})"}
    if "event" in asked:
        error = _posted(parts, host, port, secret, asked["event"])
        found |= {"ok": not error, "error": without_secrets(error, address, host)}
    return found


def _secret_in(parts: SplitResult) -> bytes | None:
    given = parse_qs(parts.query).get("secret", [""])[0]
    # A plus sign of base64 is a space in a query.
    encoded = given.removeprefix(SECRET_PREFIX).replace(" ", "+")
    try:
        secret = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (ValueError, binascii.Error):
        return None
    return secret if len(secret) >= SHORTEST_SECRET else None


def _target(parts: SplitResult) -> str:
    """Return the path with its query, without the secret, which is never sent."""
    others = [pair for pair in parse_qsl(parts.query, True) if pair[0] != "secret"]
    return (parts.path or "/") + (f"?{urlencode(others)}" if others else "")


def signature(secret: bytes, number: str, at: int, body: bytes) -> str:
    """Return the header `webhook-signature` of Standard Webhooks, version 1."""
    signed = f"{number}.{at}.".encode() + body
    return f"v1,{base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()}"


def _posted(
    parts: SplitResult, host: str, port: int | None, secret: bytes, event: dict[str, Any]
) -> str:
    """Post an event, and return why it failed, or nothing. Redirects are not followed."""
    body, at = json.dumps(event).encode(), int(time.time())
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "claudeops",
        "webhook-id": event["id"],
        "webhook-timestamp": str(at),
        "webhook-signature": signature(secret, event["id"], at, body),
    }
    if WEBHOOKS[parts.scheme]:
        context = ssl.create_default_context()
        line: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, port, timeout=WEBHOOK_SECONDS, context=context
        )
    else:
        line = http.client.HTTPConnection(host, port, timeout=WEBHOOK_SECONDS)
    try:
        line.request("POST", _target(parts), body=body, headers=headers)
        status = line.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"The webhook could not be posted: {error or type(error).__name__}"
    finally:
        line.close()
    return "" if 200 <= status < 300 else f"The webhook was answered with {status}."


if __name__ == "__main__":
    print(json.dumps(answer(json.load(sys.stdin))))
