"""A filter in front of a Kubernetes API server, which passes what a tier may request.

A sandbox has a kubeconfig without credentials that names this filter, so kubectl and helm work
unchanged. `kubectl proxy`, outside the sandboxes, holds the operator's credentials.

Secrets are not read at any tier, except the releases of Helm. A tier that may start pods can still
let a pod read the Secrets of its namespace.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import socket
import subprocess
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import h11

from escalation.sandbox.broker import (
    Exchange,
    Headers,
    Refused,
    Relay,
    companion,
    serving_connections,
)
from escalation.sandbox.command_runner import connect_to
from escalation.sandbox.docker_rules import AmbiguousRequest, read_json
from sessions_app.models import Change
from sessions_app.tiers import FULL, SAFE

Kind = Change.Kind

# Requests.

# The first character excludes `.` and `..`. Nothing that has a meaning here needs an encoding.
SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:~@+-]*")
REPEATED = frozenset({"command"})
OLD_VERBS = ("watch", "proxy")
OF_NAMESPACES = ("status", "finalize")


@dataclass(frozen=True, kw_only=True, slots=True)
class KubeRequest:
    """A parsed request; without a resource it is for the server itself."""

    method: str
    parts: tuple[str, ...]
    query: tuple[tuple[str, str], ...] = ()
    group: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def target(self) -> str:
        query = urlencode(self.query, quote_via=quote)
        return f"/{'/'.join(self.parts)}{'?' if query else ''}{query}"

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.query if key == name]


def parse_kube_request(method: str, target: str) -> KubeRequest:
    """Parse method and target as the API server does; raise AmbiguousRequest if unclear."""
    path, _mark, query = target.partition("?")
    parts = tuple(path.removeprefix("/").removesuffix("/").split("/"))
    if not path.startswith("/") or not all(map(SEGMENT.fullmatch, parts)):
        raise AmbiguousRequest("the address cannot be read")
    asked = KubeRequest(method=method, parts=parts, query=_pairs(query))
    match parts:
        case ("api", "v1", *rest) if rest:
            return _of_resource(asked, "", rest)
        case ("apis", group, _version, *rest) if rest:
            return _of_resource(asked, group, rest)
        case _:
            return asked


def _pairs(query: str) -> tuple[tuple[str, str], ...]:
    """Parse the query; a name may be used once, because servers differ in which value counts."""
    if not query:
        return ()
    if not query.isascii() or not query.isprintable() or {";", "#", " "} & set(query):
        raise AmbiguousRequest("the query cannot be read")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True, errors="strict")
    except ValueError:
        raise AmbiguousRequest("the query cannot be read") from None
    names = [name for name, _value in pairs if name not in REPEATED]
    if len(names) != len(set(names)):
        raise AmbiguousRequest("the query uses a name twice")
    return tuple(pairs)


def _of_resource(asked: KubeRequest, group: str, rest: list[str]) -> KubeRequest:
    namespace = ""
    if rest[0] in OLD_VERBS:
        raise AmbiguousRequest(f"/{rest[0]}/ in an address is an old spelling: leave it out")
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in OF_NAMESPACES:
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3:
        raise AmbiguousRequest("the address goes beyond a resource")
    resource, name, subresource = [*rest, "", ""][:3]
    return replace(
        asked,
        group=group,
        namespace=namespace,
        resource=resource,
        name=name,
        subresource=subresource,
    )


# Decisions.

DISCOVERY = re.compile(
    r"version|api|api/v1|apis(/[^/]+){0,2}|openapi(/.*)?|(healthz|livez|readyz)(/.*)?"
)
READABLE = ("", "status", "scale")
STREAMS = ("exec", "attach", "portforward")
REVIEWS = frozenset(
    {
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
        ("authentication.k8s.io", "selfsubjectreviews"),
    }
)
# Who may do what in the cluster, and where its data is: no tier changes these.
UNCHANGED_GROUPS = frozenset(
    f"{name}.k8s.io"
    for name in (
        *("authentication", "authorization", "certificates"),
        *("admissionregistration", "apiregistration"),
    )
)
UNCHANGED = frozenset({"clusterroles", "clusterrolebindings", "persistentvolumes"})
NOT_DELETED = frozenset(
    {"namespaces", "nodes", "persistentvolumeclaims", "customresourcedefinitions"}
)
RESTARTABLE = frozenset({"deployments", "statefulsets", "daemonsets"})
WORKLOADS = RESTARTABLE | {"pods", "replicasets", "replicationcontrollers", "jobs", "cronjobs"}
# Resources without pods in them, which kubectl may send in its binary format.
WITHOUT_PODS = frozenset(
    {
        *("configmaps", "namespaces", "services", "serviceaccounts", "ingresses", "roles"),
        *("rolebindings", "resourcequotas", "poddisruptionbudgets", "horizontalpodautoscalers"),
    }
)
RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
OUTSIDE_CONTAINER = frozenset({"hostnetwork", "hostpid", "hostipc", "hostprocess", "privileged"})
RELEASE_NAME = "sh.helm.release.v1."
RELEASE_TYPE = "helm.sh/release.v1"
OF_DEPLOYMENT = re.compile(r"(.+?)-[a-z0-9]{6,10}-[a-z0-9]{5}")
OF_STATEFUL_SET = re.compile(r"(.+)-[0-9]{1,4}")
OF_DAEMON_SET = re.compile(r"(.+)-[a-z0-9]{5}")


class RefusalCode(Enum):
    UNKNOWN = auto()
    SECRET = auto()
    NO_TIER = auto()
    NEEDS_TIER = auto()
    OUTSIDE_CONTAINER = auto()
    NOT_JSON = auto()


@dataclass(frozen=True, slots=True)
class KubeRefusal:
    code: RefusalCode
    message: str
    allowed_from: int = 0
    """The lowest tier that may do it; 0 if none may."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KubeEffect:
    kind: str
    """A value of `Change.Kind`."""
    service: str
    """The workload; empty for another kind than restart and redeploy."""
    vector: tuple[str, ...]
    """A kubectl command with the same effect."""


