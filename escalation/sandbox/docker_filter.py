"""A Unix socket in front of that of a Docker engine, which passes what a tier may request.

The engine gets the id of a container in place of its name. Before a request with an effect is
passed on, `judge_effect` is called: cooldowns and approvals count there, by container and not by
spelling.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

import h11

from escalation.command_policy.programs import understand
from escalation.command_policy.understanding import NotUnderstood
from escalation.sandbox.broker import (
    HEAD_SECONDS,
    LENGTHS,
    Exchange,
    Headers,
    Refused,
    Relay,
    end_to_end,
    serving_connections,
)
from escalation.sandbox.command_runner import connect_to, listening_at
from escalation.sandbox.docker_rules import (
    COMPOSE_FILES,
    PROBES,
    PROJECT,
    STARTING,
    STOPPING,
    AmbiguousRequest,
    Before,
    DockerEffect,
    DockerRequest,
    EffectKind,
    Facts,
    JudgeEffect,
    OnAnswer,
    OnRefusal,
    Probes,
    Rules,
    allow_effect,
    body_kind,
    command_for,
    compose_service_in,
    containers_in,
    has_effect,
    ignore_answer,
    ignore_refusal,
    is_hijacked,
    is_paused,
    is_running,
    items_of,
    labels_in,
    mounts_asked,
    mounts_in,
    name_in,
    options_in,
    parse_request,
    read_json,
    removes_itself,
    value_of,
    volumes_in,
)
from sessions_app.tiers import highest_tier

Engine = Path | tuple[str, int]
"""A socket, or host and port."""
ASK_SECONDS = 10.0
CREATE_SECONDS = 600.0
CONNECT_SECONDS = 10.0
MAX_BYTES = 8 * 1024 * 1024
LIST = "/containers/json?all=1"


class EngineClient:
    """Asks the engine itself, outside of every rule."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def connected(self, seconds: float = CONNECT_SECONDS) -> socket.socket:
        if not isinstance(self._engine, Path):
            return socket.create_connection(self._engine, seconds)
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(seconds)
            connect_to(connection, self._engine)
        except OSError:
            connection.close()
            raise
        return connection

    def ask(
        self, method: str, target: str, body: bytes | None = None, seconds: float = ASK_SECONDS
    ) -> tuple[int, bytes]:
        """Return status and content of an answer; raise OSError, HTTPException or ValueError."""
        connection = HTTPConnection("docker")
        with self.connected(min(seconds, CONNECT_SECONDS)) as wire:
            wire.settimeout(seconds)
            connection.sock = wire
            headers = {} if body is None else {"Content-Type": "application/json"}
            connection.request(method, target, body, headers)
            answer = connection.getresponse()
            content = answer.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ValueError("its answer is too long")
        return answer.status, content

    def container(self, name: str) -> dict[str, Any] | None:
        """Return the description of a container by name or id; None if there is none."""
        found = self.found(f"/containers/{quote(name, safe='')}/json")
        if found is not None and not found.get("Id"):
            raise AmbiguousRequest("the engine does not identify the container")
        return found

    def containers(self) -> list[dict[str, Any]]:
        """Return the list of all containers, also of those that do not run."""
        rows = self._json(LIST)
        if not isinstance(rows, list):
            raise AmbiguousRequest("the engine lists no containers")
        return [row for row in rows if isinstance(row, dict)]

    def devices(self, names: Iterable[str]) -> dict[str, str]:
        """Return the directories of the host that volumes are made of, by name."""
        found = {name: self.found(f"/volumes/{quote(name, safe='')}") for name in names}
        devices = {
            name: str(value_of((volume or {}).get("Options"), "device") or "")
            for name, volume in found.items()
        }
        # Two slashes begin the address of another host.
        return {
            name: path
            for name, path in devices.items()
            if path.startswith("/") and not path.startswith("//")
        }

    def found(self, path: str) -> dict[str, Any] | None:
        """Return an object of the engine; None if there is none."""
        found = self._json(path)
        if found is not None and not isinstance(found, dict):
            raise AmbiguousRequest("the engine does not answer clearly")
        return found

    def _json(self, path: str) -> Any:
        try:
            status, content = self.ask("GET", path)
            if status == 404:
                return None
            found = json.loads(content)
        except OSError as problem:
            why = problem.strerror or problem
            raise Refused(502, f"no Docker engine here: {why}") from None
        except (HTTPException, ValueError) as problem:
            raise AmbiguousRequest(f"the engine does not answer clearly ({problem})") from None
        if status != 200:
            raise AmbiguousRequest(f"the engine does not answer clearly ({status})")
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnContainer:
    """The description of this container by the engine."""

    id: str
    project: str = ""
    sources: frozenset[str] = frozenset()
    """Names of volumes and directories of the host that hold files of this installation."""


