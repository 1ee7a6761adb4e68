"""Decides which requests to a Docker engine a tier may make, without side effects.

Requests that two parsers could read differently are refused. The engine ignores the case of JSON
names, so they are compared that way here. Podman's Docker-compatible interface is the same; of
its own one (`/libpod/…`) only a few paths are known.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

from sessions_app.models import Change
from sessions_app.tiers import FULL, SAFE

READERS = ("GET", "HEAD")
METHODS = (*READERS, "POST", "PUT", "DELETE")
STARTING = ("start", "restart", "unpause")
STOPPING = ("stop", "kill", "pause")
SAFE_ACTS = ("start", "stop", "restart", "kill", "pause", "unpause")
VERSION = re.compile(r"v[0-9]+(?:\.[0-9]+)*")
LIBPOD = "libpod"
# The second part of these paths is not the name of a container.
NO_CONTAINERS = {
    *(("GET", "json"), ("HEAD", "json"), ("GET", "stats"), ("POST", "create"), ("POST", "prune")),
}
# Readable of own containers; everything else may show keys or files.
READABLE_OF_OURS = ("stats",)
JOINED = "container:"
HOST_MODES = ("PidMode", "NetworkMode", "IpcMode", "UsernsMode", "UTSMode", "CgroupnsMode")
PROJECT = "com.docker.compose.project"
SERVICE = "com.docker.compose.service"
ONE_OFF = "com.docker.compose.oneoff"
COMPOSE_FILES = "com.docker.compose.project.config_files"


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

    @property
    def is_libpod(self) -> bool:
        return self.parts[:1] == (LIBPOD,)

    @property
    def words(self) -> tuple[str, ...]:
        """The path segments as in Docker's interface."""
        return self.parts[1:] if self.is_libpod else self.parts

    @property
    def container(self) -> str:
        """The container in the path, as it is named there; empty if there is none."""
        match self.words:
            case ("containers", name) if (self.method, name) not in NO_CONTAINERS:
                return name
            case ("containers", name, _, *_rest):
                return name
        return ""

    @property
    def act(self) -> str:
        """One of `SAFE_ACTS`; empty for all other requests."""
        match (self.method, *self.words):
            case ("POST", "containers", _, act) if act in SAFE_ACTS:
                return act
        return ""

    @property
    def is_read(self) -> bool:
        return self.method in READERS

    def with_container(self, number: str) -> DockerRequest:
        """Name the container in the path by its id, whatever its name means by then."""
        at = len(self.parts) - len(self.words) + 1
        return replace(self, parts=(*self.parts[:at], number, *self.parts[at + 1 :]))

    def values(self, name: str) -> list[str]:
        """Return the values of the query with a name, in any case."""
        pairs = pairs_of(self.query)
        return [value for key, value in pairs if key.casefold() == name.casefold()]

    def value(self, name: str) -> str:
        return next(iter(self.values(name)), "")


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
    asked = DockerRequest(method=method, version=shown, parts=parts, query=query)
    # Of two values some engines take the first, others the last, and some ignore case.
    names = [name.casefold() for name, _value in pairs_of(query)]
    is_twice = ";" in query or len(names) != len(set(names))
    if is_twice and asked.words[:1] == ("containers",) and not asked.is_read:
        raise AmbiguousRequest("the address has a value twice")
    return asked


def _begins_with_version(parts: tuple[str, ...]) -> bool:
    return bool(parts) and VERSION.fullmatch(parts[0]) is not None


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
        case ("POST", "networks", "create"):
            return "new network"
        case ("POST", "services", "create") | ("POST", "services", _, "update"):
            return "service"
        case ("POST", "volumes", "create"):
            return "volume"
        case _:
            # Old engines accept container settings with the start.
            return "act" if asked.act else ""


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
    match asked.words:
        case ("containers", _, what, *_rest) if asked.is_read and what in READABLE_OF_OURS:
            pass
        case ("containers", *_rest):
            found.append(asked.container)
        case ("commit",):
            found += asked.values("container")
        case ("networks", _, _):
            found.append(value_of(asked.body, "Container"))
    found += joined_by(asked)
    return [str(name) for name in dict.fromkeys(found) if name]


def joined_by(asked: DockerRequest) -> list[str]:
    """Return the containers whose namespaces, volumes or variables a new container gets."""
    if asked.parts == ("build",):
        return [_joined(value) for _key, value in pairs_of(asked.query)]
    host = value_of(asked.body, "HostConfig")
    named = [*texts_of(value_of(host, "VolumesFrom")), *texts_of(value_of(host, "Links"))]
    return [
        *(_joined(value_of(host, name)) for name in HOST_MODES),
        *(name.partition(":")[0].lstrip("/") for name in named),
    ]


def _joined(mode: Any) -> str:
    text = str(mode or "")
    return text[len(JOINED) :] if text.casefold().startswith(JOINED) else ""


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


def pairs_in(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, dict) else []


def pairs_of(query: str) -> list[tuple[str, str]]:
    return parse_qsl(query.replace(";", "&"), keep_blank_values=True)


# What a request does, for cooldowns, approvals and the record.


class EffectKind(StrEnum):
    RESTART = "restart"
    REDEPLOYMENT = "redeployment"
    STOP = "stop"
    REMOVE = "remove"
    EXEC = "exec"
    OTHER = "other"