class Releases(Enum):
    """Tells how much of Helm's releases an answer shows; other Secrets are removed."""

    WHOLE = auto()
    WITHOUT_VALUES = auto()


@dataclass(frozen=True, kw_only=True, slots=True)
class KubeAllowed:
    effect: KubeEffect | None = None
    becomes_stream: bool = False
    releases: Releases | None = None


def judge_kube(tier: int, asked: KubeRequest, body: Any = None) -> KubeRefusal | KubeAllowed:
    """Decide on a request; `body` is its JSON, or None if it is empty or not JSON."""
    if not asked.resource:
        known = asked.method == "GET" and DISCOVERY.fullmatch("/".join(asked.parts))
        return KubeAllowed() if known else _unknown(asked)
    if asked.resource == "secrets":
        return _judge_secrets(tier, asked, body)
    if _is_read(asked):
        return KubeAllowed()
    if asked.group in UNCHANGED_GROUPS or asked.resource in UNCHANGED:
        return KubeRefusal(RefusalCode.NO_TIER, f"No tier changes {asked.resource}.")
    if asked.method == "DELETE" and (asked.resource in NOT_DELETED or not asked.name):
        what = asked.resource if asked.name else f"all {asked.resource} at once"
        return KubeRefusal(RefusalCode.NO_TIER, f"No tier deletes {what}.")
    needed = _needed_tier(asked, body)
    if not needed:
        return _unknown(asked)
    if tier < needed:
        return KubeRefusal(
            RefusalCode.NEEDS_TIER,
            f"Not at Tier {tier}: {asked.method} of {_shown(asked)} is a change and needs Tier "
            f"{needed}. Ask for escalation.",
            allowed_from=needed,
        )
    if refusal := _judge_body(asked, body):
        return refusal
    return KubeAllowed(effect=_effect(asked, body), becomes_stream=asked.subresource in STREAMS)


def _is_read(asked: KubeRequest) -> bool:
    if asked.method == "POST":
        return (asked.group, asked.resource) in REVIEWS and not asked.name
    is_log = (asked.resource, asked.subresource) == ("pods", "log")
    return asked.method == "GET" and (asked.subresource in READABLE or is_log)


def _needed_tier(asked: KubeRequest, body: Any) -> int:
    """Return the lowest tier that may make a change; 0 for a request that is not known."""
    match (asked.method, asked.resource, asked.subresource):
        case ("GET" | "POST", "pods", subresource) if subresource in STREAMS and asked.name:
            return FULL
        case ("POST", "pods", "eviction") | ("PUT" | "PATCH", "pods", "ephemeralcontainers"):
            return FULL
        case ("PUT" | "PATCH", resource, "scale") if resource in WORKLOADS:
            return SAFE
        case ("DELETE", "pods", ""):
            return SAFE
        case ("PATCH", _, "") if _is_restart(asked, body) or _is_cordon(asked, body):
            return SAFE
        case ("PUT" | "PATCH" | "DELETE", _, "") if asked.name:
            return FULL
        case ("POST", resource, "") if not asked.name and resource != "nodes":
            return FULL
        case _:
            return 0


