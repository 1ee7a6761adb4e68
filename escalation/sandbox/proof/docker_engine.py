"""A simulated Docker engine on a Unix socket, which works with the real docker client.

It has the containers `web` and `db` and records every request, so that a proof can check what
passed the Docker filter.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import re
import socketserver
import struct
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

API_VERSION = "1.47"
IMAGE = "sha256:" + hashlib.sha256(b"shop").hexdigest()
STARTED = "2026-01-02T03:04:05.000000000Z"
NETWORK = {"Name": "bridge", "Id": "b" * 64, "Driver": "bridge", "Scope": "local"}
VOLUME = {"Name": "shop_data", "Driver": "local", "Mountpoint": "/data", "Scope": "local"}
IMAGE_CONFIG: dict[str, Any] = {"Env": ["MODE=live"]}
APART = ("HostConfig", "NetworkingConfig")


@dataclass
class Container:
    name: str
    running: bool = True
    paused: bool = False
    restarts: int = 0
    """How often it was restarted, or went on after it had been stopped or paused."""
    logs: tuple[str, ...] = ()
    project: str = ""
    """The compose project."""
    mounts: tuple[dict[str, Any], ...] = ()
    config: dict[str, Any] = field(default_factory=dict)
    """What it was created with besides its image, as in a request."""
    id: str = ""

    def __post_init__(self) -> None:
        self.id = self.id or hashlib.sha256(self.name.encode()).hexdigest()

    @property
    def image(self) -> str:
        return str(self.config.get("Image") or f"shop/{self.name}")

    def start(self) -> None:
        self.restarts += not self.running
        self.running = True

    def summary(self) -> dict[str, Any]:
        return {
            "Id": self.id,
            "Names": [f"/{self.name}"],
            "Image": self.image,
            "ImageID": IMAGE,
            "Command": "serve",
            "Created": 1767323045,
            "State": "running" if self.running else "exited",
            "Status": "Up 2 hours" if self.running else "Exited (137) 5 minutes ago",
            "Ports": [],
            "Labels": self.labels,
        }

    @property
    def labels(self) -> dict[str, str]:
        project = {"com.docker.compose.project": self.project} if self.project else {}
        return {**project, **(self.config.get("Labels") or {})}

    def details(self) -> dict[str, Any]:
        return {
            "Id": self.id,
            "Name": f"/{self.name}",
            "Created": STARTED,
            "Image": IMAGE,
            "RestartCount": self.restarts,
            "State": {
                "Status": "running" if self.running else "exited",
                "Running": self.running,
                "Paused": self.paused,
                "ExitCode": 0 if self.running else 137,
                "StartedAt": STARTED,
            },
            "Config": {
                "Tty": False,
                **{name: value for name, value in self.config.items() if name not in APART},
                "Image": self.image,
                "Env": [*IMAGE_CONFIG["Env"], *(self.config.get("Env") or ())],
                "Labels": self.labels,
            },
            "HostConfig": {
                **{"NetworkMode": "bridge", "LogConfig": {"Type": "json-file"}},
                **(self.config.get("HostConfig") or {}),
            },
            "NetworkSettings": {
                "Networks": (self.config.get("NetworkingConfig") or {}).get("EndpointsConfig", {})
            },
            "Mounts": list(self.mounts),
        }


def shop() -> dict[str, Container]:
    return {
        "web": Container("web", logs=("web is listening\n", "web answered 200\n")),
        "db": Container("db", logs=("db is ready\n",)),
    }


@dataclass
class DockerEngine:
    """State and recorded requests of the simulated engine."""

    containers: dict[str, Container] = field(default_factory=shop)
    volumes: dict[str, dict[str, Any]] = field(default_factory=lambda: {"shop_data": dict(VOLUME)})
    requests: list[str] = field(default_factory=list)
    """As "POST /containers/web/restart", without version and query, in order."""
    bodies: list[bytes] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    """Requests that are answered with a conflict, each once."""
    follower_left: threading.Event = field(default_factory=threading.Event)
    """Set when a client that followed the logs has disconnected."""

    @property
    def changes(self) -> list[str]:
        """The requests that change something."""
        return [line for line in self.requests if not line.startswith(("GET ", "HEAD "))]

    def find(self, name: str) -> Container | None:
        """Find a container by name or beginning of its id."""
        plain = name.lstrip("/")
        by_id = (one for one in self.containers.values() if plain and one.id.startswith(plain))
        return self.containers.get(plain) or next(by_id, None)

    def answer_to(self, path: str, query: dict[str, str]) -> Any:
        """Return the answer for a path without a name, or None."""
        everything = self.containers.values()
        shown = [one for one in everything if one.running or query.get("all") == "1"]
        running = sum(one.running for one in everything)
        version = {"Version": "27.0.0", "ApiVersion": API_VERSION, "MinAPIVersion": "1.24"}
        used = dict.fromkeys(("Images", "Containers", "Volumes", "BuildCache"), ())
        return {
            "version": {**version, "Os": "linux", "Arch": "amd64", "Components": []},
            "info": {
                **{"ID": "simulated", "Name": "shop", "ServerVersion": "27.0.0", "NCPU": 2},
                **{"Containers": len(everything), "ContainersRunning": running},
            },
            "containers/json": [one.summary() for one in shown],
            "images/json": [
                {"Id": IMAGE, "RepoTags": ["shop/web:latest"], "Created": 1767323045, "Size": 1200}
            ],
            "volumes": {"Volumes": list(self.volumes.values()), "Warnings": []},
            "networks": [NETWORK],
            "system/df": {"LayersSize": 1200, **used},
            "events": {"Type": "container", "Action": "start", "Actor": {"ID": "web"}},
        }.get(path)

    def note(self, line: str, body: bytes) -> None:
        """Record a request, with names instead of ids."""
        self.requests.append(self._named(line))
        self.bodies.append(body)

    def refuses(self, line: str) -> bool:
        named = self._named(line)
        if named in self.refusals:
            self.refusals.remove(named)
            return True
        return False

    def _named(self, line: str) -> str:
        for name, container in list(self.containers.items()):
            line = line.replace(container.id, name)
        return line


@contextmanager
def docker_engine(path: Path) -> Iterator[DockerEngine]:
    engine = DockerEngine()
    with _EngineServer(path, engine) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield engine
        finally:
            server.shutdown()
            path.unlink(missing_ok=True)


class _EngineServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, path: Path, engine: DockerEngine) -> None:
        self.engine = engine
        path.unlink(missing_ok=True)
        super().__init__(str(path), _EngineHandler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect."""