COUNTED = {
    EffectKind.RESTART: Change.Kind.RESTART,
    EffectKind.STOP: Change.Kind.RESTART,
    EffectKind.REDEPLOYMENT: Change.Kind.REDEPLOY,
    EffectKind.REMOVE: Change.Kind.REDEPLOY,
}
# Commands of compose that end in a request.
COMPOSED = {"create": ("up", "run"), "rm": ("down",)}


@dataclass(frozen=True, kw_only=True, slots=True)
class DockerEffect:
    """A change that a permitted request makes, before it is passed on."""

    kind: EffectKind
    service: str
    """The name that the container had when this run first saw it, without a slash."""
    container_id: str
    """The engine's id; empty for a container that does not exist yet, and for images."""
    verb: str
    vector: tuple[str, ...]
    """The same as a command without options, such as ("docker", "restart", "web")."""
    options: tuple[str, ...] = ()
    """Options that `vector` leaves out, for people: ("--signal=HUP",)."""
    compose_service: str = ""
    is_part_of_down: bool = False
    """The client is `docker compose down`, which stops everything before it removes anything."""

    @property
    def counted(self) -> Change.Kind:
        """The cooldown that this uses up; `OTHER` for none.

        The first half of a pair counts: a stop or a removal that is permitted can always be
        followed by a start or a creation, which then are of the kind `OTHER`.
        """
        return COUNTED.get(self.kind, Change.Kind.OTHER)

    @property
    def spellings(self) -> tuple[tuple[str, ...], ...]:
        """The commands whose approval rules apply: a stop is half a restart."""
        halves = ("restart",) if self.counted == Change.Kind.RESTART else ()
        plain: list[tuple[str, ...]] = [("docker", verb, self.service) for verb in halves]
        if self.verb == "create":
            plain.append(("docker", "run", *self.vector[2:]))
        # The removal of a container that was replaced is a part of `up`.
        is_replaced = self.verb == "rm" and self.kind == EffectKind.OTHER
        wholes = () if is_replaced else COMPOSED.get(self.verb, ())
        verbs = (self.verb, *halves, *wholes, *(("down",) if self.is_part_of_down else ()))
        composed = [("docker", "compose", verb, self.compose_service) for verb in verbs]
        both = (self.vector, *plain, *(composed if self.compose_service else ()))
        return tuple(dict.fromkeys(both))


OnRefusal = Callable[[tuple[str, ...], str, int], None]
"""Gets the vector of a refused change, the reason, and the lowest tier that may make it, or 0."""


def ignore_refusal(vector: tuple[str, ...], reason: str, allowed_from: int) -> None:
    """Default for a caller that records no refusals."""


JudgeEffect = Callable[[DockerEffect, socket.socket], str]
"""Returns why an effect may not happen now, empty if it may. Called once for each effect before it
happens, with the client's connection, from the thread of its request, which it may hold up."""


def allow_effect(effect: DockerEffect, client: socket.socket) -> str:
    return ""


OnAnswer = Callable[[DockerEffect, int], None]
"""Gets a permitted effect and the status of the engine's answer; 0 if it was not passed on."""


def ignore_answer(effect: DockerEffect, status: int) -> None:
    """Default for a caller that records no answers."""


def has_effect(asked: DockerRequest) -> bool:
    """Return whether a request changes something by itself.

    A program in a container is judged when it is created; it starts once.
    """
    if asked.is_read:
        return False
    match asked.words:
        case ("exec", _, "start" | "resize") | ("containers", _, "resize" | "wait") | ("auth",):
            return False
    return True


def command_for(asked: DockerRequest, name: str) -> tuple[str, ...]:
    """Return the command of the docker client for a request, without options."""
    match (asked.method, *asked.words):
        case ("POST", "containers", "create"):
            image = str(value_of(asked.body, "Image") or "")
            return ("docker", "create", *(("--name", name) if name else ()), image)
        case ("POST", "containers", _, "exec"):
            return ("docker", "exec", name, *words_of(value_of(asked.body, "Cmd")))
        case ("POST", "containers", _, "rename"):
            return ("docker", "rename", name, asked.value("name"))
        case ("POST", "containers", _, verb):
            return ("docker", verb, name)
        case ("DELETE", "containers", _):
            return ("docker", "rm", name)
        case ("PUT", "containers", _, "archive"):
            return ("docker", "cp", "-", f"{name}:{asked.value('path')}")
        case ("POST", "services", _, "update"):
            return ("docker", "service", "update", name)
        case ("DELETE", "services", _):
            return ("docker", "service", "rm", name)
    return _command_elsewhere(asked)


def _command_elsewhere(asked: DockerRequest) -> tuple[str, ...]:
    match (asked.method, *asked.words):
        case ("POST", "commit"):
            return ("docker", "commit", asked.value("container"))
        case ("POST", "images", "create"):
            source, tag = asked.value("fromSrc"), asked.value("tag")
            image = asked.value("fromImage") + (f":{tag}" if tag else "")
            return ("docker", "import", source) if source else ("docker", "pull", image)
        case ("POST", "images", *image, ("push" | "tag") as verb):
            return ("docker", verb, "/".join(image))
        case ("DELETE", "images", *image):
            return ("docker", "rmi", "/".join(image))
        case ("POST", ("networks" | "volumes" | "services") as kind, "create"):
            return ("docker", kind[:-1], "create", str(value_of(asked.body, "Name") or ""))
        case ("POST", "networks", network, ("connect" | "disconnect") as verb):
            container = str(value_of(asked.body, "Container") or "")
            return ("docker", "network", verb, network, container)
        case ("DELETE", "networks", network):
            return ("docker", "network", "rm", network)
    return ("docker", *reversed(asked.words))