def _is_restart(asked: KubeRequest, body: Any) -> bool:
    match body:
        case {"spec": {"template": {"metadata": {"annotations": {**annotations}}}}}:
            written = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
            only = body == written and annotations.keys() == {RESTARTED_AT}
            is_text = isinstance(annotations.get(RESTARTED_AT), str)
            return only and is_text and asked.group == "apps" and asked.resource in RESTARTABLE
        case _:
            return False


def _is_cordon(asked: KubeRequest, body: Any) -> bool:
    cordons = ({"spec": {"unschedulable": value}} for value in (True, False, None))
    return not asked.group and asked.resource == "nodes" and body in cordons


def _judge_body(asked: KubeRequest, body: Any) -> KubeRefusal | None:
    unjudged = asked.resource in WITHOUT_PODS or asked.subresource in (*STREAMS, "eviction")
    if asked.method == "DELETE" or unjudged:
        return None
    if body is None:
        return KubeRefusal(
            RefusalCode.NOT_JSON,
            "This filter reads JSON alone: write the object with `--dry-run=client -o json`, and "
            "send it with `kubectl create -f -` or `kubectl apply -f -`.",
        )
    for name, value in _settings(body):
        plain = name.casefold()
        if plain == "hostpath" and value is not None:
            return _outside("directories of its node (hostPath)")
        if plain in OUTSIDE_CONTAINER and value:
            return _outside(f"more than its container ({name})")
        if plain == "capabilities" and isinstance(value, dict) and value.get("add"):
            return _outside("capabilities")
    return None


def _settings(body: Any) -> Iterator[tuple[str, Any]]:
    """Yield each name and value in a body, at every depth; a JSON patch as what it writes."""
    waiting = [body]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
            waiting += map(_written, value)
        elif isinstance(value, dict):
            yield from value.items()
            waiting += value.values()


def _written(item: Any) -> Any:
    """Return `{"a": {"b": value}}` for an operation of a JSON patch at the path /a/b."""
    if not (isinstance(item, dict) and isinstance(item.get("path"), str)):
        return None
    written = item.get("value")
    for part in reversed(item["path"].split("/")):
        written = {part: written}
    return written


def _outside(what: str) -> KubeRefusal:
    return KubeRefusal(RefusalCode.OUTSIDE_CONTAINER, f"No pod gets {what} at any tier.")


def _judge_secrets(tier: int, asked: KubeRequest, body: Any) -> KubeRefusal | KubeAllowed:
    """Allow the releases of Helm alone: to read them, and at the full tier to write them."""
    named = asked.name.startswith(RELEASE_NAME)
    selected = any("owner=helm" in value.split(",") for value in asked.values("labelSelector"))
    is_release = isinstance(body, dict) and body.get("type") == RELEASE_TYPE
    match (asked.method, asked.subresource):
        case ("GET", "") if (named or (selected and not asked.name)) and not asked.values("watch"):
            whole = tier >= FULL
            return KubeAllowed(releases=Releases.WHOLE if whole else Releases.WITHOUT_VALUES)
        case ("POST", "") if tier >= FULL and not asked.name and is_release:
            return KubeAllowed()
        case ("PUT", "") if tier >= FULL and named and is_release:
            return KubeAllowed()
        case ("DELETE", "") if tier >= FULL and named:
            return KubeAllowed()
        case _:
            return KubeRefusal(
                RefusalCode.SECRET,
                "Secrets are neither read nor changed at any tier, except the releases of Helm "
                "(helm list): look at the pods that use them instead.",
            )


def _unknown(asked: KubeRequest) -> KubeRefusal:
    return KubeRefusal(
        RefusalCode.UNKNOWN, f"{asked.method} /{'/'.join(asked.parts)} is not passed at any tier."
    )


def _shown(asked: KubeRequest) -> str:
    return "/".join(filter(None, (asked.resource, asked.name, asked.subresource)))


def _effect(asked: KubeRequest, body: Any) -> KubeEffect:
    kind, service, words = _meaning(asked, body)
    where = (f"--namespace={asked.namespace}",) if asked.namespace else ()
    command = ("--", *asked.values("command")) if asked.subresource == "exec" else ()
    return KubeEffect(kind=kind, service=service, vector=("kubectl", *words, *where, *command))


