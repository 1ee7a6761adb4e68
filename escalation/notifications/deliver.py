"""Sends one message by Apprise: `python -m escalation.notifications.deliver`.

Reads a JSON object from standard input and prints one. The process has no Django, database or keys,
and its parent ends it when it hangs. The result never holds a secret part of the address.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import re
import sys
from typing import Any
from urllib.parse import unquote

import apprise

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
    captured = _capture_log()
    address = asked["address"]
    service = apprise.Apprise.instantiate(address)
    if service is None:
        error = " ".join([UNKNOWN, *captured.lines])
        return {"ok": False, "service": "", "error": without_secrets(error, address, "")}
    host = shown_host(service)
    found = {"ok": True, "error": "", "service": f"{service.service_name}{host and f' ({host})'}"}
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


if __name__ == "__main__":
    print(json.dumps(answer(json.load(sys.stdin))))