def options_in(asked: DockerRequest) -> tuple[str, ...]:
    """Return what `command_for` leaves out and a person should know."""
    signal = asked.value("signal") if asked.act == "kill" else ""
    found = [f"--signal={signal}"] if signal else []
    if body_kind(asked) == "exec":
        for option in ("User", "WorkingDir"):
            value = value_of(asked.body, option)
            found += [f"--{option.lower()}={value}"] if value else []
        found += [f"--env={entry}" for entry in texts_of(value_of(asked.body, "Env"))]
    return tuple(found)


# What the engine says of a container: the answer to `GET /containers/NAME/json`.


def name_in(details: Any) -> str:
    return str(value_of(details, "Name") or "").lstrip("/")


def labels_in(details: Any) -> dict[str, str]:
    labels = value_of(value_of(details, "Config"), "Labels")
    return labels if isinstance(labels, dict) else {}


def compose_service_in(labels: Any) -> tuple[str, str]:
    """Return project and service; both empty for a container that compose did not make."""
    found = labels if isinstance(labels, dict) else {}
    project, service = str(found.get(PROJECT) or ""), str(found.get(SERVICE) or "")
    is_one_off = str(found.get(ONE_OFF) or "").casefold() == "true"
    return (project, service) if project and service and not is_one_off else ("", "")


def is_running(details: Any) -> bool:
    return bool(value_of(value_of(details, "State"), "Running"))


def is_paused(details: Any) -> bool:
    return bool(value_of(value_of(details, "State"), "Paused"))


