"""Validates the target and the options of a probe, by its kind. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from sessions_app.models import Probe

Kind = Probe.Kind
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
HOST = re.compile(r"[A-Za-z0-9_.:-]{1,253}")
CONTAINER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,200}")
UNIT = re.compile(r"[A-Za-z0-9@_.:\\-]{1,250}")
STATUSES = re.compile(r"[1-5]\d\d(-[1-5]\d\d)?(,[1-5]\d\d(-[1-5]\d\d)?)*")
HEADER = re.compile(r"[A-Za-z0-9-]+(:.*)?")
DEFAULT_STATUSES = "200-399"
DEFAULT_DISK_PERCENT = 90


class BadTarget(ValueError):
    """The target or an option of a probe cannot be used; says what to write instead."""


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int


def address_in(target: str) -> Address:
    """Reads HOST:PORT or [IPv6]:PORT. Raises BadTarget."""
    host, colon, port = target.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isascii() or not port.isdigit() or not HOST.fullmatch(host):
        raise BadTarget(f"{target!r} is not HOST:PORT: write it like 127.0.0.1:5432.")
    if not 0 < int(port) < 65536:
        raise BadTarget(f"{port} is not a port: use 1 to 65535.")
    return Address(host, int(port))


def _url(target: str) -> None:
    try:
        parts = urlsplit(target)
        port = parts.port
    except ValueError as error:
        raise BadTarget(f"{target!r} is not an address: {error}.") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise BadTarget(f"{target!r} is not an address: write it like https://shop.example/health.")
    if not HOST.fullmatch(parts.hostname):
        raise BadTarget(f"The host of {target!r} is not a name or a number.")
    if parts.username or parts.password:
        raise BadTarget("Leave the password out of the address: it would be shown on pages.")
    if re.search(r"[^\x21-\x7e]", target):
        raise BadTarget(f"Write {target!r} without blanks and with % for other letters.")


def _matching(pattern: re.Pattern[str], example: str) -> Callable[[str], None]:
    def check(target: str) -> None:
        if not pattern.fullmatch(target):
            raise BadTarget(f"{target!r} cannot be used: write it like {example}.")

    return check


def _path(target: str) -> None:
    if not PurePosixPath(target).is_absolute():
        raise BadTarget(f"{target!r} must be absolute, like /srv/backup/latest.tar.")


def _command(target: str) -> None:
    if not target.strip():
        raise BadTarget("The command is missing.")


def _nothing(target: str) -> None:
    if target:
        raise BadTarget("A heartbeat has no target: its address is made for it.")


TARGETS: Mapping[str, Callable[[str], object]] = {
    Kind.HTTP: _url,
    Kind.TCP: address_in,
    Kind.DNS: _matching(HOST, "shop.example"),
    Kind.COMMAND: _command,
    Kind.FILE: _path,
    Kind.DISK: _path,
    Kind.CONTAINER: _matching(CONTAINER, "shop-web-1"),
    Kind.UNIT: _matching(UNIT, "nginx.service"),
    Kind.HEARTBEAT: _nothing,
}


@dataclass(frozen=True, slots=True)
class Option:
    kinds: tuple[str, ...]
    words: str
    pattern: re.Pattern[str] | None = None
    is_number: bool = False


OPTIONS: Mapping[str, Option] = {
    "status": Option((Kind.HTTP,), "expected status, like 200 or 200-299,401", STATUSES),
    "text": Option((Kind.HTTP,), "text that the answer must contain"),
    "header": Option((Kind.HTTP,), "header that the answer must have, like X-App: shop", HEADER),
    "latency_ms": Option(
        (Kind.HTTP, Kind.TCP, Kind.DNS), "longest latency in milliseconds", is_number=True
    ),
    "certificate_days": Option(
        (Kind.HTTP,), "days that the certificate must still be valid", is_number=True
    ),
    "insecure": Option(
        (Kind.HTTP,), "yes, to accept a certificate that nobody signed", re.compile("yes")
    ),
    "address": Option((Kind.DNS,), "address that the name must have", HOST),
    "max_age": Option((Kind.FILE,), "greatest age of the file in seconds", is_number=True),
    "min_size": Option((Kind.FILE,), "least size of the file in bytes", is_number=True),
    "max_size": Option((Kind.FILE,), "greatest size of the file in bytes", is_number=True),
    "max_percent": Option((Kind.DISK,), "greatest share that is used", is_number=True),
}


def checked_options(kind: str, options: Mapping[str, object]) -> dict[str, str | int]:
    """Returns the options in the types of their values. Raises BadTarget."""
    found: dict[str, str | int] = {}
    for name, value in options.items():
        option = OPTIONS.get(name)
        if option is None or kind not in option.kinds:
            known = ", ".join(name for name, one in OPTIONS.items() if kind in one.kinds)
            raise BadTarget(
                f"A probe of the kind {kind} has no option {name}; it has: {known or '-'}."
            )
        text = str(value).strip()
        if CONTROL.search(text) or not text or len(text) > 500:
            raise BadTarget(f"The option {name} must be one line of text ({option.words}).")
        if option.is_number and not re.fullmatch(r"[0-9]{1,15}", text):
            raise BadTarget(f"The option {name} must be a number ({option.words}), not {text!r}.")
        if option.pattern is not None and not option.pattern.fullmatch(text):
            raise BadTarget(f"{text!r} cannot be used for {name}: {option.words}.")
        found[name] = int(text) if option.is_number else text
    return found


def check_target(kind: str, target: str) -> None:
    """Raises BadTarget if a probe of this kind cannot use the target."""
    if kind not in TARGETS:
        raise BadTarget(f"There is no kind {kind!r}; choose one of {', '.join(Kind.values)}.")
    if CONTROL.search(target):
        raise BadTarget("The target must be one line, without control characters.")
    TARGETS[kind](target)


def expected_statuses(text: str) -> list[range]:
    """Reads `200-299,401`."""
    parts = (part.partition("-") for part in text.split(","))
    return [range(int(first), int(last or first) + 1) for first, _dash, last in parts]
