"""Decides which requests to a Docker engine a tier may make, without side effects.

Requests that two parsers could read differently are refused. The engine ignores the case of JSON
names, so they are compared that way here.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

from sessions_app.tiers import FULL, SAFE

READERS = ("GET", "HEAD")
SAFE_ACTS = ("start", "stop", "restart", "kill")
VERSION = re.compile(r"v[0-9]+(?:\.[0-9]+)*")
# The second part of these paths is not the name of a container.
NO_CONTAINERS = {("GET", "json"), ("HEAD", "json"), ("POST", "create"), ("POST", "prune")}
# Readable of own containers; everything else may show keys or files.
READABLE_OF_OURS = ("stats",)
JOINED = "container:"
HOST_MODES = ("PidMode", "NetworkMode", "IpcMode", "UsernsMode", "UTSMode", "CgroupnsMode")


class AmbiguousRequest(ValueError):
    """The request could be read in two ways."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DockerRequest:
    """A parsed request."""

    method: str
    version: str
    parts: tuple[str, ...]
    """The decoded path segments, without the version."""
    query: str
    body: Any = None
    """The JSON, if `body_kind` needs it."""

    @property
    def target(self) -> str:
        path = "".join(f"/{quote(part, safe=':@!$&()*+,;=~')}" for part in self.parts) or "/"
        return f"{self.version}{path}{'?' if self.query else ''}{self.query}"


def parse_request(method: str, target: str) -> DockerRequest:
    """Parse method and target; raise AmbiguousRequest if they are not clear."""
    if not method.isalpha() or not method.isupper():
        raise AmbiguousRequest("the method is invalid")
    path, _mark, query = target.partition("?")
    readable = target.isascii() and target.isprintable() and not {" ", "#"} & set(target)
    if not readable or not path.startswith("/"):
        raise AmbiguousRequest("the address cannot be read")
    decoded = unquote(path, errors="replace")
    if {"%", "\\"} & set(decoded) or not decoded.isprintable() or not decoded.isascii():
        raise AmbiguousRequest("the address is encoded in a way that engines read differently")
    parts = tuple(part for part in decoded.split("/") if part)
    if any(part in (".", "..") for part in parts):
        raise AmbiguousRequest("the address leads through other addresses")
    # After splitting: an engine reads `//v1.47/…` as `/v1.47/…`.
    version, parts = (parts[:1], parts[1:]) if _begins_with_version(parts) else ((), parts)
    if _begins_with_version(parts):
        raise AmbiguousRequest("the address names two versions")
    shown = "".join(f"/{part}" for part in version)
    return DockerRequest(method=method, version=shown, parts=parts, query=query)


def _begins_with_version(parts: tuple[str, ...]) -> bool:
    return bool(parts) and VERSION.fullmatch(parts[0]) is not None


def is_safe_act(asked: DockerRequest) -> bool:
    return (
        asked.method == "POST"
        and len(asked.parts) == 3
        and asked.parts[0] == "containers"
        and asked.parts[2] in SAFE_ACTS
    )


def body_kind(asked: DockerRequest) -> str:
    """Return the kind of a body that the decision needs; empty if it needs none."""
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
            # Old engines accept container settings with the start.
            return "act" if is_safe_act(asked) else ""


def is_hijacked(asked: DockerRequest) -> bool:
    """Return whether the connection becomes the terminal of a container."""
    match (asked.method, *asked.parts):
        case ("POST", "containers", _, "attach") | ("POST", "exec", _, "start"):
            return True
        case _:
            return False


def containers_in(asked: DockerRequest) -> list[str]:
    """Return the containers that a request names or joins."""
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
    text = str(mode or "")
    return text[len(JOINED) :] if text.casefold().startswith(JOINED) else ""


def sources_in(asked: DockerRequest) -> list[str]:
    host = value_of(asked.body, "HostConfig")
    task = value_of(value_of(asked.body, "TaskTemplate"), "ContainerSpec")
    mounts = [*items_of(value_of(host, "Mounts")), *items_of(value_of(task, "Mounts"))]
    binds = [bind.partition(":")[0] for bind in texts_of(value_of(host, "Binds"))]
    named = [*binds, *(str(value_of(mount, "Source") or "") for mount in mounts)]
    return [name for name in named if name]


