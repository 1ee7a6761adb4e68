"""What a tier may ask of a Docker engine: pure, one request in, an objection or nothing out.

What is forwarded is what was judged: the path in its plain form, and a body that was inspected as
it was read here (`docker_request`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from escalation.rooms.docker_request import (
    HOST_MODES,
    READERS,
    SAFE_ACTS,
    Asked,
    NotClear,
    body_kind,
    containers_in,
    is_safe_act,
    items_of,
    pairs_of,
    sources_in,
    texts_of,
    value_of,
)

LOOK, SAFE, FULL = 1, 2, 3
# Whoever reads these may join the cluster or unlock it, read a secret's neighbours, or pass by us.
READABLE = {
    *("_ping", "version", "info", "events", "system", "containers", "images", "networks"),
    *("volumes", "distribution", "exec", "nodes", "services", "tasks", "plugins"),
}
CHANGEABLE = {*READABLE, "auth", "build", "commit"} - {"nodes", "plugins", "system"}
READABLE_AT_FULL = READABLE | {"secrets", "configs"}
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
        source = next(filter(self.is_our_source, sources_in(asked)), "")
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
        if parts == ("build",) and ("networkmode", "host") in pairs_of(asked.query):
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
                return f"no container runs without its walls ({option[:80]})"
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


def asks_elsewhere(parts: tuple[str, ...]) -> bool:
    """Reading that leaves the machine, to a host that the caller names: words could leave by it."""
    return parts[0] == "distribution" or parts in (("images", "search"), ("plugins", "privileges"))


def _is_set(query: str, name: str) -> bool:
    return any(key == name and value not in FALSE for key, value in pairs_of(query))


def _normal(path: str) -> str:
    """Two slashes at the front are one to an engine, but not to `normpath`."""
    return os.path.normpath("/" + path.lstrip("/"))


def _lies_in(path: str, place: str) -> bool:
    return path == place or path.startswith(f"{place.rstrip('/')}/")


def _shown(asked: Asked) -> str:
    return "/" + "/".join(asked.parts)


def _list(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]} a container"