def _meaning(asked: KubeRequest, body: Any) -> tuple[str, str, tuple[str, ...]]:
    """Return kind and service of a change, and the words of a kubectl command for it."""
    name = asked.name or _name_in(body)
    what = f"{_singular(asked.resource)}/{name}"
    match (asked.method, asked.resource, asked.subresource):
        case (_, "pods", "exec"):
            return Kind.OTHER, "", ("exec", name)
        case (_, "pods", "attach"):
            return Kind.OTHER, "", ("attach", name)
        case (_, "pods", "portforward"):
            return Kind.OTHER, "", ("port-forward", name)
        case ("DELETE", "pods", "") | (_, "pods", "eviction"):
            return Kind.RESTART, workload_of(name), ("delete", what)
        case (_, _, "scale"):
            return Kind.RESTART, name, ("scale", what, f"--replicas={_replicas_in(body)}")
        case ("DELETE", _, _):
            return Kind.OTHER, "", ("delete", what)
    if _is_restart(asked, body):
        return Kind.RESTART, name, ("rollout", "restart", what)
    if _is_cordon(asked, body):
        return Kind.OTHER, "", ("cordon" if body["spec"]["unschedulable"] else "uncordon", name)
    verb = {"POST": "create", "PUT": "replace", "PATCH": "patch"}[asked.method]
    if asked.resource in WORKLOADS:
        service = workload_of(name) if asked.resource == "pods" else name
        return Kind.REDEPLOY, service, (verb, what)
    return Kind.OTHER, "", (verb, what)


def workload_of(pod: str) -> str:
    """Return the name of the workload that a pod was named after."""
    for pattern in (OF_DEPLOYMENT, OF_STATEFUL_SET, OF_DAEMON_SET):
        if found := pattern.fullmatch(pod):
            return found[1]
    return pod


def _name_in(body: Any) -> str:
    metadata = body.get("metadata") if isinstance(body, dict) else None
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""


def _replicas_in(body: Any) -> str:
    spec = body.get("spec") if isinstance(body, dict) else None
    return str(spec.get("replicas", "?")) if isinstance(spec, dict) else "?"


def _singular(resource: str) -> str:
    if resource.endswith("ies"):
        return f"{resource[:-3]}y"
    return resource[:-2] if resource.endswith("sses") else resource.removesuffix("s")


# The releases of Helm, which are Secrets.

MAX_RELEASE_BYTES = 64 * 1024 * 1024
MAX_ANSWER_BYTES = 64 * 1024 * 1024
GZIP = b"\x1f\x8b\x08"
SHOWN_OF_INFO = ("status", "description", "first_deployed", "last_deployed", "deleted")
SHOWN_OF_CHART = ("name", "version", "appVersion")


def releases_in(answer: bytes, shown: Releases) -> bytes:
    """Return the answer with the releases of Helm alone; raise ValueError for anything else."""
    found = json.loads(answer)
    match found:
        case {"kind": "Status"}:
            return answer
        case {"kind": "SecretList", "items": list(items)}:
            kept = [_release(item, shown) for item in items]
            return json.dumps({**found, "items": [item for item in kept if item]}).encode()
        case {"kind": "Secret"} if release := _release(found, shown):
            return json.dumps(release).encode()
    raise ValueError("the answer is not a release of Helm")


def _release(secret: Any, shown: Releases) -> dict[str, Any] | None:
    match secret:
        case {
            "type": kind,
            "metadata": {"labels": {"owner": "helm"}},
            "data": {"release": str(packed)},
        } if kind == RELEASE_TYPE:
            if shown is Releases.WHOLE:
                return dict(secret)
            return _without_values(secret, packed)
    return None


def _without_values(secret: dict[str, Any], packed: str) -> dict[str, Any] | None:
    """Keep what `helm list`, `status` and `history` show; values and manifests hold passwords."""
    try:
        release = _unpacked(packed)
        info, chart = release["info"], release["chart"]["metadata"]
        kept = {
            **{name: release[name] for name in ("name", "namespace", "version")},
            "info": {name: info[name] for name in SHOWN_OF_INFO if name in info},
            "chart": {"metadata": {name: chart[name] for name in SHOWN_OF_CHART if name in chart}},
        }
    except (ValueError, KeyError, TypeError, zlib.error):
        return None
    metadata = {
        name: value
        for name, value in secret["metadata"].items()
        if name not in ("annotations", "managedFields")
    }
    return {**secret, "metadata": metadata, "data": {"release": _packed(kept)}}


