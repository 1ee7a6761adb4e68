"""A stand-in for a Kubernetes API server: a few resources over plain HTTP."""

from __future__ import annotations

import base64
import gzip
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Key = tuple[str, str, str]
"""Resource, namespace (empty for a cluster's own) and name."""

RESOURCES = {
    "v1": {
        "namespaces": "Namespace",
        "nodes": "Node",
        "pods": "Pod",
        "configmaps": "ConfigMap",
        "secrets": "Secret",
        "services": "Service",
        "events": "Event",
        "replicationcontrollers": "ReplicationController",
    },
    "apps/v1": {
        "deployments": "Deployment",
        "statefulsets": "StatefulSet",
        "daemonsets": "DaemonSet",
        "replicasets": "ReplicaSet",
    },
    "batch/v1": {"jobs": "Job", "cronjobs": "CronJob"},
    "authorization.k8s.io/v1": {"selfsubjectaccessreviews": "SelfSubjectAccessReview"},
}
SHORT = {
    **{"namespaces": ["ns"], "nodes": ["no"], "pods": ["po"], "configmaps": ["cm"]},
    **{"services": ["svc"], "events": ["ev"], "deployments": ["deploy"], "jobs": []},
    **{"statefulsets": ["sts"], "daemonsets": ["ds"], "replicasets": ["rs"], "cronjobs": ["cj"]},
}
OF_CLUSTER = ("namespaces", "nodes", "selfsubjectaccessreviews")
VERSION_OF = {name: version for version, names in RESOURCES.items() for name in names}
RELEASE = {
    "name": "shop",
    "namespace": "shop",
    "version": 3,
    "info": {"status": "deployed", "last_deployed": "2026-01-01T00:00:00Z", "notes": "hunter2"},
    "chart": {
        "metadata": {"name": "shop", "version": "1.2.3", "appVersion": "4", "annotations": {}},
        "values": {"password": "hunter2"},
    },
    "config": {"password": "hunter2"},
    "manifest": "kind: Secret\ndata: hunter2\n",
    "hooks": [{"manifest": "hunter2"}],
}


def packed(release: Any) -> str:
    """Encodes a release as Helm and Kubernetes do."""
    inner = base64.b64encode(gzip.compress(json.dumps(release).encode()))
    return base64.b64encode(inner).decode()


def unpacked(text: str) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(base64.b64decode(text))))


def made(resource: str, namespace: str, name: str, **parts: Any) -> dict[str, Any]:
    version = VERSION_OF[resource]
    labels = parts.pop("labels", {})
    where = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": version,
        "kind": RESOURCES[version][resource],
        "metadata": {"name": name, **where, "labels": labels, "uid": f"uid-{name}"},
        **parts,
    }


def workload(resource: str, name: str, *containers: str) -> dict[str, Any]:
    pods = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": one, "image": "shop"} for one in containers]},
    }
    selector = {"matchLabels": {"app": name}}
    spec = {"replicas": 1, "selector": selector, "template": pods}
    status = {"replicas": 1, "readyReplicas": 1, "updatedReplicas": 1, "availableReplicas": 1}
    return made(resource, "shop", name, spec=spec, status=status)


def first_objects() -> dict[Key, dict[str, Any]]:
    pod = {
        "spec": {"containers": [{"name": "web", "image": "shop"}]},
        "status": {"phase": "Running"},
    }
    release = {"name": "shop", "owner": "helm", "status": "deployed", "version": "3"}
    objects = [
        made("namespaces", "", "shop"),
        made("nodes", "", "node-1", spec={}),
        made("pods", "shop", "web-5d8f7c9b6d-abcde", **pod),
        workload("deployments", "web", "web"),
        workload("statefulsets", "db", "db"),
        workload("daemonsets", "logger", "logger"),
        made("configmaps", "shop", "settings", data={"colour": "blue"}),
        made("secrets", "shop", "password", type="Opaque", data={"word": "aHVudGVyMg=="}),
        made(
            *("secrets", "shop", "sh.helm.release.v1.shop.v3"),
            type="helm.sh/release.v1",
            labels=release,
            data={"release": packed(RELEASE)},
        ),
        # Labelled as a release of Helm, and something else.
        made(
            *("secrets", "shop", "disguised"),
            type="Opaque",
            labels={"owner": "helm"},
            data={"word": "aHVudGVyMg=="},
        ),
    ]
    return {key_of(one): one for one in objects}


