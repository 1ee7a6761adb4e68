"""A request to a Docker engine in its plain form: what it asks for, and of whom. Pure.

What two readers could understand differently is not read. The engine reads names in JSON without
regard to case, so they are looked up that way here.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

READERS = ("GET", "HEAD")
SAFE_ACTS = ("start", "stop", "restart", "kill")
VERSION = re.compile(r"v[0-9]+(?:\.[0-9]+)*")
# In a list of containers, not a container's name.
NO_CONTAINERS = {("GET", "json"), ("HEAD", "json"), ("POST", "create"), ("POST", "prune")}
# What a table of all containers asks of each; everything else may show keys or files.
READABLE_OF_OURS = ("stats",)
JOINED = "container:"
HOST_MODES = ("PidMode", "NetworkMode", "IpcMode", "UsernsMode", "UTSMode", "CgroupnsMode")


class NotClear(ValueError):
    """A request that two readers could understand differently."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A request in its plain form."""

    method: str
    version: str
    parts: tuple[str, ...]
    """The path's segments, decoded, without the version."""
    query: str
    body: Any = None
    """The JSON, where `body_kind` says that it is wanted."""

    @property
    def target(self) -> str:
        path = "".join(f"/{quote(part, safe=':@!$&()*+,;=~')}" for part in self.parts) or "/"
        return f"{self.version}{path}{'?' if self.query else ''}{self.query}"


def read_target(method: str, target: str) -> Asked:
    """The plain form, or NotClear."""
    if not method.isalpha() or not method.isupper():
        raise NotClear("the method is none")
    path, _mark, query = target.partition("?")
    readable = target.isascii() and target.isprintable() and not {" ", "#"} & set(target)
    if not readable or not path.startswith("/"):
        raise NotClear("the address cannot be read")
    decoded = unquote(path, errors="replace")
    if {"%", "\\"} & set(decoded) or not decoded.isprintable() or not decoded.isascii():
        raise NotClear("the address is encoded in a way that engines read differently")
    parts = tuple(part for part in decoded.split("/") if part)
    if any(part in (".", "..") for part in parts):
        raise NotClear("the address leads through other addresses")
    # Slashes first: an engine takes `//v1.47/…` for `/v1.47/…`, whatever we take it for.
    version, parts = (parts[:1], parts[1:]) if _begins_with_version(parts) else ((), parts)
    if _begins_with_version(parts):
        raise NotClear("the address names two versions")
    shown = "".join(f"/{part}" for part in version)
    return Asked(method=method, version=shown, parts=parts, query=query)


def _begins_with_version(parts: tuple[str, ...]) -> bool:
    return bool(parts) and VERSION.fullmatch(parts[0]) is not None


def is_safe_act(asked: Asked) -> bool:
    return (
        asked.method == "POST"
        and len(asked.parts) == 3
        and asked.parts[0] == "containers"
        and asked.parts[2] in SAFE_ACTS
    )


def body_kind(asked: Asked) -> str:
    """What the body describes, where it is read before the decision; empty where it is not."""
    match (asked.method, *asked.parts):
        case ("POST", "containers", "create"):
            return "container"
        case ("POST", "containers", _, "update"):
            return "settings"
        case ("POST", "containers", _, "exec"):
            return "exec"
        case ("POST", "networks", _, "connect" | "disconnect"):
            return "network"
        case ("POST", "services", "create") | ("POST", "services", _, "update"):
            return "service"
        case _:
            # Engines of old took a whole container's settings with its start.
            return "act" if is_safe_act(asked) else ""


def is_hijacked(asked: Asked) -> bool:
    """Whether the connection becomes a container's terminal, both ways."""
    match (asked.method, *asked.parts):
        case ("POST", "containers", _, "attach") | ("POST", "exec", _, "start"):
            return True
        case _:
            return False


def containers_in(asked: Asked) -> list[str]:
    """The containers that a request is about, or would join, as they are called in it."""
    found: list[Any] = []
    match asked.parts:
        case ("containers", name) if (asked.method, name) not in NO_CONTAINERS:
            found.append(name)
        case ("containers", name, what, *_rest):
            looks = asked.method in READERS and what in READABLE_OF_OURS
            found += [] if looks else [name]
        case ("commit",):
            found += [value for key, value in raw_pairs_of(asked.query) if key == "container"]
        case ("networks", _, _):
            found.append(value_of(asked.body, "Container"))
        case ("build",):
            found += [_joined(value) for key, value in raw_pairs_of(asked.query)]
    found += [_joined(value_of(value_of(asked.body, "HostConfig"), name)) for name in HOST_MODES]
    return [str(name) for name in found if name]


def _joined(mode: Any) -> str:
    word = str(mode or "")
    return word[len(JOINED) :] if word.casefold().startswith(JOINED) else ""


def sources_in(asked: Asked) -> list[str]:
    host = value_of(asked.body, "HostConfig")
    task = value_of(value_of(asked.body, "TaskTemplate"), "ContainerSpec")
    mounts = [*items_of(value_of(host, "Mounts")), *items_of(value_of(task, "Mounts"))]
    binds = [bind.partition(":")[0] for bind in texts_of(value_of(host, "Binds"))]
    named = [*binds, *(str(value_of(mount, "Source") or "") for mount in mounts)]
    return [name for name in named if name]


def read_json(content: bytes) -> Any:
    """As every reader would understand it, or NotClear."""
    try:
        return json.loads(content, object_pairs_hook=_unambiguous) if content.strip() else {}
    except (ValueError, RecursionError):
        raise NotClear("the body is no JSON that can be read in one way only") from None


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    named = dict(pairs)
    if len(named) != len(pairs):
        raise ValueError("a name stands twice")
    return named


def value_of(holder: Any, name: str) -> Any:
    """By name, in whatever case; two spellings of one name are not clear."""
    if not isinstance(holder, dict):
        return None
    found = [value for key, value in holder.items() if key.casefold() == name.casefold()]
    if len(found) > 1:
        raise NotClear(f"{name} stands twice")
    return found[0] if found else None


def items_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def texts_of(value: Any) -> list[str]:
    return [str(item) for item in items_of(value)]


def pairs_of(query: str) -> list[tuple[str, str]]:
    return [(name, value.strip().casefold()) for name, value in raw_pairs_of(query)]


def raw_pairs_of(query: str) -> list[tuple[str, str]]:
    return parse_qsl(query.replace(";", "&"), keep_blank_values=True)
