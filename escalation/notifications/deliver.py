"""One message out of the house: `python -m escalation.word.deliver`, a process of its own.

It reads one JSON object from standard input and answers with one. Apprise lives here alone, without
Django, database or keys: whatever a service does to it, a process that hangs is ended from outside.
What it answers never holds a part of the address that is secret.
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

HIDDEN = "[masked: part of the address]"
SHORTEST_PART = 4
PARTS = re.compile(r"[/:@?&=,;#+\s]+")
HOST = re.compile(r"(?=.*\.)[A-Za-z0-9.-]+|localhost")
# The reason stands here, among the details that are nobody's business.
REASON = "Socket Exception"
UNKNOWN = "This is no address that Apprise understands: see docs/word.md for examples."


class Overheard(logging.Handler):
    """What Apprise says about a failure; it gives nothing back but yes or no."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if record.levelno >= logging.WARNING or line.startswith(REASON):
            self.lines.append(line)


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """Look at an address, and send to it if there is something to send."""
    overheard = _listen()
    address = asked["address"]
    service = apprise.Apprise.instantiate(address)
    if service is None:
        said = " ".join([UNKNOWN, *overheard.lines])
        return {"ok": False, "service": "", "said": without_secrets(said, address, "")}
    host = shown_host(service)
    found = {"ok": True, "said": "", "service": f"{service.service_name}{host and f' ({host})'}"}
    if "body" in asked:
        found["ok"] = _sent(service, asked)
        said = " ".join(overheard.lines) or ("" if found["ok"] else "It did not say why.")
        found["said"] = without_secrets(said, address, host)
    return found


def shown_host(service: apprise.NotifyBase) -> str:
    """Only what is the name of a machine: in many addresses a token or a topic stands there."""
    host = str(getattr(service, "host", "") or "")
    shown: str = service.url(privacy=True)  # type: ignore[no-untyped-call]
    is_token = "host" not in service.template_tokens
    return "" if is_token or host not in shown or not _is_machine(host) else host


def without_secrets(said: str, address: str, shown: str) -> str:
    """Without any part of the address but its service and the host that may be shown."""
    schema, colon, _rest = address.partition("://")
    parts = {form for part in PARTS.split(address) for form in (part, unquote(part))}
    for part in sorted(parts - {schema if colon else "", shown}, key=len, reverse=True):
        if len(part) >= SHORTEST_PART:
            said = said.replace(part, HIDDEN)
    return said


def _is_machine(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return HOST.fullmatch(host) is not None
    return True


def _listen() -> Overheard:
    overheard, logger = Overheard(), logging.getLogger("apprise")
    logger.addHandler(overheard)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    return overheard


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