def _unpacked(text: str) -> Any:
    content = base64.b64decode(base64.b64decode(text))
    if content.startswith(GZIP):
        content = zlib.decompressobj(wbits=31).decompress(content, MAX_RELEASE_BYTES)
    return json.loads(content)


def _packed(release: Any) -> str:
    content = gzip.compress(json.dumps(release).encode())
    return base64.b64encode(base64.b64encode(content)).decode()


# The operator's side.

PORT = 6443
SOCKET = "kube.sock"
ASK_SECONDS = 10.0
CONNECT_SECONDS = 10.0


def operator_config(environment: Mapping[str, str]) -> str:
    """Return the current context of the operator's kubeconfig as JSON; empty if there is none."""
    try:
        result = subprocess.run(
            ["kubectl", "config", "view", "--minify", "--output=json"],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ASK_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout if result.returncode == 0 else ""


def context_in(operator_config: str) -> tuple[str, str]:
    """Return name and namespace of the current context; raise ValueError if there is none."""
    match json.loads(operator_config):
        case {"current-context": str(current), "contexts": list(contexts)} if current:
            found = [one.get("context", {}) for one in contexts if one.get("name") == current]
            if found:
                return current, str(found[0].get("namespace", ""))
    raise ValueError("the kubeconfig has no current context")


def kubeconfig_for_sandbox(operator_config: str) -> str:
    """Return a kubeconfig with the same context and namespace that names the filter."""
    name, namespace = context_in(operator_config)
    context = {"cluster": name, "user": name, **({"namespace": namespace} if namespace else {})}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": f"http://127.0.0.1:{PORT}"}}],
            "users": [{"name": name, "user": {}}],
            "contexts": [{"name": name, "context": context}],
            "current-context": name,
        }
    )


class KubectlProxy:
    """`kubectl proxy` with the operator's credentials, started with the first connection."""

    def __init__(self, directory: Path, environment: Mapping[str, str], context: str) -> None:
        self._directory = directory
        self._environment = environment
        self._argv = [
            *("kubectl", "proxy", f"--context={context}", f"--unix-socket={SOCKET}"),
            # The filter judges; kubectl's own rules would refuse exec.
            *("--accept-paths=.*", "--reject-paths=^$", "--reject-methods=^$"),
        ]
        self._lock = threading.Lock()
        self._started = False
        self._stack = ExitStack()

    @contextmanager
    def available(self) -> Iterator[KubectlProxy]:
        """Serve connections in the block; then end kubectl and remove its socket."""
        try:
            with self._stack:
                yield self
        finally:
            (self._directory / SOCKET).unlink(missing_ok=True)

    def connected(self) -> socket.socket:
        with self._lock:
            if not self._started:
                start = companion(self._argv, self._directory, self._environment)
                self._stack.enter_context(start)
                self._started = True
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(CONNECT_SECONDS)
            connect_to(connection, self._directory / SOCKET)
        except OSError:
            connection.close()
            raise
        return connection


# The filter.

# All others are dropped: some of them would claim another identity.
PASSED_HEADERS = frozenset({b"accept", b"accept-encoding", b"content-type", b"user-agent"})
STREAM_HEADERS = frozenset(
    {
        *(b"x-stream-protocol-version", b"sec-websocket-key", b"sec-websocket-version"),
        *(b"sec-websocket-protocol", b"sec-websocket-extensions"),
    }
)
REASONS = {400: "BadRequest", 403: "Forbidden", 413: "RequestEntityTooLarge"}


class KubeFilter:
    """Serves any number of sandboxes; each brings a listener of its own network namespace."""

    def __init__(
        self,
        tier: int,
        connected: Callable[[], socket.socket],
        judge_effect: Callable[[KubeEffect, socket.socket], str] = lambda effect, client: "",
        on_refusal: Callable[[KubeEffect, KubeRefusal], None] = lambda effect, refusal: None,
        on_answer: Callable[[KubeEffect, int], None] = lambda effect, status: None,
    ) -> None:
        """`judge_effect` returns why a change may not happen now; empty if it may. It gets the
        client's connection too, and may hold up the request.

        `on_refusal` is called for each change that the tier may not make, `on_answer` for each
        other one with the status of the cluster's answer, 0 if it was not passed on.
        """
        self.tier = tier
        self.connected = connected
        self.judge_effect = judge_effect
        self.on_refusal = on_refusal
        self.on_answer = on_answer

    @contextmanager
    def serving(self, listener: socket.socket) -> Iterator[None]:
        """Serve in the block; then close the listener and all connections."""

        def serve(client: socket.socket) -> None:
            _KubeExchange(client, self).answer()

        with serving_connections(listener, serve):
            yield


