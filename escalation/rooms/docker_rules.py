"""What a tier may ask of a Docker engine: pure, one request in, an objection or nothing out.

What is forwarded is what was judged: the path in its plain form, and a body that was inspected as
it was read here. The engine reads names in JSON without regard to case, so the rules do too.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

LOOK, SAFE, FULL = 1, 2, 3
READERS = ("GET", "HEAD")
SAFE_ACTS = ("start", "stop", "restart", "kill")
# Whoever reads these may join the cluster or unlock it, read a secret's neighbours, or pass by us.
READABLE = {
    *("_ping", "version", "info", "events", "system", "containers", "images", "networks"),
    *("volumes", "distribution", "exec", "nodes", "services", "tasks", "plugins"),
}
CHANGEABLE = {*READABLE, "auth", "build", "commit"} - {"nodes", "plugins", "system"}
READABLE_AT_FULL = READABLE | {"secrets", "configs"}
VERSION = re.compile(r"v[0-9]+(?:\.[0-9]+)*")
FALSE = ("", "0", "no", "false", "none")

# A host's directory that is more than its share, as a whole …
NOT_WHOLE = ("/", "/home", "/mnt", "/media", "/opt", "/srv", "/var", "/var/lib", "/tmp")  # noqa: S108
# … and those of which no part is a container's business.
NOT_EVEN_PARTLY = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/root", "/run"),
    *("/sbin", "/sys", "/usr", "/var/lib/containerd", "/var/lib/docker", "/var/run"),
    *("/var/spool/cron",),
)
HARMLESS = ("/etc/localtime", "/etc/timezone", "/etc/ssl/certs", "/usr/share/zoneinfo")
# In a list of containers, not a container's name.
NO_CONTAINERS = {("GET", "json"), ("HEAD", "json"), ("POST", "create"), ("POST", "prune")}
# What a table of all containers asks of each; everything else may show keys or files.
READABLE_OF_OURS = ("stats",)
JOINED = "container:"
HOST_MODES = ("PidMode", "NetworkMode", "IpcMode", "UsernsMode", "UTSMode", "CgroupnsMode")
NOT_GIVEN = {
    "CapAdd": "capabilities",
    "Annotations": "words for its runtime",
    "Devices": "devices of the host",
    "DeviceRequests": "devices of the host",
    "DeviceCgroupRules": "devices of the host",
    "CgroupParent": "a control group of its own choice",
    "MaskedPaths": "paths of the kernel",
    "ReadonlyPaths": "paths of the kernel",
    "Runtime": "another runtime",
    "VolumesFrom": "what another container was given",
}


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    level: int
    hidden: tuple[str, ...] = ()
    """Directories of the supervisor's own: no container gets them."""
    real_path: Callable[[str], str] = field(default=os.path.realpath)
    is_ours: Callable[[str], bool] = field(default=lambda container: False)
    """Whether a name or an id means a container of the supervisor's own."""
    is_our_source: Callable[[str], bool] = field(default=lambda source: False)
    """The same for what could be mounted."""

    def objection(self, asked: Asked) -> str:
        """Why not, for the docker client to print; empty for what is passed on."""
        reason = self._reason(asked)
        return f"not at Tier {self.level}: {reason}" if reason else ""

    def _reason(self, asked: Asked) -> str:
        return self._reason_of_tier(asked) or self._objection_for_ours(asked)

    def _objection_for_ours(self, asked: Asked) -> str:
        """Last, because it asks the engine."""
        named = next(filter(self.is_ours, containers_in(asked)), "")
        if named:
            return f"{named} is a container of Claude Ops itself, which holds this run"
        source = next(filter(self.is_our_source, _sources_in(asked)), "")
        return f"{source} belongs to Claude Ops itself" if source else ""

    def _reason_of_tier(self, asked: Asked) -> str:
        if asked.method in READERS:
            return self._objection_to_reading(asked.parts)
        if self.level >= SAFE and is_safe_act(asked):
            return self._objection_to_act(asked)
        if self.level < FULL:
            may = "only reads" if self.level < SAFE else f"only reads, and may {_list(SAFE_ACTS)}"
            return f"{asked.method} {_shown(asked)} is a change, and this tier {may}"
        return self._objection_to_change(asked)

    def _objection_to_act(self, asked: Asked) -> str:
        if asked.body:
            return "a container starts as it was made"
        if any("checkpoint" in name.casefold() for name, _value in _pairs(asked.query)):
            return "a container starts from no checkpoint"
        return ""

    def _objection_to_reading(self, parts: tuple[str, ...]) -> str:
        readable = READABLE_AT_FULL if self.level >= FULL else READABLE
        if not parts or parts[0] not in readable:
            return f"/{'/'.join(parts)} is not read through here"
        if self.level < FULL and asks_elsewhere(parts):
            return f"/{'/'.join(parts)} would let the engine ask another host"
        if parts[-2:] == ("attach", "ws"):
            return "a container's terminal is not attached by a web socket"
        return ""

    def _objection_to_change(self, asked: Asked) -> str:
        parts = asked.parts
        if parts[:1] in (("session",), ("grpc",)):
            return "BuildKit cannot be filtered: build with DOCKER_BUILDKIT=0"
        if not parts or parts[0] not in CHANGEABLE:
            return f"{asked.method} {_shown(asked)} is not for any tier"
        if parts[-1] == "prune":
            return "pruning is not for any tier: name what is to be removed"
        if parts[0] == "volumes":
            return "volumes are neither made nor removed"
        if parts[0] == "containers" and asked.method == "DELETE" and _is_set(asked.query, "v"):
            return "a container is removed without its volumes: leave out -v"
        if parts == ("build",) and ("networkmode", "host") in _pairs(asked.query):
            return "a build does not get the host's network"
        return self._objection_to_body(asked)

    def _objection_to_body(self, asked: Asked) -> str:
        match body_kind(asked):
            case "container":
                return self._objection_to_container(asked.body)
            case "settings":
                return self._objection_to_settings(asked.body)
            case "service":
                return self._objection_to_service(asked.body)
            case "exec" if _value(asked.body, "Privileged"):
                return "nothing runs privileged"
            case _:
                return ""

    def _objection_to_container(self, body: Any) -> str:
        networks = _value(_value(body, "NetworkingConfig"), "EndpointsConfig")
        if isinstance(networks, dict) and "host" in {name.casefold() for name in networks}:
            return "no container shares the host's own network"
        return self._objection_to_settings(_value(body, "HostConfig"))

    def _objection_to_settings(self, host: Any) -> str:
        if _value(host, "Privileged"):
            return "no container is privileged"
        for name in HOST_MODES:
            if str(_value(host, name) or "").casefold() == "host":
                return f"no container shares the host's own ({name}: host)"
        for name, given in NOT_GIVEN.items():
            value = _value(host, name)
            if value or (value == [] and name in ("MaskedPaths", "ReadonlyPaths")):
                return f"no container gets {given} ({name})"
        for option in _list_of(_value(host, "SecurityOpt")):
            # Others name a profile of choice, which may allow everything.
            if not option.startswith("no-new-privileges"):
                return f"no container runs without its walls ({option[:80]})"
        if "unix" in str(_value(_value(host, "LogConfig"), "Config")):
            return "no container's log goes to a socket of the host"
        binds = [bind.partition(":")[0] for bind in _list_of(_value(host, "Binds"))]
        return self._objection_to_paths(bind for bind in binds if bind.startswith("/")) or (
            self._objection_to_mounts(_value(host, "Mounts"))
        )

    def _objection_to_service(self, body: Any) -> str:
        template = _value(body, "TaskTemplate")
        container = _value(template, "ContainerSpec")
        if _value(template, "PluginSpec"):
            return "plugins are not for any tier"
        if _value(container, "CapabilityAdd") or _value(container, "Privileges"):
            return "no service gets capabilities or privileges"
        if any(
            str(_value(network, "Target")).casefold() == "host"
            for holder in (body, template)
            for network in _items(_value(holder, "Networks"))
        ):
            return "no service shares the host's own network"
        return self._objection_to_mounts(_value(container, "Mounts"))

    def _objection_to_mounts(self, mounts: Any) -> str:
        for mount in _items(mounts):
            if _value(_value(mount, "VolumeOptions"), "DriverConfig"):
                return "a volume's driver could bind any directory of the host (DriverConfig)"
        return self._objection_to_paths(
            str(_value(mount, "Source"))
            for mount in _items(mounts)
            if str(_value(mount, "Type")).casefold() not in ("volume", "tmpfs")
        )

    def _objection_to_paths(self, sources: Iterable[str]) -> str:
        """As written, and as it is: a link may lead anywhere."""
        for source in sources:
            if not source.isprintable():
                raise NotClear("a path holds what no path holds")
            written = _normal(source)
            if written in HARMLESS:
                continue
            if any(self._is_withheld(path) for path in (written, _normal(self.real_path(written)))):
                return f"no container gets {source} of the host"
        return ""

    def _is_withheld(self, path: str) -> bool:
        home_itself = re.fullmatch(r"/home/[^/]+", path) is not None
        return (
            path in NOT_WHOLE
            or home_itself
            or "/.ssh" in path
            or path.endswith(".sock")
            or any(_lies_in(path, place) for place in (*NOT_EVEN_PARTLY, *self.hidden))
            or any(_lies_in(place, path) for place in self.hidden)
        )


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