class _EngineHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _EngineServer

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing; requests are recorded."""

    def address_string(self) -> str:
        return "unix"

    @property
    def engine(self) -> DockerEngine:
        return self.server.engine

    def _take(self) -> None:
        path, _mark, query = self.path.partition("?")
        self.query = {name: values[0] for name, values in parse_qs(query).items()}
        plain = re.sub(r"^/v[0-9.]+(?=/)", "", unquote(path))
        self.content = self._read_content()
        self.engine.note(f"{self.command} {plain}", self.content)
        parts = [part for part in plain.split("/") if part and part != "libpod"]
        if self.engine.refuses(f"{self.command} {plain}"):
            self._say(409, "refused")
        elif self.command in ("GET", "HEAD"):
            self._read(parts)
        else:
            self._change(parts)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _take

    def _read_content(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        content = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            content += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return content

    def _read(self, parts: list[str]) -> None:
        match parts:
            case ["_ping"]:
                self._send(200, b"OK", "text/plain")
            case ["containers", name, what]:
                self._read_container(name, what)
            case ["exec", _id, "json"]:
                self._json({"ID": "e" * 64, "Running": False, "ExitCode": 0})
            case ["images", *name, "json"] if name:
                found = {"Id": IMAGE, "RepoTags": ["shop/web:latest"], "Os": "linux"}
                self._json({**found, "Config": IMAGE_CONFIG})
            case ["volumes", name] if name in self.engine.volumes:
                self._json(self.engine.volumes[name])
            case _ if (found := self.engine.answer_to("/".join(parts), self.query)) is not None:
                self._json(found)
            case _:
                self._say(404, "page not found")

    def _read_container(self, name: str, what: str) -> None:
        container = self.engine.find(name)
        if container is None:
            return self._say(404, f"No such container: {name}")
        match what:
            case "json":
                self._json(container.details())
            case "logs":
                self._logs(container)
            case "top":
                self._json({"Titles": ["PID", "CMD"], "Processes": [["1", "serve"]]})
            case "stats":
                self._json({"name": f"/{container.name}", "id": container.id, "read": STARTED})
            case "archive":
                self._archive()
            case _:
                self._say(404, "page not found")

    def _logs(self, container: Container) -> None:
        """Send the logs; with `follow`, wait until the client disconnects."""
        self.send_response_only(200)
        self.send_header("Content-Type", "application/vnd.docker.multiplexed-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        follows = self.query.get("follow") == "1"
        with contextlib.suppress(ConnectionError):  # disconnected before it has read all
            for line in container.logs:
                self._chunk(_frame(line.encode()))
            if follows:
                self.rfile.read(1)
            else:
                self.wfile.write(b"0\r\n\r\n")
        if follows:
            self.engine.follower_left.set()
            self.close_connection = True

    def _archive(self) -> None:
        stat = {"name": "hello", "size": 6, "mode": 0o644, "mtime": STARTED, "linkTarget": ""}
        encoded = base64.b64encode(json.dumps(stat).encode()).decode()
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            entry = tarfile.TarInfo("hello")
            entry.size = 6
            tar.addfile(entry, io.BytesIO(b"hello\n"))
        self._send(
            200, packed.getvalue(), "application/x-tar", {"X-Docker-Container-Path-Stat": encoded}
        )

    def _change(self, parts: list[str]) -> None:
        match parts:
            case ["containers", "create"]:
                self._create()
            case [kind, "prune"]:
                self._prune(kind)
            case ["volumes", "create"]:
                name = str(json.loads(self.content or b"{}").get("Name") or "made")
                self.engine.volumes[name] = {**VOLUME, "Name": name}
                self._json(self.engine.volumes[name], 201)
            case ["volumes", name]:
                self.engine.volumes.pop(name, None)
                self._send(204, b"")
            case ["containers", name, *what]:
                self._change_container(name, what)
            case ["exec", _id, "start"]:
                self._terminal()
            case ["images", "create"] | ["images", "load"] | ["build"]:
                self._json({"status": "done"})
            case _:
                self._say(404, "page not found")

    def _prune(self, kind: str) -> None:
        if kind == "containers":
            gone = [name for name, one in self.engine.containers.items() if not one.running]
            for name in gone:
                del self.engine.containers[name]
        if kind == "volumes":
            self.engine.volumes.clear()
        self._json({"SpaceReclaimed": 0})

    def _change_container(self, name: str, what: list[str]) -> None:
        container = self.engine.find(name)
        if container is None:
            return self._say(404, f"No such container: {name}")
        match (self.command, *what):
            case ("DELETE",):
                del self.engine.containers[container.name]
            case ("POST", "start"):
                container.start()
            case ("POST", "stop" | "kill"):
                container.running = False
            case ("POST", "pause" | "unpause" as act):
                container.restarts += container.paused and act == "unpause"
                container.paused = act == "pause"
            case ("POST", "restart"):
                container.running = True
                container.restarts += 1
            case ("POST", "rename"):
                del self.engine.containers[container.name]
                container.name = self.query["name"]
                self.engine.containers[container.name] = container
            case _:
                return self._use_container(what)
        return self._send(204, b"")

    def _create(self) -> None:
        name = self.query.get("name", "made")
        if name in self.engine.containers:
            return self._say(409, f"The container name {name} is already in use")
        number = hashlib.sha256(f"{name} {len(self.engine.requests)}".encode()).hexdigest()
        config = json.loads(self.content or b"{}")
        made = Container(name, running=False, restarts=-1, config=config, id=number)
        self.engine.containers[name] = made
        return self._json({"Id": made.id, "Warnings": []}, 201)

    def _use_container(self, what: list[str]) -> None:
        match (self.command, *what):
            case ("POST", "exec"):
                number = hashlib.sha256(str(len(self.engine.requests)).encode()).hexdigest()
                self._json({"Id": number}, 201)
            case ("POST", "attach"):
                self._terminal()
            case ("POST", "wait"):
                self._json({"StatusCode": 0})
            case ("PUT", "archive"):
                self._send(200, b"")
            case _:
                self._say(404, "page not found")

    def _terminal(self) -> None:
        """Send a line, then echo the input."""
        self.wfile.write(
            b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.multiplexed-stream\r\n"
            b"Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
            if self.headers.get("Upgrade")
            else b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\n"
        )
        self.wfile.write(_frame(b"inside\n"))
        self.close_connection = True
        if self.query.get("stdin") == "1" or b'"Repeat"' in self.content:
            while line := self.rfile.readline():
                self.wfile.write(_frame(line))

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _json(self, value: Any, status: int = 200) -> None:
        self._send(status, json.dumps(value).encode() + b"\n")

    def _say(self, status: int, message: str) -> None:
        self._json({"message": message}, status)

    def _send(
        self,
        status: int,
        content: bytes,
        kind: str = "application/json",
        headers: dict[str, str] | None = None,
    ) -> None:
        self.send_response_only(status)
        common = {"Content-Type": kind, "Api-Version": API_VERSION, "Ostype": "linux"}
        for name, value in {**common, **(headers or {})}.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD" and status != 204:
            self.wfile.write(content)


def _frame(data: bytes) -> bytes:
    """Return a frame of standard output in a multiplexed stream."""
    return struct.pack(">BxxxL", 1, len(data)) + data