def read_json(content: bytes) -> Any:
    """Parse JSON; raise AmbiguousRequest for invalid JSON or a duplicate name."""
    try:
        return json.loads(content, object_pairs_hook=_unambiguous) if content.strip() else {}
    except (ValueError, RecursionError):
        raise AmbiguousRequest("the body is not unambiguous JSON") from None


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    named = dict(pairs)
    if len(named) != len(pairs):
        raise ValueError("a name is used twice")
    return named


def value_of(holder: Any, name: str) -> Any:
    """Return a value by name, ignoring case; raise AmbiguousRequest for two spellings."""
    if not isinstance(holder, dict):
        return None
    found = [value for key, value in holder.items() if key.casefold() == name.casefold()]
    if len(found) > 1:
        raise AmbiguousRequest(f"{name} is used twice")
    return found[0] if found else None


def items_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def texts_of(value: Any) -> list[str]:
    return [str(item) for item in items_of(value)]


def pairs_of(query: str) -> list[tuple[str, str]]:
    return [(name, value.strip().casefold()) for name, value in raw_pairs_of(query)]


def raw_pairs_of(query: str) -> list[tuple[str, str]]:
    return parse_qsl(query.replace(";", "&"), keep_blank_values=True)


# Other paths show join tokens and secrets of a cluster, or bypass the filter.
READABLE = {
    *("_ping", "version", "info", "events", "system", "containers", "images", "networks"),
    *("volumes", "distribution", "exec", "nodes", "services", "tasks", "plugins"),
}
CHANGEABLE = {*READABLE, "auth", "build", "commit"} - {"nodes", "plugins", "system"}
READABLE_AT_FULL = READABLE | {"secrets", "configs"}
FALSE = ("", "0", "no", "false", "none")