class _KubeExchange(Exchange):
    def __init__(self, client: socket.socket, kube_filter: KubeFilter) -> None:
        super().__init__(client)
        self._filter = kube_filter

    def refusal_content(self, refusal: Refused) -> tuple[bytes, bytes]:
        """Return a Status, so that kubectl prints the message."""
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(refusal),
            "reason": REASONS.get(refusal.status, "InternalError"),
            "code": refusal.status,
        }
        return b"application/json", json.dumps(status).encode()

    def handle(self, request: h11.Request) -> None:
        _refuse_other_identity(request)
        content = self._body()
        try:
            asked = parse_kube_request(request.method.decode(), request.target.decode("latin-1"))
            body = _json_in(request, content)
        except AmbiguousRequest as problem:
            raise Refused(400, f"The request cannot be read: {problem}.") from None
        if content and asked.method == "GET":
            raise Refused(400, "GET has no body.")
        decision = judge_kube(self._filter.tier, asked, body)
        if isinstance(decision, KubeRefusal):
            if decision.allowed_from:
                self._filter.on_refusal(_effect(asked, body), decision)
            raise Refused(403, decision.message)
        effect = decision.effect
        if effect and (reason := self._filter.judge_effect(effect, self._client)):
            raise Refused(403, reason)
        if body is not None:
            content = json.dumps(body, ensure_ascii=False).encode()
        if decision.effect is None:
            return self._pass_on(request, asked, decision, content)
        report = partial(self._filter.on_answer, decision.effect)
        if self._has_left():
            return report(0)
        with self._reporting(report):
            return self._pass_on(request, asked, decision, content)

    def _pass_on(
        self, request: h11.Request, asked: KubeRequest, decision: KubeAllowed, content: bytes
    ) -> None:
        try:
            upstream = self._filter.connected()
        except OSError as problem:
            raise Refused(502, f"The cluster cannot be reached: {problem}.") from None
        with upstream:
            if decision.releases:
                return self._show_releases(upstream, asked, decision.releases)
            relay = Relay(self._client, self._wire, upstream)
            headers = _headers_for(request, decision, content)
            relay.ask(asked.method, asked.target, headers, content)
            return self._relay(relay)

    def _show_releases(self, upstream: socket.socket, asked: KubeRequest, shown: Releases) -> None:
        connection = HTTPConnection("localhost")
        connection.sock = upstream
        try:
            connection.request("GET", asked.target, headers={"Accept": "application/json"})
            answer = connection.getresponse()
            content = answer.read(MAX_ANSWER_BYTES + 1)
            if len(content) > MAX_ANSWER_BYTES:
                raise ValueError("the answer is too long")
            content = releases_in(content, shown)
        except (OSError, HTTPException, ValueError, RecursionError) as problem:
            raise Refused(502, f"The releases of Helm cannot be read: {problem}.") from None
        self._respond(answer.status, b"application/json", content, seconds=60)


def _refuse_other_identity(request: h11.Request) -> None:
    for name, value in request.headers:
        claims = name.startswith(b"impersonate-") or b"bearer.authorization" in value.lower()
        if claims or name == b"authorization":
            raise Refused(403, "Requests are made as the operator: leave out --as and --token.")


def _json_in(request: h11.Request, content: bytes) -> Any:
    """Return the body if it is JSON; None if it is empty or binary."""
    kinds = [value.lower() for name, value in request.headers if name == b"content-type"]
    if len(kinds) > 1:
        raise AmbiguousRequest("it states its type twice")
    is_text = not kinds or b"json" in kinds[0] or b"yaml" in kinds[0]
    return read_json(content) if content and is_text else None


def _headers_for(request: h11.Request, decision: KubeAllowed, content: bytes) -> Headers:
    upgrades = [value for name, value in request.headers if name == b"upgrade"]
    becomes_stream = decision.becomes_stream and len(upgrades) == 1
    passed = PASSED_HEADERS | (STREAM_HEADERS if becomes_stream else frozenset())
    connection = (
        [(b"connection", b"Upgrade"), (b"upgrade", upgrades[0])]
        if becomes_stream
        else [(b"connection", b"close")]
    )
    length = [(b"content-length", str(len(content)).encode())] if content else []
    return [
        (b"host", b"localhost"),
        *((name, value) for name, value in request.headers if name in passed),
        *length,
        *connection,
    ]