class OwnContainers:
    """Finds the containers of this installation: its own and those of its compose project.

    A container is known by the engine's description of it. `name` is the beginning of the id of
    this container, empty outside a container; `places` are paths of the installation inside it.
    """

    def __init__(self, name: str, places: tuple[str, ...], engine: EngineClient) -> None:
        self._name = name
        self._places = places
        self._engine = engine
        self._lock = threading.Lock()
        self._known: OwnContainer | None = None

    @property
    def may_exist(self) -> bool:
        return bool(self._name)

    def contain(self, details: dict[str, Any]) -> bool:
        own = self._own()
        if own is None:
            return False
        return details.get("Id") == own.id or _is_in_project(details, own)

    def has_source(self, source: str) -> bool:
        """Return whether a volume, or a directory of the host, belongs to this installation."""
        own = self._own()
        if own is None:
            return False
        if source.startswith("/"):
            return any(_overlap(source, path) for path in own.sources if path.startswith("/"))
        in_project = bool(own.project) and source.startswith(f"{own.project}_")
        return source in own.sources or in_project

    def _own(self) -> OwnContainer | None:
        """Return None if the engine does not know this container: it runs on another host."""
        if not self._name:
            return None
        with self._lock:
            if self._known is None and (found := self._engine.container(self._name)):
                self._known = _own(found, self._places)
            return self._known


def _own(found: dict[str, Any], places: tuple[str, ...]) -> OwnContainer:
    mounts = [
        mount
        for mount in found.get("Mounts") or []
        if any(_overlap(str(mount.get("Destination")), place) for place in places)
    ]
    sources = {str(mount.get("Name") or mount.get("Source") or "") for mount in mounts}
    project = str(labels_in(found).get(PROJECT) or "")
    return OwnContainer(id=str(found["Id"]), project=project, sources=frozenset(sources - {""}))


def _overlap(one: str, other: str) -> bool:
    """Return whether one path is inside the other, or the same."""
    first, second = (f"{os.path.normpath('/' + path.lstrip('/'))}/" for path in (one, other))
    return first.startswith(second) or second.startswith(first)


def _is_in_project(details: dict[str, Any], own: OwnContainer) -> bool:
    return bool(own.project) and labels_in(details).get(PROJECT) == own.project


Token = tuple[str, str]
"""An act ("start", "stop", "remove" or "create") and the id of the container that it is for; a
creation that failed has a name."""
MOST_EXECS = 4096