def asks_elsewhere(parts: tuple[str, ...]) -> bool:
    """Reading that leaves the machine, to a host that the caller names: words could leave by it."""
    return parts[0] == "distribution" or parts in (("images", "search"), ("plugins", "privileges"))


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
            found += [value for key, value in _raw_pairs(asked.query) if key == "container"]
        case ("networks", _, _):
            found.append(_value(asked.body, "Container"))
        case ("build",):
            found += [_joined(value) for key, value in _raw_pairs(asked.query)]
    found += [_joined(_value(_value(asked.body, "HostConfig"), name)) for name in HOST_MODES]
    return [str(name) for name in found if name]


def _joined(mode: Any) -> str:
    word = str(mode or "")
    return word[len(JOINED) :] if word.casefold().startswith(JOINED) else ""


def _sources_in(asked: Asked) -> list[str]:
    host = _value(asked.body, "HostConfig")
    task = _value(_value(asked.body, "TaskTemplate"), "ContainerSpec")
    mounts = [*_items(_value(host, "Mounts")), *_items(_value(task, "Mounts"))]
    binds = [bind.partition(":")[0] for bind in _list_of(_value(host, "Binds"))]
    named = [*binds, *(str(_value(mount, "Source") or "") for mount in mounts)]
    return [name for name in named if name]