# Directories of the host that may not be mounted as a whole …
NOT_WHOLE = ("/", "/home", "/mnt", "/media", "/opt", "/srv", "/var", "/var/lib", "/tmp")  # noqa: S108
# … and those of which no part may be mounted.
NOT_EVEN_PARTLY = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/root", "/run"),
    *("/sbin", "/sys", "/usr", "/var/lib/containerd", "/var/lib/docker", "/var/run"),
    *("/var/spool/cron",),
)
HARMLESS = ("/etc/localtime", "/etc/timezone", "/etc/ssl/certs", "/usr/share/zoneinfo")
NOT_GIVEN = {
    "CapAdd": "capabilities",
    "Annotations": "annotations for its runtime",
    "Devices": "devices of the host",
    "DeviceRequests": "devices of the host",
    "DeviceCgroupRules": "devices of the host",
    "CgroupParent": "a control group of its own choice",
    "MaskedPaths": "paths of the kernel",
    "ReadonlyPaths": "paths of the kernel",
    "Runtime": "another runtime",
    "VolumesFrom": "what another container was given",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    level: int
    hidden: tuple[str, ...] = ()
    """Directories of this installation: no container may mount them."""
    real_path: Callable[[str], str] = field(default=os.path.realpath)
    is_own_container: Callable[[str], bool] = field(default=lambda container: False)
    """Return whether a name or id is a container of this installation."""
    is_own_source: Callable[[str], bool] = field(default=lambda source: False)
    """Return whether a volume or directory belongs to this installation."""

    def objection(self, asked: DockerRequest) -> str:
        """Return the reason for a refusal, for the docker client to print; empty if permitted."""
        # Own containers last, because that queries the engine.
        reason = self._reason_of_tier(asked) or self._objection_for_own(asked)
        return f"not at Tier {self.level}: {reason}" if reason else ""

    def _objection_for_own(self, asked: DockerRequest) -> str:
        named = next(filter(self.is_own_container, containers_in(asked)), "")
        if named:
            return f"{named} is a container of Claude Ops itself, which holds this run"
        source = next(filter(self.is_own_source, sources_in(asked)), "")
        return f"{source} belongs to Claude Ops itself" if source else ""

    def _reason_of_tier(self, asked: DockerRequest) -> str:
        if asked.method in READERS:
            return self._objection_to_reading(asked.parts)
        if self.level >= SAFE and is_safe_act(asked):
            return self._objection_to_act(asked)
        if self.level < FULL:
            may = "only reads" if self.level < SAFE else f"only reads, and may {_list(SAFE_ACTS)}"
            return f"{asked.method} {_shown(asked)} is a change, and this tier {may}"
        return self._objection_to_change(asked)

    def _objection_to_act(self, asked: DockerRequest) -> str:
        if asked.body:
            return "a container starts as it was made"
        if any("checkpoint" in name.casefold() for name, _value in pairs_of(asked.query)):
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

    def _objection_to_change(self, asked: DockerRequest) -> str:
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
        if parts == ("build",) and ("networkmode", "host") in pairs_of(asked.query):
            return "a build does not get the host's network"
        return self._objection_to_body(asked)

    def _objection_to_body(self, asked: DockerRequest) -> str:
        match body_kind(asked):
            case "container":
                return self._objection_to_container(asked.body)
            case "settings":
                return self._objection_to_settings(asked.body)
            case "service":
                return self._objection_to_service(asked.body)
            case "exec" if value_of(asked.body, "Privileged"):
                return "nothing runs privileged"
            case _:
                return ""

    def _objection_to_container(self, body: Any) -> str:
        networks = value_of(value_of(body, "NetworkingConfig"), "EndpointsConfig")
        if isinstance(networks, dict) and "host" in {name.casefold() for name in networks}:
            return "no container shares the host's own network"
        return self._objection_to_settings(value_of(body, "HostConfig"))

    def _objection_to_settings(self, host: Any) -> str:
        if value_of(host, "Privileged"):
            return "no container is privileged"
        for name in HOST_MODES:
            if str(value_of(host, name) or "").casefold() == "host":
                return f"no container shares the host's own ({name}: host)"
        for name, given in NOT_GIVEN.items():
            value = value_of(host, name)
            if value or (value == [] and name in ("MaskedPaths", "ReadonlyPaths")):
                return f"no container gets {given} ({name})"
        for option in texts_of(value_of(host, "SecurityOpt")):
            # Others name a profile of choice, which may allow everything.
            if not option.startswith("no-new-privileges"):
                return f"no container runs without its confinement ({option[:80]})"
        if "unix" in str(value_of(value_of(host, "LogConfig"), "Config")):
            return "no container's log goes to a socket of the host"
        binds = [bind.partition(":")[0] for bind in texts_of(value_of(host, "Binds"))]
        return self._objection_to_paths(bind for bind in binds if bind.startswith("/")) or (
            self._objection_to_mounts(value_of(host, "Mounts"))
        )

    def _objection_to_service(self, body: Any) -> str:
        template = value_of(body, "TaskTemplate")
        container = value_of(template, "ContainerSpec")
        if value_of(template, "PluginSpec"):
            return "plugins are not for any tier"
        if value_of(container, "CapabilityAdd") or value_of(container, "Privileges"):
            return "no service gets capabilities or privileges"
        if any(
            str(value_of(network, "Target")).casefold() == "host"
            for holder in (body, template)
            for network in items_of(value_of(holder, "Networks"))
        ):
            return "no service shares the host's own network"
        return self._objection_to_mounts(value_of(container, "Mounts"))

    def _objection_to_mounts(self, mounts: Any) -> str:
        for mount in items_of(mounts):
            if value_of(value_of(mount, "VolumeOptions"), "DriverConfig"):
                return "a volume's driver could bind any directory of the host (DriverConfig)"
        return self._objection_to_paths(
            str(value_of(mount, "Source"))
            for mount in items_of(mounts)
            if str(value_of(mount, "Type")).casefold() not in ("volume", "tmpfs")
        )

    def _objection_to_paths(self, sources: Iterable[str]) -> str:
        """Check each path as written and resolved."""
        for source in sources:
            if not source.isprintable():
                raise AmbiguousRequest("a path holds characters that cannot be printed")
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
            or any(_is_inside(path, place) for place in (*NOT_EVEN_PARTLY, *self.hidden))
            or any(_is_inside(place, path) for place in self.hidden)
        )


def asks_elsewhere(parts: tuple[str, ...]) -> bool:
    """Return whether the engine would contact a host that the caller names."""
    return parts[0] == "distribution" or parts in (("images", "search"), ("plugins", "privileges"))


def _is_set(query: str, name: str) -> bool:
    return any(key == name and value not in FALSE for key, value in pairs_of(query))


def _normal(path: str) -> str:
    """Normalise a path; `normpath` alone keeps two leading slashes."""
    return os.path.normpath("/" + path.lstrip("/"))


def _is_inside(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory.rstrip('/')}/")


def _shown(asked: DockerRequest) -> str:
    return "/" + "/".join(asked.parts)


def _list(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]} a container"