def removes_itself(details: Any) -> bool:
    """Return whether a container is removed when it stops (`docker run --rm`)."""
    return bool(value_of(value_of(details, "HostConfig"), "AutoRemove"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Mounted:
    """A directory of the host, or a volume, in a container."""

    source: str
    """A path, or the name of a volume; empty for a volume without a name."""
    destination: str
    is_writable: bool = True
    is_shared: bool = False
    """Set if mounts inside appear on the host as well."""

    @property
    def is_path(self) -> bool:
        return self.source.startswith("/")


def mounts_in(details: Any) -> list[Mounted]:
    """Return what is mounted in a container that exists."""
    rows = [_mount_of(row, "Destination") for row in items_of(value_of(details, "Mounts"))]
    return [*rows, *mounts_asked(value_of(details, "HostConfig"))]


def mounts_asked(host: Any) -> list[Mounted]:
    """Return what the settings of a container mount; not its temporary file systems."""
    binds = [_bind_of(bind) for bind in texts_of(value_of(host, "Binds"))]
    mounts = items_of(value_of(host, "Mounts"))
    return [*binds, *(_mount_of(mount, "Target") for mount in mounts if not _is_tmpfs(mount))]


def _is_tmpfs(mount: Any) -> bool:
    return str(value_of(mount, "Type")).casefold() == "tmpfs"


def _bind_of(bind: str) -> Mounted:
    source, _colon, rest = bind.partition(":")
    destination, _colon, options = rest.partition(":")
    if not rest:
        return Mounted(source="", destination=source)
    words = options.casefold().split(",")
    return Mounted(
        source=source,
        destination=destination,
        is_writable="ro" not in words,
        is_shared=bool({"shared", "rshared"} & set(words)),
    )


def _mount_of(mount: Any, destination: str) -> Mounted:
    is_volume = str(value_of(mount, "Type")).casefold() == "volume"
    name = value_of(mount, "Name") if is_volume else None
    bind = value_of(mount, "BindOptions")
    spread = value_of(mount, "Propagation") or value_of(bind, "Propagation")
    return Mounted(
        source=str(name or value_of(mount, "Source") or ""),
        destination=str(value_of(mount, destination) or ""),
        is_writable=value_of(mount, "RW") is not False and not value_of(mount, "ReadOnly"),
        is_shared=str(spread or "").casefold() in ("shared", "rshared"),
    )


def volumes_in(mounts: Iterable[Mounted]) -> set[str]:
    """Return the names of volumes."""
    return {mount.source for mount in mounts if mount.source and not mount.is_path}


_UNNAMED_VOLUME = re.compile(r"[0-9a-f]{64}")


def has_unnamed_volumes(details: Any) -> bool:
    return any(_UNNAMED_VOLUME.fullmatch(mount.source) for mount in mounts_in(details))


NETWORK_SETTINGS = (
    *("Driver", "Internal", "Attachable", "Ingress", "ConfigOnly", "EnableIPv6", "Options"),
    *("Labels", "IPAM"),
)
NEW_NETWORK = {*(name.casefold() for name in NETWORK_SETTINGS), "name", "checkduplicate", "scope"}


def is_same_network(body: Any, was: Any) -> bool:
    """Return whether a new network is as one that was there; nothing given is the default."""
    if was is None or not isinstance(body, dict):
        return False
    given = {name.casefold(): value for name, value in pairs_in(body)}
    known = {name for name, value in given.items() if value}
    if known - NEW_NETWORK or given.get("name") != value_of(was, "Name"):
        return False
    return all(
        _is_same_setting(name, given.get(name.casefold()), value_of(was, name))
        for name in NETWORK_SETTINGS
    )


def _is_same_setting(name: str, asked: Any, had: Any) -> bool:
    if name == "IPAM":
        # The engine chooses addresses if none are asked for.
        asked, had = (value_of(one, "Config") or None for one in (asked, had))
        return asked is None or bool(asked == had)
    if name == "Driver":
        return bool((asked or "bridge") == had)
    return bool((asked or None) == (had or None))


# A container that replaces another one.


@dataclass(frozen=True, kw_only=True, slots=True)
class Before:
    """A container that a new one would replace: it was removed in this run, or exists."""

    details: Any
    image: Any = None
    """The inspection of its image; None if that is gone."""
    is_namesake: bool = True
    """Set if the new container has its name, or the temporary one of compose."""


# Of no consequence for what a container can do.
NOT_COMPARED = {
    *("attachstdin", "attachstdout", "attachstderr", "openstdin", "stdinonce", "tty"),
    *("consolesize", "stoptimeout", "hostconfig", "networkingconfig", "labels"),
}
IN_ORDER = {"cmd", "entrypoint", "test", "shell"}
# Left out of a request, they come from the image …
FROM_IMAGE = ("User", "Cmd", "Entrypoint", "WorkingDir", "Healthcheck")
# … or are gone.
NOT_LEFT_OUT = ("PortBindings", "RestartPolicy", "Memory", "NanoCpus", "PidsLimit", "Sysctls")
COMPOSE_LABELS = "com.docker.compose."
CAPABILITIES = ("capadd", "capdrop")
# An empty list is a setting: nothing is masked.
MASKS = ("maskedpaths", "readonlypaths")
SETS = ("exposedports", "volumes")
BRIDGES = ("", "default", "bridge")


def first_difference(body: Any, before: Before) -> str:
    """Return what a new container has that the one before had not, or the other way round.

    Only what can matter is compared: labels of compose itself and the terminal are not.
    """
    had = value_of(before.details, "Config")
    for name, value in pairs_in(body):
        key = name.casefold()
        if key not in NOT_COMPARED and not _is_within(key, value, value_of(had, name)):
            return name
    asked_host, had_host = value_of(body, "HostConfig"), value_of(before.details, "HostConfig")
    for name, value in pairs_in(asked_host):
        key = name.casefold()
        compared = key not in ("binds", "mounts", "networkmode")
        if compared and not _is_within(key, value, value_of(had_host, name)):
            return name
    binds, mounts = value_of(asked_host, "Binds"), value_of(asked_host, "Mounts")
    if not all(was_mounted(one, before.details) for one in (*items_of(binds), *items_of(mounts))):
        return "a mount"
    if _network(asked_host) != _network(had_host):
        return "NetworkMode"
    return (
        _new_network(body, before.details)
        or _new_label(body, before.details)
        or loosened(body, before)
        or _left_out(body, before)
    )


def loosened(body: Any, before: Before) -> str:
    """Return what confined the container before and does not confine the new one."""
    asked, had = value_of(body, "HostConfig"), value_of(before.details, "HostConfig")
    if not _is_within("capdrop", value_of(had, "CapDrop"), value_of(asked, "CapDrop")):
        return "CapDrop"
    if value_of(had, "ReadonlyRootfs") and not value_of(asked, "ReadonlyRootfs"):
        return "ReadonlyRootfs"
    confining = {one for one in texts_of(value_of(had, "SecurityOpt")) if _confines(one)}
    if not confining <= set(texts_of(value_of(asked, "SecurityOpt"))):
        return "SecurityOpt"
    if str(value_of(had, "UsernsMode") or "") != str(value_of(asked, "UsernsMode") or ""):
        return "UsernsMode"
    user = value_of(body, "User") or value_of(_config(before.image), "User") or ""
    return "" if user == (value_of(_config(before.details), "User") or "") else "User"


def _confines(option: str) -> bool:
    return not option.startswith("label") and "unconfined" not in option


def _config(inspected: Any) -> Any:
    return value_of(inspected, "Config")


def _left_out(body: Any, before: Before) -> str:
    """Return what the container before was given and the new one would not be."""
    host, had_host = value_of(body, "HostConfig"), value_of(before.details, "HostConfig")
    mounts = {(one.source, one.destination) for one in mounts_asked(host)}
    had_mounts = {(one.source, one.destination) for one in mounts_in(before.details)}
    if not {pair for pair in had_mounts if all(pair)} <= mounts:
        return "a mount"
    for name in NOT_LEFT_OUT:
        own = value_of(had_host, name)
        is_none = value_of(own, "Name") == "no"
        if not is_none and not _is_within(name.casefold(), own, value_of(host, name)):
            return name
    had, image = _config(before.details), _config(before.image)
    for name in FROM_IMAGE:
        own = value_of(had, name)
        if own and not value_of(body, name) and not _is_same(own, value_of(image, name)):
            return name
    variables = set(texts_of(value_of(had, "Env"))) - set(texts_of(value_of(image, "Env")))
    if not variables <= set(texts_of(value_of(body, "Env"))):
        return "Env"
    labels = _own_labels(value_of(had, "Labels")) - _own_labels(value_of(image, "Labels"))
    return "" if labels <= _own_labels(value_of(body, "Labels")) else "Labels"


def _new_label(body: Any, details: Any) -> str:
    asked = value_of(body, "Labels")
    had = labels_in(details)
    same_service = compose_service_in(asked) == compose_service_in(had)
    return "" if same_service and _own_labels(asked) <= _own_labels(had) else "Labels"


def _own_labels(labels: Any) -> set[tuple[str, str]]:
    """Return the labels that are not compose's record of its own work."""
    pairs = pairs_in(labels)
    return {(name, str(value)) for name, value in pairs if not name.startswith(COMPOSE_LABELS)}


def _network(host: Any) -> str:
    mode = str(value_of(host, "NetworkMode") or "")
    return "bridge" if mode in BRIDGES else mode


def _new_network(body: Any, details: Any) -> str:
    had = value_of(value_of(details, "NetworkSettings"), "Networks")
    by_id = {str(value_of(one, "NetworkID") or name): one for name, one in pairs_in(had)}
    for name, endpoint in pairs_in(networks_asked(body)):
        known = {**by_id, **(had if isinstance(had, dict) else {})}
        if name not in known or not _is_within("", endpoint, known[name]):
            return f"the network {name}"
    return ""


def networks_asked(body: Any) -> Any:
    return value_of(value_of(body, "NetworkingConfig"), "EndpointsConfig")


def was_mounted(asked: Any, details: Any) -> bool:
    """Return whether an entry of `Binds` or `Mounts` was in the container before, as open."""
    mounts = mounts_in(details)
    if isinstance(asked, str):
        return _is_among(_bind_of(asked), mounts)
    literally = items_of(value_of(value_of(details, "HostConfig"), "Mounts"))
    if any(_is_same(asked, one) for one in literally):
        return True
    return _is_plain(asked) and _is_among(_mount_of(asked, "Target"), mounts)


def _is_among(asked: Mounted, mounts: Iterable[Mounted]) -> bool:
    return any(asked in (mount, replace(mount, is_writable=False)) for mount in mounts)


PLAIN = {
    *("type", "source", "target", "readonly", "consistency", "bindoptions", "volumeoptions"),
    *("propagation", "createmountpoint", "nocopy", "labels"),
}


def _is_plain(mount: Any) -> bool:
    """Return whether `Mounted` says everything about an entry of `Mounts`."""
    options = (value_of(mount, "BindOptions"), value_of(mount, "VolumeOptions"))
    named = [pair for holder in (mount, *options) for pair in pairs_in(holder)]
    known = all(name.casefold() in PLAIN for name, value in named if value)
    return known and str(value_of(mount, "Type")).casefold() in ("bind", "volume")


def beyond(host: Any, details: Any) -> dict[str, Any]:
    """Return the settings of a new container without what the one before had."""
    left: dict[str, Any] = {}
    for name, value in pairs_in(host):
        key, had = name.casefold(), value_of(value_of(details, "HostConfig"), name)
        if key in ("binds", "mounts"):
            left[name] = [one for one in items_of(value) if not was_mounted(one, details)]
        elif isinstance(value, list) and key not in MASKS:
            left[name] = [one for one in value if not _is_within(key, [one], had)]
        elif not _is_within(key, value, had):
            left[name] = value
    return left


def _is_within(key: str, asked: Any, had: Any) -> bool:
    """Return whether a value adds nothing: it is empty, the same, or a part of the other."""
    if key in MASKS:
        return asked is None or bool(asked == had)
    if not asked:
        return True
    if key in CAPABILITIES:
        return _capabilities(asked) <= _capabilities(had)
    if key in IN_ORDER:
        return words_of(asked) == words_of(had)
    if key in SETS:
        return {name for name, _one in pairs_in(asked)} <= {name for name, _one in pairs_in(had)}
    if isinstance(asked, dict):
        pairs = asked.items()
        return all(_is_within(name.casefold(), one, value_of(had, name)) for name, one in pairs)
    if isinstance(asked, list):
        return all(any(_is_same(one, other) for other in items_of(had)) for one in asked)
    return _is_same(asked, had)


def _is_same(one: Any, other: Any) -> bool:
    return bool(_plain(one) == _plain(other))


def _plain(value: Any) -> Any:
    """Return a value without empty entries, and with names in lower case."""
    if isinstance(value, dict):
        pairs = [(name.casefold(), _plain(inner)) for name, inner in value.items()]
        return {name: inner for name, inner in pairs if inner}
    if isinstance(value, list):
        return [_plain(inner) for inner in value] or None
    return value or None


def _capabilities(names: Any) -> set[str]:
    return {name.upper().removeprefix("CAP_") for name in words_of(names)}


def words_of(command: Any) -> list[str]:
    """Return a command as words; the engine also accepts a single text."""
    return [command] if isinstance(command, str) else texts_of(command)


# Programs that a tier may run in a container although it changes nothing there.

MORE = "…"
Probes = Mapping[str, tuple[tuple[str, ...], ...]]
"""Commands by name of the container, "*" for all. `MORE` at the end permits further words."""
PROBES: Probes = {
    "*": (
        ("pg_isready", MORE),
        ("redis-cli", "ping"),
        ("mysqladmin", "ping"),
        ("nginx", "-t"),
        ("rabbitmq-diagnostics", "-q", "ping"),
    )
}
OF_A_PROBE = {
    *("cmd", "attachstdin", "attachstdout", "attachstderr", "tty", "detach", "detachkeys"),
    *("consolesize",),
}


def is_probe(body: Any, container: str, probes: Probes) -> bool:
    """Return whether a program for a container is declared: word by word, without any options."""
    command = value_of(body, "Cmd")
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        return False
    if any(value for name, value in pairs_in(body) if name.casefold() not in OF_A_PROBE):
        return False
    declared = (*probes.get("*", ()), *probes.get(container, ()))
    return any(_is_declared(tuple(command), probe) for probe in declared)


def _is_declared(command: tuple[str, ...], probe: tuple[str, ...]) -> bool:
    if probe[-1:] == (MORE,):
        return command[: len(probe) - 1] == probe[:-1]
    return command == probe


# The rules.

# Other paths show join tokens and secrets of a cluster, or bypass the filter.
READABLE = {
    *("_ping", "version", "info", "events", "system", "containers", "images", "networks"),
    *("volumes", "distribution", "exec", "nodes", "services", "tasks", "plugins"),
}
CHANGEABLE = {*READABLE, "auth", "build", "commit"} - {"nodes", "plugins", "system"}
READABLE_AT_FULL = READABLE | {"secrets", "configs"}
FALSE = ("", "0", "no", "false", "none")
ACT_OPTIONS = {"t", "timeout", "signal", "detachkeys", "ignore"}
REMOVE_OPTIONS = {"v", "force", "link"}

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
class Facts:
    """Facts about a request: from the engine, and from what this run did before."""

    target: Any = None
    """The inspection of the container or service in the path."""
    named: Mapping[str, Any] = field(default_factory=dict)
    """The inspections of `containers_in` the request."""
    own: frozenset[str] = frozenset()
    """Those of them that are containers of this installation."""
    before: tuple[Before, ...] = ()
    """The containers that a new one may replace."""
    image_id: str = ""
    """The image that the reference of a new container means now."""
    devices: Mapping[str, str] = field(default_factory=dict)
    """The directories of the host that volumes for a new container are made of."""
    is_made_here: bool = False
    """Set if this run created the target."""
    is_replaced: bool = False
    """Set if this run created another container in the place of the target."""
    stands_for: str = ""
    """The name of the container that the target was created to replace."""
    is_described: bool = False
    """Set if the compose file of the target lies in the watch's directories, unchanged since."""
    was_network: Any = None
    """The inspection of a network with the name of a new one, which this run removed."""
    is_known_exec: bool = False
    """Set if this run created the program in a container that is to be started."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    level: int
    hidden: tuple[str, ...] = ()
    """Directories of this installation: no container may mount them."""
    paths: tuple[str, ...] = ()
    """Directories that a new container may mount; empty for all that are not withheld."""
    probes: Probes = field(default_factory=lambda: PROBES)
    real_path: Callable[[str], str] = field(default=os.path.realpath)
    is_own_source: Callable[[str], bool] = field(default=lambda source: False)
    """Return whether a volume or directory belongs to this installation."""

    def objection(self, asked: DockerRequest, facts: Facts | None = None) -> str:
        """Return the reason for a refusal, for the docker client to print; empty if permitted."""
        facts = facts or Facts()
        return self.objection_to_path(asked) or self._at_this_tier(
            self._objection_to_content(asked, facts) or self._objection_for_own(asked, facts)
        )

    def objection_to_path(self, asked: DockerRequest) -> str:
        """Return the reason for a refusal that method and path are enough for."""
        return self._at_this_tier(self._reason_of_path(asked))

    def is_probe(self, asked: DockerRequest, facts: Facts) -> bool:
        is_exec = body_kind(asked) == "exec"
        return is_exec and is_probe(asked.body, name_in(facts.target), self.probes)

    def _at_this_tier(self, reason: str) -> str:
        return f"not at Tier {self.level}: {reason}" if reason else ""

    def _objection_for_own(self, asked: DockerRequest, facts: Facts) -> str:
        named = next((name for name in containers_in(asked) if name in facts.own), "")
        if named:
            return f"{named} is a container of Claude Ops itself, which holds this run"
        entered = [] if self.is_probe(asked, facts) else _entered_by(asked)
        for name in entered:
            if source := self._own_source(mounts_in(facts.named.get(name))):
                return f"{name} shows {source}, which belongs to Claude Ops itself"
        if body_kind(asked) == "container":
            return ""
        task = value_of(value_of(asked.body, "TaskTemplate"), "ContainerSpec")
        if source := self._own_source(mounts_asked(task)):
            return f"{source} belongs to Claude Ops itself"
        return ""

    def _own_source(self, mounts: Iterable[Mounted]) -> str:
        """Return the first source that holds, or is held by, files of this installation."""
        return next((mount.source for mount in mounts if self._is_own(mount.source)), "")

    def _is_own(self, source: str) -> bool:
        if not source:
            return False
        return self.is_own_source(source) or (
            source.startswith("/")
            and any(map(self._meets_hidden, (_normal(source), self._real(source))))
        )

    def _meets_hidden(self, path: str) -> bool:
        return any(_is_inside(path, place) or _is_inside(place, path) for place in self.hidden)

    def _real(self, source: str) -> str:
        return _normal(self.real_path(_normal(source)))

    def _reason_of_path(self, asked: DockerRequest) -> str:
        if asked.is_libpod and not _is_known_of_libpod(asked):
            return (
                f"{asked.method} {_shown(asked)} of Podman's own interface is not known here: use "
                "its Docker-compatible one"
            )
        if asked.method not in METHODS:
            return f"{asked.method} is not passed on"
        if asked.is_read:
            return self._objection_to_reading(asked.words)
        if self.level >= FULL:
            return self._objection_to_change(asked)
        if _may_be_safe(asked, self.level):
            return ""
        may = "only reads"
        if self.level >= SAFE:
            may = f"only reads, may {_list(SAFE_ACTS)}, and creates one again as it was"
        return f"{asked.method} {_shown(asked)} is a change, and this tier {may}"

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
        parts = asked.words
        if parts[:1] in (("session",), ("grpc",)):
            return "BuildKit cannot be filtered: build with DOCKER_BUILDKIT=0"
        if not parts or parts[0] not in CHANGEABLE:
            return f"{asked.method} {_shown(asked)} is not for any tier"
        if parts[-1] == "prune":
            return "pruning is not for any tier: name what is to be removed"
        if parts[0] == "volumes" and (asked.method, *parts) != ("POST", "volumes", "create"):
            return "volumes are neither changed nor removed"
        networks = {mode.strip().casefold() for mode in asked.values("networkmode")}
        if parts == ("build",) and "host" in networks:
            return "a build does not get the host's network"
        return ""

    def _objection_to_content(self, asked: DockerRequest, facts: Facts) -> str:
        match (asked.method, *asked.words):
            case ("POST", "containers", "create"):
                return self._objection_to_creation(asked, facts)
            case ("POST", "containers", _, act) if act in SAFE_ACTS:
                return self._objection_to_act(asked, facts)
            case ("POST", "containers", _, "exec"):
                return self._objection_to_exec(asked, facts)
            case ("POST", "containers", _, "rename") if self.level < FULL:
                is_taken = asked.value("name").lstrip("/") == (facts.stands_for or None)
                return "" if is_taken else "only a replacement takes the name of its predecessor"
            case ("DELETE", "containers", _):
                return self._objection_to_removal(asked, facts)
            case ("DELETE", "networks", _) if self.level < FULL:
                labels = value_of(facts.target, "Labels")
                return "" if value_of(labels, PROJECT) else "only a network of compose is removed"
            case ("POST", "networks", "create") if self.level < FULL:
                is_same = is_same_network(asked.body, facts.was_network)
                return "" if is_same else "a network is created only as this run removed it"
            case ("POST", "exec", _, "start" | "resize"):
                return "" if facts.is_known_exec else "this run created no such program"
            case ("DELETE", "services", _):
                why = self._objection_to_service(value_of(facts.target, "Spec"))
                return f"it could not be created again: {why}" if why else ""
        return self._objection_to_body(asked)

    def _objection_to_body(self, asked: DockerRequest) -> str:
        match body_kind(asked):
            case "settings":
                return self._objection_to_settings(asked.body)
            case "service":
                return self._objection_to_service(asked.body)
            case "volume":
                return self._objection_to_volume(asked.body)
        return ""

    def _objection_to_act(self, asked: DockerRequest, facts: Facts) -> str:
        if asked.body:
            return "a container starts as it was made"
        if unknown := _options_in(asked) - ACT_OPTIONS:
            return f"{asked.act} is passed on without {min(unknown)}"
        why = self._objection_to_links(mounts_in(facts.target))
        if why:
            return why if asked.act in STARTING else f"it could not be started again: {why}"
        if asked.act in ("stop", "kill") and removes_itself(facts.target):
            return self._objection_to_vanishing(facts)
        return ""

    def _objection_to_vanishing(self, facts: Facts) -> str:
        """Object to the end of a container that is removed when it stops."""
        if facts.is_made_here or not removes_itself(facts.target):
            return ""
        if self.level < FULL:
            return "it was started with --rm and would be removed: restart it"
        if has_unnamed_volumes(facts.target):
            return "it was started with --rm: its volumes would be removed with it"
        return ""

    def _objection_to_removal(self, asked: DockerRequest, facts: Facts) -> str:
        if asked.value("v").strip().casefold() not in FALSE:
            return "a container is removed without its volumes: leave out -v"
        if unknown := _options_in(asked) - REMOVE_OPTIONS:
            return f"a removal is passed on without {min(unknown)}"
        if self.level < FULL and not facts.is_replaced:
            if not facts.is_described:
                return (
                    "a container is removed only after another one was created in its place, or if "
                    "a compose file in the working directory describes it that has not changed "
                    "since; it can be started and restarted"
                )
            if has_unnamed_volumes(facts.target):
                return "a container with unnamed volumes would lose them: restart it"
        if why := self._objection_to_links(mounts_in(facts.target)):
            return f"it could not be created again: {why}"
        return "" if self.level < FULL else self._objection_to_vanishing(facts)

    def _objection_to_exec(self, asked: DockerRequest, facts: Facts) -> str:
        if self.level < FULL and not self.is_probe(asked, facts):
            return "in a container only declared probes run, such as `pg_isready`"
        return "nothing runs privileged" if value_of(asked.body, "Privileged") else ""

    def _objection_to_creation(self, asked: DockerRequest, facts: Facts) -> str:
        host = value_of(asked.body, "HostConfig")
        own = self._own_source(_followed(host, facts))
        why = self._objection_to_container(host, networks_asked(asked.body), facts)
        if not why and own:
            why = f"{own} belongs to Claude Ops itself"
        if self.level >= FULL and not why:
            return ""
        if not facts.before:
            return why if self.level >= FULL else "no container was seen that it would replace"
        reasons = [self._objection_to_replacement(asked, facts, one) for one in facts.before]
        return "" if "" in reasons else reasons[0]

    def _objection_to_replacement(self, asked: DockerRequest, facts: Facts, before: Before) -> str:
        """Permit what recreates a container, and at Tier 3 what it was given before."""
        host, details = value_of(asked.body, "HostConfig"), before.details
        if why := self._objection_to_links(_followed(host, facts)):
            return why
        difference = first_difference(asked.body, before)
        own = self._own_source(_followed(host, facts))
        is_same_image = facts.image_id == value_of(details, "Image")
        if own and (difference or not is_same_image):
            return f"{own} belongs to Claude Ops itself"
        if not difference and (before.is_namesake or self.level >= FULL):
            return ""
        if self.level < FULL:
            what = difference or "its name"
            return f"{name_in(details)} is created again only as it was: {what} differs"
        had = value_of(value_of(details, "NetworkSettings"), "Networks")
        asked_for = pairs_in(networks_asked(asked.body))
        networks = {name: one for name, one in asked_for if name not in (had or {})}
        if why := self._objection_to_container(beyond(host, details), networks, facts):
            return why
        looser = loosened(asked.body, before)
        return f"{name_in(details)} was confined by {looser}" if looser else ""

    def _objection_to_container(self, host: Any, networks: Any, facts: Facts) -> str:
        if "host" in {name.casefold() for name, _endpoint in pairs_in(networks)}:
            return "no container shares the host's own network"
        devices = [facts.devices.get(mount.source, "") for mount in mounts_asked(host)]
        return self._objection_to_settings(host) or self._objection_to_paths(filter(None, devices))

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

    def _objection_to_volume(self, body: Any) -> str:
        """Object to a volume that is more than an empty directory of the engine."""
        if str(value_of(body, "Driver") or "local") != "local" or value_of(body, "DriverOpts"):
            return "a volume's driver could bind any directory of the host (DriverOpts)"
        if value_of(body, "ClusterVolumeSpec"):
            return "volumes of a cluster are not for any tier"
        name = str(value_of(body, "Name") or "")
        return f"{name} belongs to Claude Ops itself" if name and self.is_own_source(name) else ""

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
            real = self._real(written)
            if self._is_withheld(written) or self._is_withheld(real):
                return f"no container gets {source} of the host"
            if self.paths and not self.is_of_watch(real):
                return f"no container gets {source} of the host: it is outside of this watch"
        return ""

    def _objection_to_links(self, mounts: Iterable[Mounted]) -> str:
        """Object to a source that leads elsewhere than its path says.

        What was withheld from the beginning (a socket, the whole host) is the operator's choice,
        unless it is in a directory of the watch, where a link may be new.
        """
        for mount in mounts:
            if not mount.is_path:
                continue
            written, real = _normal(mount.source), self._real(mount.source)
            is_chosen = self._is_withheld(written) and not self.is_of_watch(written)
            is_harmless = any(_is_inside(real, place) for place in HARMLESS)
            is_elsewhere = self._is_withheld(real) and not is_harmless and not is_chosen
            is_moved = is_elsewhere and not self.is_of_watch(real)
            is_own = self._meets_hidden(real) and not self._meets_hidden(written)
            if real != written and (is_moved or is_own):
                return f"{mount.source} leads to {real}, which no container gets"
        return ""

    def is_of_watch(self, path: str) -> bool:
        return any(_is_inside(path, _normal(place)) for place in self.paths)

    def _is_withheld(self, path: str) -> bool:
        home_itself = re.fullmatch(r"/home/[^/]+", path) is not None
        return (
            path in NOT_WHOLE
            or home_itself
            or "/.ssh" in path
            or path.endswith(".sock")
            or any(_is_inside(path, place) for place in NOT_EVEN_PARTLY)
            or self._meets_hidden(path)
        )


def _followed(host: Any, facts: Facts) -> list[Mounted]:
    """Return what settings mount, with the directories behind volumes."""
    mounts = mounts_asked(host)
    behind = [facts.devices[mount.source] for mount in mounts if mount.source in facts.devices]
    return [*mounts, *(Mounted(source=path, destination="") for path in behind)]


def _may_be_safe(asked: DockerRequest, level: int) -> bool:
    """Return whether a change may be permitted below Tier 3; its content decides."""
    match (asked.method, *asked.parts):
        case ("POST", "containers", _, "exec") | ("POST", "exec", _, "start" | "resize"):
            return True
        case (
            ("POST", "containers", "create")
            | ("POST", "containers", _, "rename")
            | ("DELETE", "containers", _)
            | ("DELETE", "networks", _)
            | ("POST", "networks", "create")
        ):
            return level >= SAFE
    return bool(asked.act) and level >= SAFE


def _entered_by(asked: DockerRequest) -> list[str]:
    """Return the containers whose files a request reads or writes."""
    match asked.words:
        case ("containers", name, "exec" | "attach" | "archive"):
            return [name, *joined_by(asked)]
    return joined_by(asked)


def _is_known_of_libpod(asked: DockerRequest) -> bool:
    match asked.words:
        case ("_ping" | "info" | "version" | "events",):
            return asked.is_read
        case ("containers" | "images", "json") | ("containers", "stats"):
            return asked.is_read
        case ("containers", _, "json" | "logs" | "stats" | "top" | "exists"):
            return asked.is_read
        case ("images", *_name, "json"):
            return asked.is_read
    return bool(asked.act)


def asks_elsewhere(parts: tuple[str, ...]) -> bool:
    """Return whether the engine would contact a host that the caller names."""
    return parts[0] == "distribution" or parts in (("images", "search"), ("plugins", "privileges"))


def _options_in(asked: DockerRequest) -> set[str]:
    return {name.casefold() for name, _value in pairs_of(asked.query)}


def _normal(path: str) -> str:
    """Normalise a path; `normpath` alone keeps two leading slashes."""
    return os.path.normpath("/" + path.lstrip("/"))


def _is_inside(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory.rstrip('/')}/")


def _shown(asked: DockerRequest) -> str:
    return "/" + "/".join(asked.parts)


def _list(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]} a container"