def key_of(found: dict[str, Any]) -> Key:
    kinds = {kind: name for names in RESOURCES.values() for name, kind in names.items()}
    metadata = found["metadata"]
    return kinds[found["kind"]], metadata.get("namespace", ""), metadata["name"]


@dataclass
class KubeApi:
    port: int = 0
    objects: dict[Key, dict[str, Any]] = field(default_factory=first_objects)
    requests: list[str] = field(default_factory=list)
    """Method and target, as they arrived."""
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    follower_left: threading.Event = field(default_factory=threading.Event)

    @property
    def changes(self) -> list[str]:
        reads = ("GET", "POST /apis/authorization")
        return [line.partition("?")[0] for line in self.requests if not line.startswith(reads)]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def api(self) -> KubeApi:
        return self.server.api  # type: ignore[attr-defined,no-any-return]

    def do_GET(self) -> None:
        self.api.requests.append(f"{self.command} {self.path}")
        self.api.headers.append({name.lower(): value for name, value in self.headers.items()})
        self.content = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.api.bodies.append(self.content)
        target = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(target.query).items()}
        parts = target.path.strip("/").split("/")
        if self.headers.get("upgrade"):
            self.become_echo()
        elif not self.answer_discovery(parts):
            self.answer_resource(parts)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_GET

    def answer_discovery(self, parts: list[str]) -> bool:
        groups = [name.split("/") for name in RESOURCES if "/" in name]
        match parts:
            case ["version"]:
                self.answer({"major": "1", "minor": "32", "gitVersion": "v1.32.4"})
            case ["api"]:
                self.answer({"kind": "APIVersions", "versions": ["v1"]})
            case ["apis"]:
                listed = [_group(*names) for names in groups]
                self.answer({"kind": "APIGroupList", "apiVersion": "v1", "groups": listed})
            case ["api", "v1"]:
                self.answer(_resources("v1"))
            case ["apis", group, version] if f"{group}/{version}" in RESOURCES:
                self.answer(_resources(f"{group}/{version}"))
            case ["healthz" | "readyz" | "livez"]:
                self.answer_text("ok")
            case _:
                return False
        return True

    def answer_resource(self, parts: list[str]) -> None:
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        namespace = ""
        if rest[:1] == ["namespaces"] and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        resource, name, subresource = [*rest, "", "", ""][:3]
        if resource not in VERSION_OF:
            return self.answer_status(404, "NotFound")
        if resource == "selfsubjectaccessreviews":
            kind = {"kind": "SelfSubjectAccessReview", "apiVersion": VERSION_OF[resource]}
            return self.answer({**kind, "status": {"allowed": True}})
        if not name:
            return self.answer_collection(resource, namespace)
        return self.answer_object((resource, namespace, name), subresource)

    def answer_collection(self, resource: str, namespace: str) -> None:
        if self.command == "POST":
            is_binary = self.content.startswith(b"k8s")
            found = made(resource, namespace, "binary") if is_binary else json.loads(self.content)
            self.api.objects[resource, namespace, found["metadata"]["name"]] = found
            return self.answer(found, 201)
        wanted = [
            part.split("=") for part in self.query.get("labelSelector", "").split(",") if part
        ]
        items = [
            one
            for (kind, where, _name), one in self.api.objects.items()
            if kind == resource
            and (not namespace or where == namespace)
            and all(one["metadata"]["labels"].get(name) == value for name, value in wanted)
        ]
        if "watch" in self.query:
            return self.stream([{"type": "ADDED", "object": one} for one in items])
        version = VERSION_OF[resource]
        kind = f"{RESOURCES[version][resource]}List"
        return self.answer(
            {
                "kind": kind,
                "apiVersion": version,
                "metadata": {"resourceVersion": "1"},
                "items": items,
            }
        )

    def answer_object(self, key: Key, subresource: str) -> None:
        found = self.api.objects.get(key)
        if subresource == "log":
            return self.answer_text("web is listening\n")
        if found is None:
            return self.answer_status(404, "NotFound")
        if subresource == "scale":
            return self.answer_scale(found)
        if self.command == "DELETE":
            del self.api.objects[key]
            return self.answer({"kind": "Status", "apiVersion": "v1", "status": "Success"})
        if self.command == "PATCH":
            merge(found, json.loads(self.content))
        elif self.command == "PUT":
            found = self.api.objects[key] = json.loads(self.content)
        return self.answer(found)

    def answer_scale(self, found: dict[str, Any]) -> None:
        if self.command in ("PUT", "PATCH"):
            found["spec"]["replicas"] = json.loads(self.content)["spec"]["replicas"]
        replicas = {"replicas": found["spec"]["replicas"]}
        kind = {"kind": "Scale", "apiVersion": "autoscaling/v1"}
        self.answer({**kind, "metadata": found["metadata"], "spec": replicas, "status": replicas})

    def become_echo(self) -> None:
        """Repeats what is typed, as a terminal would."""
        self.send_response(101)
        self.send_header("Connection", "Upgrade")
        self.send_header("Upgrade", self.headers["upgrade"])
        self.end_headers()
        while data := self.connection.recv(65536):
            self.connection.sendall(data)
        self.close_connection = True

    def stream(self, events: list[Any]) -> None:
        """Sends events, and then waits until the client has gone."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        for event in events:
            self.wfile.write(json.dumps(event).encode() + b"\n")
        self.connection.settimeout(30)
        if not self.connection.recv(1):
            self.api.follower_left.set()
        self.close_connection = True

    def answer_status(self, code: int, reason: str) -> None:
        words = {"status": "Failure", "reason": reason, "message": reason, "code": code}
        self.answer({"kind": "Status", "apiVersion": "v1", "metadata": {}, **words}, code)

    def answer_text(self, text: str) -> None:
        self.answer_bytes(200, "text/plain", text.encode())

    def answer(self, content: Any, status: int = 200) -> None:
        self.answer_bytes(status, "application/json", json.dumps(content).encode())

    def answer_bytes(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_words: object) -> None:
        pass


def _group(name: str, version: str) -> dict[str, Any]:
    versions = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [versions], "preferredVersion": versions}


def _resources(version: str) -> dict[str, Any]:
    verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
    listed = [
        {
            "name": name,
            "singularName": kind.lower(),
            "namespaced": name not in OF_CLUSTER,
            "kind": kind,
            "verbs": verbs,
            "shortNames": SHORT.get(name, []),
        }
        for name, kind in RESOURCES[version].items()
    ]
    return {"kind": "APIResourceList", "groupVersion": version, "resources": listed}


def merge(found: dict[str, Any], patch: dict[str, Any]) -> None:
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        elif isinstance(value, dict):
            merge(found.setdefault(name, {}), value)
        else:
            found[name] = value


@contextmanager
def kube_api(context: ssl.SSLContext | None = None) -> Iterator[KubeApi]:
    api = KubeApi()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if context:
            # The handshake is left to the thread of each connection.
            server.socket = context.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        server.api = api  # type: ignore[attr-defined]
        server.daemon_threads = True
        api.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield api
        finally:
            server.shutdown()
            thread.join()


def operator_kubeconfig(**namespace: str) -> str:
    """The operator's file, with a context, perhaps a namespace, and a token."""
    cluster = {"server": "https://10.0.0.1:6443", "insecure-skip-tls-verify": True}
    context = {"cluster": "home", "user": "me", **namespace}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "home", "cluster": cluster}],
            "contexts": [{"name": "me@home", "context": context}],
            "users": [{"name": "me", "user": {"token": "hunter2"}}],
            "current-context": "me@home",
        }
    )