def is_hijacked(asked: Asked) -> bool:
    """Whether the connection becomes a container's terminal, both ways."""
    match (asked.method, *asked.parts):
        case ("POST", "containers", _, "attach") | ("POST", "exec", _, "start"):
            return True
        case _:
            return False


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


def _value(holder: Any, name: str) -> Any:
    """By name, in whatever case; two spellings of one name are not clear."""
    if not isinstance(holder, dict):
        return None
    found = [value for key, value in holder.items() if key.casefold() == name.casefold()]
    if len(found) > 1:
        raise NotClear(f"{name} stands twice")
    return found[0] if found else None


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _list_of(value: Any) -> list[str]:
    return [str(item) for item in _items(value)]


def _pairs(query: str) -> list[tuple[str, str]]:
    return [(name, value.strip().casefold()) for name, value in _raw_pairs(query)]


def _raw_pairs(query: str) -> list[tuple[str, str]]:
    return parse_qsl(query.replace(";", "&"), keep_blank_values=True)


def _is_set(query: str, name: str) -> bool:
    return any(key == name and value not in FALSE for key, value in _pairs(query))


def _normal(path: str) -> str:
    """Two slashes at the front are one to an engine, but not to `normpath`."""
    return os.path.normpath("/" + path.lstrip("/"))


def _lies_in(path: str, place: str) -> bool:
    return path == place or path.startswith(f"{place.rstrip('/')}/")


def _shown(asked: Asked) -> str:
    return "/" + "/".join(asked.parts)


def _list(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]} a container"