class RunContainers:
    """Remembers the containers that this run has seen and changed, by the engine's id.

    A stop counts as a restart and a removal as a redeployment when they happen. Each leaves a
    token for the other half, which does not count again; every token is used once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._details: dict[str, dict[str, Any]] = {}
        """Containers that were there before this run, as they were first seen."""
        self._names: dict[str, str] = {}
        self._made: dict[str, str] = {}
        """Containers that this run created, with the one in whose place they are, or ""."""
        self._tokens: set[Token] = set()
        self._networks: dict[str, dict[str, Any]] = {}
        """Networks that this run removed, by name."""
        self._execs: dict[str, None] = {}

    def see(self, details: dict[str, Any]) -> None:
        """Remember a container as it is before anything happens to it."""
        number = str(details["Id"])
        with self._lock:
            self._names.setdefault(number, name_in(details))
            if number not in self._made:
                self._details.setdefault(number, details)

    def name_of(self, details: dict[str, Any]) -> str:
        number = str(details["Id"])
        with self._lock:
            return self._names.get(self._made.get(number) or number) or name_in(details)

    def removes_network(self, details: dict[str, Any]) -> None:
        with self._lock:
            self._networks[str(details.get("Name"))] = details

    def network(self, name: str) -> dict[str, Any] | None:
        with self._lock:
            return self._networks.get(name)

    def predecessors(
        self, name: str, service: tuple[str, str], engine: EngineClient
    ) -> list[tuple[dict[str, Any], bool]]:
        """Return the containers with a name or of a compose service, and whether by name."""
        rows = engine.containers()
        for row in rows:
            names = [str(one).lstrip("/") for one in row.get("Names") or ()]
            number = str(row.get("Id"))
            is_namesake = any(_is_namesake(name, one) for one in names)
            is_meant = is_namesake or _is_of(service, row.get("Labels"))
            if is_meant and not self._knows(number) and (found := engine.container(number)):
                self.see(found)
        with self._lock:
            seen = [
                (one, _is_namesake(name, self._names[number]))
                for number, one in self._details.items()
            ]
        meant = [found for found in seen if found[1] or _is_of(service, labels_in(found[0]))]
        existing = {str(row.get("Id")) for row in rows}
        # One that exists comes before another of its name that was removed.
        return sorted(meant, key=lambda found: (not found[1], found[0]["Id"] not in existing))

    def _knows(self, number: str) -> bool:
        with self._lock:
            return number in self._details or number in self._made

    def facts_about(self, number: str) -> dict[str, Any]:
        with self._lock:
            origin = self._made.get(number, "")
            return {
                "is_made_here": number in self._made,
                "is_replaced": ("remove", number) in self._tokens,
                "stands_for": self._names.get(origin, ""),
            }

    def kind_of(self, asked: DockerRequest, facts: Facts) -> tuple[EffectKind, Token | None]:
        """Return what a request counts as, and the token that it used."""
        number = str(value_of(facts.target, "Id") or "")
        match (asked.method, *asked.words):
            case ("POST", "containers", "create"):
                return self._kind_of_creation(asked, facts)
            case ("POST", "containers", _, act) if act in STARTING:
                is_down = not is_running(facts.target) or is_paused(facts.target)
                token = self._take(("start", number)) if is_down else None
                return (EffectKind.OTHER if token else EffectKind.RESTART), token
            case ("POST", "containers", _, act) if act in STOPPING:
                if not is_running(facts.target):
                    return EffectKind.OTHER, None
                token = self._take(("stop", number))
                is_removed = act != "pause" and removes_itself(facts.target)
                counted = EffectKind.REMOVE if is_removed else EffectKind.STOP
                return (EffectKind.OTHER if token else counted), token
            case ("POST", "containers", _, "exec" | "attach"):
                return EffectKind.EXEC, None
            case ("DELETE", "containers", _):
                token = self._take(("remove", number))
                is_free = token or self._has_place_of(number)
                return (EffectKind.OTHER if is_free else EffectKind.REMOVE), token
        return _kind_of_service(asked), None

    def _kind_of_creation(
        self, asked: DockerRequest, facts: Facts
    ) -> tuple[EffectKind, Token | None]:
        for key in _keys_of(asked, facts):
            if token := self._take(("create", key)):
                return EffectKind.OTHER, token
        is_named = asked.value("name") or facts.before
        return (EffectKind.REDEPLOYMENT if is_named else EffectKind.OTHER), None

    def _has_place_of(self, number: str) -> bool:
        """Return whether a removal was counted before: the engine may have refused it."""
        with self._lock:
            return ("create", self._made.get(number) or number) in self._tokens

    def _take(self, token: Token) -> Token | None:
        with self._lock:
            if token not in self._tokens:
                return None
            self._tokens.remove(token)
            return token

    def give(self, token: Token | None) -> None:
        if token:
            with self._lock:
                self._tokens.add(token)

    def permitted(self, effect: DockerEffect, token: Token | None) -> None:
        """Leave the token for the other half of an effect that is about to happen."""
        number = effect.container_id
        is_stop = effect.kind == EffectKind.STOP or (token is not None and token[0] == "stop")
        if is_stop:
            self.give(("start", number))
        if effect.kind == EffectKind.REMOVE:
            with self._lock:
                origin = self._made.get(number) or number
            self.give(("create", origin))

    def failed(self, asked: DockerRequest, facts: Facts) -> None:
        """Let a creation be tried again: the docker client pulls a missing image after it."""
        for key in _keys_of(asked, facts)[:1]:
            self.give(("create", key))

    def made(self, number: str, before: tuple[Before, ...]) -> None:
        """Remember a container that this run created."""
        replaced = before[0] if before and before[0].is_namesake else None
        origin = str(replaced.details["Id"]) if replaced else ""
        with self._lock:
            old = [origin, *(one for one, first in self._made.items() if first == origin)]
            self._made[number] = origin
            self._tokens.add(("start", number))
            if origin:
                self._tokens |= {(act, one) for one in old for act in ("stop", "remove")}

    def add_exec(self, number: str) -> None:
        with self._lock:
            self._execs[number] = None
            if len(self._execs) > MOST_EXECS:
                del self._execs[next(iter(self._execs))]

    def has_exec(self, number: str) -> bool:
        with self._lock:
            return number in self._execs


def _keys_of(asked: DockerRequest, facts: Facts) -> list[str]:
    """Return the ids of the containers that a new one may replace, or its own name."""
    name = asked.value("name").lstrip("/")
    return [str(one.details["Id"]) for one in facts.before] or ([name] if name else [])


def _is_of(service: tuple[str, str], labels: Any) -> bool:
    return service != ("", "") and compose_service_in(labels) == service


def _kind_of_service(asked: DockerRequest) -> EffectKind:
    match (asked.method, *asked.words):
        case ("POST", "services", "create") | ("POST", "services", _, "update"):
            return EffectKind.REDEPLOYMENT
        case ("DELETE", "services", _):
            return EffectKind.REMOVE
    return EffectKind.OTHER


def _is_namesake(name: str, other: str) -> bool:
    """Return whether a new name is the old one, or that of compose while it replaces: `id_name`."""
    prefix, _line, rest = name.partition("_")
    is_temporary = len(prefix) == SHORT_ID and may_be_id(prefix) and rest == other
    return bool(name) and (name == other or is_temporary)


logger = logging.getLogger(__name__)
DEFAULT_SOCKETS = ("/var/run/docker.sock", "/run/podman/podman.sock")
OF_A_USER = "podman/podman.sock"
WAITING = 256
MAX_JUDGED_BYTES = 256 * 1024


def engine_socket(environment: Mapping[str, str]) -> Path | None:
    """Return the socket that the operator's docker client uses, or Podman's; None without one."""
    if host := environment.get("DOCKER_HOST"):
        sockets = [host.removeprefix("unix://")] if host.startswith("unix:///") else []
    else:
        sockets = [*DEFAULT_SOCKETS]
        if directory := environment.get("XDG_RUNTIME_DIR"):
            sockets.append(f"{directory}/{OF_A_USER}")
    return next((Path(path) for path in sockets if Path(path).is_socket()), None)


def _with_real(places: tuple[str, ...]) -> tuple[str, ...]:
    """Return the paths as written and resolved."""
    return (*places, *map(os.path.realpath, places))


def peer_command(client: socket.socket) -> tuple[str, ...]:
    """Return the command line of the client, as it says itself; empty if it has ended."""
    size = struct.calcsize("3i")
    credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    pid, _user, _group = struct.unpack("3i", credentials)
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(line.decode(errors="replace").rstrip("\0").split("\0"))


def takes_down(argv: tuple[str, ...]) -> bool:
    """Return whether a command line is `docker compose down`, also as docker starts its plugin.

    A client can hide that. Then its removal is refused after its stops, as for `docker rm`.
    """
    program = os.path.basename(argv[0]) if argv else ""
    if program not in ("docker", "docker-compose"):
        return False
    try:
        words = ("docker" if "compose" in argv[1:] else program, *argv[1:])
        return understand(words).action == "docker compose down"
    except NotUnderstood:
        return False


class DockerFilter:
    def __init__(
        self,
        socket_path: Path,
        engine: Engine,
        level: int,
        *,
        hidden: tuple[str, ...] = (),
        paths: tuple[str, ...] = (),
        own_container: str = "",
        probes: Probes = PROBES,
        judge_effect: JudgeEffect = allow_effect,
        on_answer: OnAnswer = ignore_answer,
        on_refusal: OnRefusal = ignore_refusal,
    ) -> None:
        """`paths` are the directories of the watch, which new containers may mount.

        `on_refusal` is called for each change that the tier may not make.
        """
        self._path = socket_path
        self._engine = EngineClient(engine)
        # The socket of the engine would bypass the filter.
        places = (*hidden, *([str(engine)] if isinstance(engine, Path) else []))
        self._own = OwnContainers(own_container, _with_real(hidden), self._engine)
        self._rules = Rules(
            level=level,
            hidden=_with_real(places),
            paths=_with_real(paths),
            probes=probes,
            is_own_source=self._own.has_source,
        )
        self._run = RunContainers()
        self._judge = judge_effect
        self._on_answer = on_answer
        self._on_refusal = on_refusal

    @contextmanager
    def serving(self) -> Iterator[Path]:
        """Serve in the block; then remove the socket and close all connections."""
        with serving_connections(listening_at(self._path, WAITING), self._serve):
            try:
                yield self._path
            finally:
                self._path.unlink(missing_ok=True)

    def _serve(self, client: socket.socket) -> None:
        _DockerExchange(
            client,
            self._engine,
            self._rules,
            self._own,
            self._run,
            self._judge,
            self._on_answer,
            self._on_refusal,
        ).answer()


class _DockerExchange(Exchange):
    def __init__(
        self,
        client: socket.socket,
        engine: EngineClient,
        rules: Rules,
        own: OwnContainers,
        run: RunContainers,
        judge: JudgeEffect,
        on_answer: OnAnswer,
        on_refusal: OnRefusal,
    ) -> None:
        super().__init__(client, HEAD_SECONDS)
        self._engine = engine
        self._rules = rules
        self._own = own
        self._run = run
        self._judge = judge
        self._on_answer = on_answer
        self._on_refusal = on_refusal

    def refusal_content(self, refusal: Refused) -> tuple[bytes, bytes]:
        """Return the engine's format, so that the docker client prints the message."""
        return b"application/json", json.dumps({"message": str(refusal)}).encode() + b"\n"

    def handle(self, request: h11.Request) -> None:
        try:
            asked, body = self._read(request)
            facts = self._facts(asked)
            effect = self._permit(asked, facts)
        except AmbiguousRequest as problem:
            raise Refused(400, f"the request cannot be read: {problem}") from None
        if facts.target and asked.container:
            asked = asked.with_container(str(facts.target["Id"]))
        if effect is None:
            return self._execute(request, asked, facts, body)
        with self._reporting(partial(self._on_answer, effect)):
            return self._execute(request, asked, facts, body)

    def _execute(
        self, request: h11.Request, asked: DockerRequest, facts: Facts, body: bytes | None
    ) -> None:
        if body is not None and body_kind(asked) in ("container", "exec"):
            return self._create(asked, facts, body)
        return self._pass_on(request, asked, body)

    def _read(self, request: h11.Request) -> tuple[DockerRequest, bytes | None]:
        """Return the parsed request and the body, if the decision needs it."""
        asked = parse_request(request.method.decode(), request.target.decode("latin-1"))
        # First without the body: a refused client need not send it.
        if objection := self._rules.objection_to_path(asked):
            self._refuse_change(asked, objection, lambda rules: rules.objection_to_path(asked))
        if not body_kind(asked):
            return asked, None
        content = read_json(self._body(MAX_JUDGED_BYTES))
        return replace(asked, body=content), json.dumps(content).encode() if content else b""

    def _facts(self, asked: DockerRequest) -> Facts:
        """Look up what the rules have to know; raise Refused if the target does not exist."""
        if asked.is_read:
            shows_files = asked.words[2:3] == ("archive",)
            is_asked = shows_files or self._own.may_exist
            return self._named(asked, with_volumes=shows_files) if is_asked else Facts()
        match asked.words:
            case ("containers", "create"):
                return self._facts_of_creation(asked)
            case ("exec", number, _):
                return Facts(is_known_exec=self._run.has_exec(number))
            case ("services", name, *_rest) if name != "create":
                return Facts(target=self._service(name))
            case ("networks", "create"):
                return Facts(was_network=self._run.network(str(value_of(asked.body, "Name"))))
            case ("networks", name) if asked.method == "DELETE":
                return Facts(target=self._network(name))
        facts = self._named(asked)
        if asked.container and facts.target is None:
            raise Refused(404, f"No such container: {asked.container}")
        if facts.target:
            self._run.see(facts.target)
            known = self._run.facts_about(str(facts.target["Id"]))
            facts = replace(facts, **known, is_described=self._is_described(facts.target))
        return facts

    def _is_described(self, details: dict[str, Any]) -> bool:
        """Return whether compose can create a container again as it was: from files of the watch
        that are older than the container."""
        labels = labels_in(details)
        files = [name for name in str(labels.get(COMPOSE_FILES) or "").split(",") if name]
        if not files or not any(compose_service_in(labels)):
            return False
        try:
            created = datetime.fromisoformat(str(details.get("Created"))).timestamp()
            return all(
                self._rules.is_of_watch(os.path.realpath(name))
                and os.stat(name).st_mtime <= created
                for name in files
            )
        except (OSError, ValueError):
            return False

    def _network(self, name: str) -> dict[str, Any]:
        found = self._engine.found(f"/networks/{quote(name, safe='')}")
        if found is None:
            raise Refused(404, f"network {name} not found")
        return found

    def _named(self, asked: DockerRequest, *, with_volumes: bool = True) -> Facts:
        found = {name: self._engine.container(name) for name in containers_in(asked)}
        named = {name: details for name, details in found.items() if details}
        for details in named.values() if with_volumes else ():
            behind = self._engine.devices(volumes_in(mounts_in(details))).values()
            rows = [{"Type": "bind", "Source": path} for path in behind]
            details["Mounts"] = [*items_of(details.get("Mounts")), *rows]
        return Facts(
            target=named.get(asked.container),
            named=named,
            own=frozenset(name for name, details in named.items() if self._own.contain(details)),
        )

    def _service(self, name: str) -> dict[str, Any]:
        found = self._engine.found(f"/services/{quote(name, safe='')}")
        if found is None:
            raise Refused(404, f"service {name} not found")
        return found

    def _facts_of_creation(self, asked: DockerRequest) -> Facts:
        name, labels = asked.value("name").lstrip("/"), value_of(asked.body, "Labels")
        if self._own.contain({"Config": {"Labels": labels}}):
            raise Refused(403, "no container is added to the compose project of Claude Ops itself")
        service = compose_service_in(labels)
        found = self._run.predecessors(name, service, self._engine) if name or any(service) else []
        before = tuple(
            Before(
                details=details,
                image=self._image(str(details.get("Image") or "")),
                is_namesake=is_namesake,
            )
            for details, is_namesake in found
            if not self._own.contain(details)
        )
        meant = self._image(str(value_of(asked.body, "Image") or "")) if before else None
        image = str((meant or {}).get("Id") or "")
        volumes = volumes_in(mounts_asked(value_of(asked.body, "HostConfig")))
        devices = self._engine.devices(volumes)
        return replace(self._named(asked), before=before, image_id=image, devices=devices)

    def _image(self, name: str) -> dict[str, Any] | None:
        return self._engine.found(f"/images/{quote(name)}/json") if name else None

    def _permit(self, asked: DockerRequest, facts: Facts) -> DockerEffect | None:
        """Raise Refused unless the rules and `judge_effect` permit the request."""
        if objection := self._rules.objection(asked, facts):
            self._refuse_change(asked, objection, lambda rules: rules.objection(asked, facts))
        if not has_effect(asked) or self._rules.is_probe(asked, facts):
            return None
        kind, token = self._run.kind_of(asked, facts)
        effect = self._effect(kind, asked, facts)
        if reason := self._reason_against(effect):
            self._run.give(token)
            raise Refused(403, reason)
        # The rules once more: links may have changed while a person was asked.
        reason, has_left = self._rules.objection(asked, facts), self._has_left()
        if reason or has_left:
            self._run.give(token)
            self._on_answer(effect, 0)
        if reason:
            raise Refused(403, reason)
        if has_left:
            raise ConnectionAbortedError("the client has disconnected")
        self._run.permitted(effect, token)
        if asked.method == "DELETE" and asked.words[0] == "networks":
            self._run.removes_network(facts.target)
        return effect

    def _refuse_change(
        self, asked: DockerRequest, objection: str, at_tier: Callable[[Rules], str]
    ) -> NoReturn:
        """Report a change that the tier may not make, with the lowest tier that may."""
        if has_effect(asked):
            higher = range(self._rules.level + 1, highest_tier() + 1)
            willing = (tier for tier in higher if not at_tier(replace(self._rules, level=tier)))
            name = asked.container or asked.value("name")
            self._on_refusal(command_for(asked, name), objection, next(willing, 0))
        raise Refused(403, objection)

    def _reason_against(self, effect: DockerEffect) -> str:
        try:
            return self._judge(effect, self._client)
        except Exception:
            logger.exception("Could not judge an effect on Docker; it does not happen")
            return "It could not be checked whether this may happen now: try again."

    def _effect(self, kind: EffectKind, asked: DockerRequest, facts: Facts) -> DockerEffect:
        known = facts.target or (facts.before[0].details if facts.before else None)
        labels = labels_in(known) or value_of(asked.body, "Labels")
        name = asked.value("name").lstrip("/") if body_kind(asked) == "container" else ""
        if known and asked.words[0] == "services":
            name = str(value_of(value_of(known, "Spec"), "Name") or "")
        elif known:
            name = self._run.name_of(known)
        vector = command_for(asked, name)
        return DockerEffect(
            kind=kind,
            service=name,
            container_id=str(value_of(known, "Id") or ""),
            verb=vector[1],
            vector=vector,
            options=options_in(asked),
            compose_service=compose_service_in(labels)[1],
            is_part_of_down=takes_down(peer_command(self._client)),
        )

    def _create(self, asked: DockerRequest, facts: Facts, body: bytes) -> None:
        """Pass on a creation and remember its id before the client has it."""
        try:
            status, content = self._engine.ask(asked.method, asked.target, body, CREATE_SECONDS)
            number = str(value_of(json.loads(content), "Id") or "")
        except (OSError, HTTPException, ValueError) as problem:
            raise Refused(502, f"the Docker engine does not answer: {problem}") from None
        match (body_kind(asked), bool(number)):
            case ("container", True):
                self._run.made(number, facts.before)
            case ("container", False):
                self._run.failed(asked, facts)
            case ("exec", True):
                self._run.add_exec(number)
        self._respond(status, b"application/json", content, seconds=60)

    def _pass_on(self, request: h11.Request, asked: DockerRequest, body: bytes | None) -> None:
        try:
            engine = self._engine.connected()
        except OSError as problem:
            raise Refused(502, f"no Docker engine here: {problem.strerror or problem}") from None
        self._continue_body()
        with engine:
            relay = Relay(self._client, self._wire, engine)
            relay.ask(asked.method, asked.target, _headers_for(request, asked, body), body)
            self._relay(relay)


def _headers_for(request: h11.Request, asked: DockerRequest, body: bytes | None) -> Headers:
    framing = [pair for pair in request.headers if pair[0] in LENGTHS]
    if body is not None:
        framing = [(b"content-length", str(len(body)).encode())]
    upgrade = is_hijacked(asked) and any(name == b"upgrade" for name, _value in request.headers)
    connection = (
        [(b"connection", b"Upgrade"), (b"upgrade", b"tcp")]
        if upgrade
        else [(b"connection", b"close")]
    )
    headers = end_to_end(request, {b"host", *LENGTHS})
    return [(b"host", b"docker"), *headers, *framing, *connection]


SHORT_ID = 12
_ID = re.compile(r"[0-9a-f]{1,64}")


def may_be_id(word: str) -> bool:
    return bool(_ID.fullmatch(word))
