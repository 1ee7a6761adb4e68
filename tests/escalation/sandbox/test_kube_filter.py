from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as some

from escalation.sandbox.docker_rules import AmbiguousRequest
from escalation.sandbox.kube_filter import (
    RESTARTED_AT,
    KubeAllowed,
    KubeEffect,
    KubeFilter,
    KubeRefusal,
    KubeRequest,
    RefusalCode,
    Releases,
    context_in,
    judge_kube,
    kubeconfig_for_sandbox,
    parse_kube_request,
    releases_in,
    workload_of,
)
from escalation.sandbox.proof.kube_api import (
    RELEASE,
    KubeApi,
    kube_api,
    operator_kubeconfig,
    packed,
    unpacked,
)
from tests.tables import each_row

# The decisions.

SHOP = "/api/v1/namespaces/shop"
APPS = "/apis/apps/v1/namespaces/shop"
RESTART = {"spec": {"template": {"metadata": {"annotations": {RESTARTED_AT: "2026-01-01"}}}}}


def judged(tier: int, line: str, body: Any = None) -> KubeRefusal | KubeAllowed:
    method, target = line.split(" ", 1)
    return judge_kube(tier, parse_kube_request(method, target), body)


def lowest_tier(line: str, body: Any = None) -> int | None:
    tiers = [tier for tier in (1, 2, 3) if isinstance(judged(tier, line, body), KubeAllowed)]
    # A tier may do what the ones below it may.
    assert tiers in ([1, 2, 3], [2, 3], [3], [])
    return tiers[0] if tiers else None


def code_of(line: str, body: Any = None, tier: int = 3) -> RefusalCode | None:
    found = judged(tier, line, body)
    return found.code if isinstance(found, KubeRefusal) else None


@each_row(
    "line",
    [
        "GET /version?timeout=32s",
        "GET /api",
        "GET /api/",
        "GET /api/v1",
        "GET /apis",
        "GET /apis/apps",
        "GET /apis/apps/v1",
        "GET /openapi/v2",
        "GET /openapi/v3/apis/apps/v1?hash=1",
        "GET /readyz/etcd",
        "GET /api/v1/nodes",
        "GET /api/v1/namespaces",
        "GET /api/v1/namespaces/shop",
        "GET /api/v1/namespaces/shop/status",
        "GET /api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1",
        f"GET {SHOP}/pods?limit=500&watch=true",
        f"GET {SHOP}/pods/web",
        f"GET {SHOP}/pods/web/log?follow=true&container=web",
        f"GET {SHOP}/pods/web/status",
        f"GET {SHOP}/configmaps/settings",
        f"GET {SHOP}/events",
        f"GET {APPS}/deployments/web/scale",
        "GET /apis/rbac.authorization.k8s.io/v1/clusterroles/system:node",
        "GET /apis/metrics.k8s.io/v1beta1/nodes",
        "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "POST /apis/authentication.k8s.io/v1/selfsubjectreviews",
    ],
)
def test_every_tier_reads(line):
    assert lowest_tier(line) == 1


@each_row(
    ("line", "body"),
    [
        (f"PATCH {APPS}/deployments/web?fieldManager=kubectl-rollout", RESTART),
        (f"PATCH {APPS}/statefulsets/db", RESTART),
        (f"PATCH {APPS}/daemonsets/logger?dryRun=All", RESTART),
        (f"PATCH {APPS}/deployments/web/scale", {"spec": {"replicas": 3}}),
        (f"PUT {APPS}/statefulsets/db/scale", {"kind": "Scale", "spec": {"replicas": 0}}),
        (f"DELETE {SHOP}/pods/web-1", {"propagationPolicy": "Background"}),
        (f"DELETE {SHOP}/pods/web-1?dryRun=All", None),
        ("PATCH /api/v1/nodes/node-1", {"spec": {"unschedulable": True}}),
        ("PATCH /api/v1/nodes/node-1", {"spec": {"unschedulable": None}}),
    ],
)
def test_tier_2_restarts_scales_and_cordons(line, body):
    assert lowest_tier(line, body) == 2


@each_row(
    ("line", "body"),
    [
        (f"PATCH {APPS}/deployments/web", {"spec": {"replicas": 3}}),
        (f"PATCH {APPS}/deployments/web", {**RESTART, "metadata": {"labels": {}}}),
        (f"PATCH {APPS}/deployments/web", {"spec": {**RESTART["spec"], "paused": True}}),
        (
            f"PATCH {APPS}/deployments/web",
            {"spec": {"template": {"metadata": {"annotations": {RESTARTED_AT: "x", "y": "z"}}}}},
        ),
        (
            f"PATCH {APPS}/deployments/web",
            {"spec": {"template": {"metadata": {"annotations": {RESTARTED_AT: None}}}}},
        ),
        (f"PATCH {APPS}/deployments/web", [RESTART]),
        (f"PATCH {APPS}/replicasets/web", RESTART),
        ("PATCH /apis/other.lan/v1/namespaces/shop/deployments/web", RESTART),
        ("PATCH /api/v1/nodes/node-1", {"spec": {"unschedulable": True, "taints": []}}),
        ("PATCH /api/v1/nodes/node-1", {"metadata": {"labels": {"a": "b"}}}),
        (f"POST {APPS}/deployments?dryRun=All", {"metadata": {"name": "x"}}),
        (f"PUT {SHOP}/configmaps/settings", {"data": {}}),
        (f"POST {SHOP}/configmaps", None),
        ("POST /api/v1/namespaces", {"metadata": {"name": "new"}}),
        (f"DELETE {SHOP}/configmaps/settings", None),
        (f"DELETE {APPS}/deployments/web", None),
        (f"POST {SHOP}/pods/web/exec?command=ls&command=-l&stdout=true", None),
        (f"GET {SHOP}/pods/web/exec?command=ls", None),
        (f"GET {SHOP}/pods/web/attach", None),
        (f"POST {SHOP}/pods/web/portforward", None),
        (f"POST {SHOP}/pods/web/eviction", None),
        (f"PATCH {SHOP}/pods/web/ephemeralcontainers", {"spec": {}}),
        ("PATCH /apis/other.lan/v1/namespaces/shop/things/x", {"spec": {}}),
    ],
)
def test_tier_3_may_do_the_rest(line, body):
    assert lowest_tier(line, body) == 3


@each_row(
    "line",
    [
        "DELETE /api/v1/namespaces/shop",
        "DELETE /api/v1/nodes/node-1",
        "DELETE /api/v1/persistentvolumes/disk",
        f"DELETE {SHOP}/persistentvolumeclaims/data",
        "DELETE /apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.other.lan",
        f"DELETE {SHOP}/pods",
        f"DELETE {SHOP}/configmaps?labelSelector=a%3Db",
        "POST /api/v1/persistentvolumes",
        "PATCH /apis/rbac.authorization.k8s.io/v1/clusterrolebindings/x",
        "POST /apis/rbac.authorization.k8s.io/v1/clusterroles",
        "POST /apis/certificates.k8s.io/v1/certificatesigningrequests",
        "PUT /apis/certificates.k8s.io/v1/certificatesigningrequests/x/approval",
        "POST /apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
        "POST /apis/authentication.k8s.io/v1/tokenreviews",
        "POST /apis/authorization.k8s.io/v1/subjectaccessreviews",
        "PATCH /apis/apiregistration.k8s.io/v1/apiservices/v1.apps",
    ],
)
def test_no_tier_changes_what_holds_data_or_rights(line):
    assert lowest_tier(line, {}) is None
    assert code_of(line, {}) == RefusalCode.NO_TIER


@each_row(
    "line",
    [
        "GET /",
        "GET /logs",
        "GET /metrics",
        "GET /api/v2",
        "GET /.well-known/openid-configuration",
        "GET /debug/pprof/heap",
        "POST /version",
        "HEAD /api",
        "POST /apis",
        f"HEAD {SHOP}/pods",
        f"OPTIONS {SHOP}/pods",
        f"GET {SHOP}/pods/web/proxy",
        f"GET {SHOP}/services/web/proxy",
        f"POST {SHOP}/services/http:web:80/proxy",
        "GET /api/v1/nodes/node-1/proxy",
        f"POST {SHOP}/serviceaccounts/default/token",
        f"POST {SHOP}/pods/web/binding",
        f"PATCH {SHOP}/pods/web/status",
        f"GET {SHOP}/pods/web/unknown",
        f"GET {APPS}/deployments/web/exec",
        f"POST {SHOP}/pods/web",
        f"PUT {SHOP}/pods",
        "PUT /api/v1/namespaces/shop/finalize",
        "POST /api/v1/nodes",
        "GET /apis/subresources.kubevirt.io/v1/namespaces/shop/virtualmachineinstances/x/console",
    ],
)
def test_unknown_requests_are_refused(line):
    try:
        assert lowest_tier(line, {}) is None
        assert code_of(line, {}) == RefusalCode.UNKNOWN
    except AmbiguousRequest:
        assert line in ("GET /", "GET /.well-known/openid-configuration")


@each_row(
    "line",
    [
        f"GET {SHOP}/secrets",
        "GET /api/v1/secrets",
        f"GET {SHOP}/secrets/password",
        f"GET {SHOP}/secrets?watch=true",
        f"GET {SHOP}/secrets?labelSelector=owner%3Dhelm&watch=true",
        f"GET {SHOP}/secrets?labelSelector=owner!%3Dhelm",
        f"GET {SHOP}/secrets?labelSelector=owner%3Dhelmet",
        f"GET {SHOP}/secrets/password?labelSelector=owner%3Dhelm",
        f"GET {SHOP}/secrets/sh.helm.release.v1.shop.v1/status",
        f"POST {SHOP}/secrets",
        f"PUT {SHOP}/secrets/password",
        f"PATCH {SHOP}/secrets/password",
        f"PATCH {SHOP}/secrets/sh.helm.release.v1.shop.v1",
        f"DELETE {SHOP}/secrets/password",
        f"DELETE {SHOP}/secrets",
        "GET /apis/other.lan/v1/namespaces/shop/secrets",
    ],
)
def test_secrets_are_refused_at_every_tier(line):
    body = {"type": "Opaque", "metadata": {"name": "x"}}

    assert lowest_tier(line, body) is None
    assert code_of(line, body) == RefusalCode.SECRET


@each_row(
    "line",
    [
        "GET /api/v1/secrets?labelSelector=owner%3Dhelm",
        f"GET {SHOP}/secrets?labelSelector=name%3Dshop%2Cowner%3Dhelm%2Cstatus%3Ddeployed",
        f"GET {SHOP}/secrets/sh.helm.release.v1.shop.v1",
    ],
)
def test_releases_of_helm_are_read_and_shown_whole_at_the_full_tier_alone(line):
    shown = [judged(tier, line) for tier in (1, 2, 3)]

    assert shown == [
        *(KubeAllowed(releases=Releases.WITHOUT_VALUES),) * 2,
        KubeAllowed(releases=Releases.WHOLE),
    ]


@each_row(
    "line",
    [
        f"POST {SHOP}/secrets",
        f"PUT {SHOP}/secrets/sh.helm.release.v1.shop.v1",
        f"DELETE {SHOP}/secrets/sh.helm.release.v1.shop.v1",
    ],
)
def test_helm_keeps_its_releases_at_tier_3(line):
    assert lowest_tier(line, {"type": "helm.sh/release.v1"}) == 3


def pod(**settings: Any) -> dict[str, Any]:
    container = {"name": "x", "image": "y", "securityContext": settings.pop("security", {})}
    return {"spec": {"template": {"spec": {"containers": [container], **settings}}}}


@each_row(
    "body",
    [
        pod(security={"privileged": True}),
        pod(security={"Privileged": True}),
        pod(security={"capabilities": {"add": ["SYS_ADMIN"]}}),
        pod(security={"windowsOptions": {"hostProcess": True}}),
        pod(hostNetwork=True),
        pod(hostPID=True),
        pod(hostIPC=True),
        pod(volumes=[{"name": "x", "hostPath": {"path": "/"}}]),
        pod(volumes=[{"name": "x", "op": "a", "path": "b", "hostPath": {"path": "/"}}]),
        [{"op": "add", "path": "/spec/template/spec/hostPID", "value": True}],
        [{"op": "add", "path": "/spec/volumes/-", "value": {"hostPath": {"path": "/"}}}],
        [{"op": "replace", "path": "/spec/volumes/0/hostPath/path", "value": "/"}],
        [{"op": "add", "path": "/x/securityContext/capabilities/add/-", "value": "SYS_ADMIN"}],
    ],
)
def test_no_pod_leaves_its_container(body):
    for line in (f"PATCH {APPS}/deployments/web", "PATCH /apis/other.lan/v1/things/x"):
        assert code_of(line, body) == RefusalCode.OUTSIDE_CONTAINER


@each_row(
    "body",
    [
        pod(hostNetwork=False, security={"privileged": False, "capabilities": {"drop": ["ALL"]}}),
        pod(volumes=[{"name": "x", "emptyDir": {}}]),
        [{"op": "remove", "path": "/spec/template/spec/volumes/0/hostPath"}],
    ],
)
def test_an_ordinary_pod_is_passed_at_tier_3(body):
    assert lowest_tier(f"PATCH {APPS}/deployments/web", body) == 3


@each_row("line", [f"POST {APPS}/deployments", f"POST {SHOP}/pods", f"PATCH {SHOP}/pods/web"])
def test_a_pod_that_is_not_json_is_refused(line):
    assert code_of(line, None) == RefusalCode.NOT_JSON


def test_a_refusal_names_the_lowest_tier():
    assert judged(1, f"PATCH {APPS}/deployments/web", RESTART).allowed_from == 2  # type: ignore[union-attr]
    assert judged(2, f"DELETE {APPS}/deployments/web").allowed_from == 3  # type: ignore[union-attr]
    assert judged(3, f"GET {SHOP}/secrets").allowed_from == 0  # type: ignore[union-attr]


@each_row(
    ("line", "body", "kind", "service", "command"),
    [
        (
            *(f"PATCH {APPS}/deployments/web", RESTART, "restart", "web"),
            "kubectl rollout restart deployment/web --namespace=shop",
        ),
        (
            *(f"PATCH {APPS}/statefulsets/db/scale", {"spec": {"replicas": 0}}, "restart", "db"),
            "kubectl scale statefulset/db --replicas=0 --namespace=shop",
        ),
        (
            *(f"DELETE {SHOP}/pods/web-5d8f7c9b6d-abcde", None, "restart", "web"),
            "kubectl delete pod/web-5d8f7c9b6d-abcde --namespace=shop",
        ),
        (
            *(f"POST {SHOP}/pods/db-0/eviction", None, "restart", "db"),
            "kubectl delete pod/db-0 --namespace=shop",
        ),
        (
            *("PATCH /api/v1/nodes/n", {"spec": {"unschedulable": True}}, "other", ""),
            "kubectl cordon n",
        ),
        (
            *("PATCH /api/v1/nodes/n", {"spec": {"unschedulable": None}}, "other", ""),
            "kubectl uncordon n",
        ),
        (
            *(f"POST {APPS}/deployments", {"metadata": {"name": "new"}}, "redeploy", "new"),
            "kubectl create deployment/new --namespace=shop",
        ),
        (
            *(f"PATCH {APPS}/deployments/web", {"spec": {}}, "redeploy", "web"),
            "kubectl patch deployment/web --namespace=shop",
        ),
        (
            *(f"PUT {SHOP}/configmaps/settings", {"data": {}}, "other", ""),
            "kubectl replace configmap/settings --namespace=shop",
        ),
        (
            *("DELETE /apis/networking.k8s.io/v1/namespaces/s/ingresses/i", None, "other", ""),
            "kubectl delete ingress/i --namespace=s",
        ),
        (
            *(
                "DELETE /apis/networking.k8s.io/v1/namespaces/s/networkpolicies/p",
                None,
                "other",
                "",
            ),
            "kubectl delete networkpolicy/p --namespace=s",
        ),
        (
            *(f"GET {SHOP}/pods/web/exec?command=rm&command=-rf&command=/x%20y", None, "other", ""),
            "kubectl exec web --namespace=shop -- rm -rf /x y",
        ),
        (
            *(f"POST {SHOP}/pods/web/portforward", None, "other", ""),
            "kubectl port-forward web --namespace=shop",
        ),
    ],
)
def test_a_change_has_an_effect_in_one_spelling(line, body, kind, service, command):
    found = judged(3, line, body)

    assert isinstance(found, KubeAllowed)
    assert found.effect
    assert (found.effect.kind, found.effect.service) == (kind, service)
    assert " ".join(found.effect.vector) == command


@each_row(
    ("name", "workload"),
    [
        ("web-5d8f7c9b6d-abcde", "web"),
        ("shop-web-7f9c6d5b48-x2x4z", "shop-web"),
        ("db-0", "db"),
        ("logger-x7k2p", "logger"),
        ("lonely", "lonely"),
    ],
)
def test_a_pod_belongs_to_a_workload(name, workload):
    assert workload_of(name) == workload


@each_row(
    "target",
    [
        "/api/v1/namespaces/shop/../secrets",
        "/api/v1/namespaces/shop/./secrets",
        "/api/v1/namespaces/shop/%73ecrets",
        "/api/v1/namespaces/shop%2Fsecrets",
        "/api/v1/namespaces/shop//secrets",
        "//api/v1/secrets",
        "/api/v1//secrets",
        "/api/v1/secrets//",
        "/api/v1/namespaces/shop/secrets/a/b/c",
        "/api/v1/namespaces/shop/pods/web/proxy/admin",
        "/api/v1/watch/namespaces/shop/secrets",
        "/api/v1/proxy/namespaces/shop/services/web",
        "/api/v1/secrets;x=1",
        "/api\\v1/secrets",
        "/api/v1/s\xe9crets",
        "/api/v1/namespaces/ /secrets",
        "/",
        "",
        "*",
        "http://other/api",
        "/api?a=1;b=2",
        "/api?a=1&a=2",
        "/api?watch=1&watch=0",
        "/api?a",
        "/api?a=%ff",
        "/api?a=1#b",
    ],
)
def test_an_ambiguous_address_is_refused(target):
    with pytest.raises(AmbiguousRequest):
        parse_kube_request("GET", target)


def resource_of(path: str) -> str:
    """As the API server finds it, written from its documentation."""
    parts = [part for part in path.split("/") if part]
    rest = parts[2:] if parts[:1] == ["api"] else parts[3:] if parts[:1] == ["apis"] else []
    if rest[:1] in (["watch"], ["proxy"]):
        rest = rest[1:]
    if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        rest = rest[2:]
    return rest[0] if rest else ""


def reads(target: str) -> list[KubeRequest]:
    """The request, if the lowest tier may make it."""
    try:
        asked = parse_kube_request("GET", target)
    except AmbiguousRequest:
        return []
    return [asked] if isinstance(judge_kube(1, asked), KubeAllowed) else []


WORDS = [
    *("api", "v1", "apis", "apps", "namespaces", "shop", "secrets", "pods", "status", "finalize"),
    *("watch", "proxy", "log", "..", "%2e"),
]


@given(some.lists(some.sampled_from(WORDS), max_size=8), some.sampled_from(["/", "//", "/./"]))
def test_no_path_leads_to_secrets_at_the_lowest_tier(words, slash):
    target = "/" + slash.join(words)
    found = reads(target)

    assert not found or resource_of(unquote(target)) != "secrets"
    assert [parse_kube_request("GET", asked.target) for asked in found] == found


@each_row(
    ("target", "sent"),
    [
        ("/api/v1/pods/", "/api/v1/pods"),
        ("/api/v1/pods?a=b%20c+d&e=", "/api/v1/pods?a=b%20c%20d&e="),
        ("/api/v1/pods?a=%zz", "/api/v1/pods?a=%25zz"),
        ("/x?command=a&command=b%26c", "/x?command=a&command=b%26c"),
    ],
)
def test_the_parsed_target_is_sent_on(target, sent):
    assert parse_kube_request("GET", target).target == sent


# The releases of Helm.


def secret(name: str = "sh.helm.release.v1.shop.v3", **parts: Any) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"owner": "helm"}, "annotations": {"last": "hunter2"}}
    data = {"release": packed(RELEASE)}
    return {"metadata": metadata, "type": "helm.sh/release.v1", "data": data, **parts}


def shown_of(*items: Any, whole: bool = False) -> list[Any]:
    answer = json.dumps({"kind": "SecretList", "metadata": {}, "items": items}).encode()
    shown = releases_in(answer, Releases.WHOLE if whole else Releases.WITHOUT_VALUES)
    return json.loads(shown)["items"]


def test_only_releases_are_left_in_a_list():
    others = [
        secret(type="Opaque"),
        secret(metadata={"name": "x", "labels": {"owner": "me"}}),
        secret(metadata={"name": "x"}),
        secret(data={"word": "aHVudGVyMg=="}),
        secret(data={"release": "nonsense"}),
        secret(data={"release": packed({"info": "hunter2"})}),
        {},
        "hunter2",
    ]

    assert [item["metadata"]["name"] for item in shown_of(*others, secret())] == [
        "sh.helm.release.v1.shop.v3"
    ]


def test_a_release_loses_its_values_below_the_full_tier():
    item = shown_of(secret())[0]

    assert "annotations" not in item["metadata"]
    assert unpacked(item["data"]["release"]) == {
        "name": "shop",
        "namespace": "shop",
        "version": 3,
        "info": {"status": "deployed", "last_deployed": "2026-01-01T00:00:00Z"},
        "chart": {"metadata": {"name": "shop", "version": "1.2.3", "appVersion": "4"}},
    }
    assert shown_of(secret(), whole=True) == [secret()]


@each_row(
    "answer",
    [
        b'{"kind": "Secret", "type": "Opaque", "data": {}}',
        b'{"kind": "Table", "rows": []}',
        b'{"kind": "PartialObjectMetadataList", "items": []}',
        b'{"kind": "SecretList", "items": {}}',
        b"k8s\0binary",
        b"[]",
    ],
)
def test_an_answer_of_another_kind_is_not_shown(answer):
    with pytest.raises(ValueError, match="."):
        releases_in(answer, Releases.WHOLE)


# The kubeconfig.


def test_the_kubeconfig_of_a_sandbox_keeps_context_and_namespace_alone():
    text = kubeconfig_for_sandbox(operator_kubeconfig(namespace="shop"))

    assert context_in(text) == ("me@home", "shop")
    assert context_in(kubeconfig_for_sandbox(operator_kubeconfig())) == ("me@home", "")
    assert json.loads(text)["clusters"][0]["cluster"] == {"server": "http://127.0.0.1:6443"}
    assert not any(word in text for word in ("hunter2", "10.0.0.1"))


@each_row("text", ["{}", "[]", '{"current-context": "", "contexts": []}', "nonsense", ""])
def test_a_kubeconfig_without_a_context_gives_none(text):
    with pytest.raises(ValueError, match="."):
        kubeconfig_for_sandbox(text)


# The filter, with raw requests.


@pytest.fixture
def api() -> Iterator[KubeApi]:
    with kube_api() as api:
        yield api


Filters = Callable[..., int]


def permit(effect: KubeEffect, client: socket.socket) -> str:
    return ""


@pytest.fixture
def filtered(api) -> Iterator[Filters]:
    """Starts a filter of a tier before the API server; gives its port."""
    with ExitStack() as stack:

        def connected() -> socket.socket:
            return socket.create_connection(("127.0.0.1", api.port), 5)

        def at(tier: int, judge: Callable[[KubeEffect, socket.socket], str] = permit) -> int:
            listener = socket.create_server(("127.0.0.1", 0))
            stack.enter_context(KubeFilter(tier, connected, judge).serving(listener))
            return listener.getsockname()[1]

        yield at


def raw(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 10) as client:
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(65536), b""))


def asked(line: str, *headers: str, body: bytes = b"") -> bytes:
    length = [f"Content-Length: {len(body)}"] if body else []
    head = "\r\n".join([f"{line} HTTP/1.1", "Host: x", *headers, *length, "", ""])
    return head.encode("latin-1") + body


def status_of(answer: bytes) -> int:
    return int(answer.split()[1])


def content_of(answer: bytes) -> Any:
    return json.loads(answer.partition(b"\r\n\r\n")[2])


def test_a_read_is_passed_and_its_answer_returned(api, filtered):
    answer = raw(filtered(1), asked(f"GET {SHOP}/configmaps/settings"))

    assert status_of(answer) == 200
    assert content_of(answer)["data"] == {"colour": "blue"}


def test_a_refusal_is_a_status_that_kubectl_prints(api, filtered):
    answer = raw(filtered(1), asked(f"GET {SHOP}/secrets/password"))

    assert status_of(answer) == 403
    assert (content_of(answer)["kind"], content_of(answer)["reason"]) == ("Status", "Forbidden")
    assert api.requests == []


@pytest.mark.parametrize(
    "header",
    [
        "Impersonate-User: system:admin",
        "impersonate-group: system:masters",
        "Impersonate-Extra-Scopes: x",
        "Authorization: Bearer abc",
        "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.YWJj",
    ],
)
def test_another_identity_is_refused(api, filtered, header):
    assert status_of(raw(filtered(3), asked("GET /api/v1/nodes", header))) == 403
    assert api.requests == []


def test_headers_of_identity_and_upgrades_do_not_pass(api, filtered):
    headers = ("X-Remote-User: admin", "Cookie: a=b", "Connection: Upgrade", "Upgrade: websocket")

    raw(filtered(3), asked(f"GET {SHOP}/pods", "Accept: application/json", *headers))

    assert set(api.headers[0]) == {"host", "accept", "connection"}
    assert api.headers[0]["connection"] == "close"


@pytest.mark.parametrize(
    "request_bytes",
    [
        asked(f"GET {SHOP}/../secrets"),
        asked(f"GET {SHOP}/%73ecrets"),
        asked("GET http://x/api/v1/pods"),
        asked("GET /api", body=b"{}"),
        asked(f"POST {SHOP}/pods", body=b"{"),
        asked(f"POST {SHOP}/pods", body=b'{"a": 1, "a": 2}'),
        asked(f"POST {SHOP}/pods", body=b"[" * 100_000),
        asked(f"POST {SHOP}/pods", "Content-Type: application/yaml", body=b"a: b"),
        asked(
            f"POST {SHOP}/pods",
            "Content-Type: a/json",
            "Content-Type: application/yaml",
            body=b"{}",
        ),
        asked(f"POST {SHOP}/pods", "Transfer-Encoding: chunked", body=b"{}"),
        b"nonsense\r\n\r\n",
    ],
)
def test_a_request_that_can_be_read_in_two_ways_is_refused(api, filtered, request_bytes):
    assert status_of(raw(filtered(3), request_bytes)) == 400
    assert api.requests == []


def test_a_second_request_on_one_connection_is_ignored(api, filtered):
    raw(filtered(1), asked("GET /version") + asked(f"DELETE {SHOP}/pods/web"))

    assert api.requests == ["GET /version"]


def test_the_server_gets_the_body_that_was_decided_on(api, filtered):
    body = (
        '{ "spec":{"replicas":  2}, "metadata": {"name": "web", "note": "\\u00e9\\ud83d\\ude00"} }'
    )

    answer = raw(filtered(3), asked(f"PUT {APPS}/deployments/web", body=body.encode()))

    assert status_of(answer) == 200
    assert json.loads(api.bodies[0]) == json.loads(body)
    assert "é😀".encode() in api.bodies[0]


def test_a_binary_body_is_passed_for_a_resource_without_pods(api, filtered):
    kind = "Content-Type: application/vnd.kubernetes.protobuf"
    review = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

    raw(filtered(1), asked(review, kind, body=b"k8s\0\xff"))

    assert api.bodies == [b"k8s\0\xff"]
    assert status_of(raw(filtered(3), asked(f"POST {SHOP}/pods", kind, body=b"k8s\0"))) == 403


def test_releases_of_helm_are_listed_without_other_secrets(api, filtered):
    target = f"GET {SHOP}/secrets?labelSelector=owner%3Dhelm"
    answer = raw(filtered(1), asked(target, "Accept: application/json;as=Table"))

    items = content_of(answer)["items"]
    assert [item["metadata"]["name"] for item in items] == ["sh.helm.release.v1.shop.v3"]
    assert unpacked(items[0]["data"]["release"])["info"]["status"] == "deployed"
    assert b"hunter2" not in answer + str(unpacked(items[0]["data"]["release"])).encode()
    assert api.headers[0]["accept"] == "application/json"


def test_a_release_is_read_by_its_name_and_only_if_it_is_one(api, filtered):
    api.objects["secrets", "shop", "sh.helm.release.v1.fake"] = api.objects[
        "secrets", "shop", "password"
    ]
    port = filtered(3)

    whole = raw(port, asked(f"GET {SHOP}/secrets/sh.helm.release.v1.shop.v3"))
    assert unpacked(content_of(whole)["data"]["release"]) == RELEASE
    fake = raw(port, asked(f"GET {SHOP}/secrets/sh.helm.release.v1.fake"))
    assert (status_of(fake), b"aHVudGVyMg" in fake) == (502, False)
    missing = raw(port, asked(f"GET {SHOP}/secrets/sh.helm.release.v1.none"))
    assert (status_of(missing), content_of(missing)["reason"]) == (404, "NotFound")


def test_a_watch_is_streamed_and_ends_with_its_client(api, filtered):
    with socket.create_connection(("127.0.0.1", filtered(1)), 10) as client:
        client.sendall(asked(f"GET {SHOP}/pods?watch=true"))
        received = b""
        while b'"ADDED"' not in received:
            received += client.recv(65536)

    assert api.follower_left.wait(10)


@pytest.mark.parametrize(
    ("method", "protocol"), [("POST", "SPDY/3.1"), ("GET", "websocket")], ids=["spdy", "websocket"]
)
def test_a_stream_passes_bytes_in_both_directions_at_tier_3(api, filtered, method, protocol):
    head = asked(
        f"{method} {SHOP}/pods/web/exec?command=cat&stdin=true",
        "Connection: Upgrade",
        f"Upgrade: {protocol}",
        "X-Stream-Protocol-Version: v4.channel.k8s.io",
    )
    with socket.create_connection(("127.0.0.1", filtered(3)), 10) as client:
        client.sendall(head + b"one")
        received = b""
        while not received.endswith(b"one"):
            received += client.recv(65536)
        client.sendall(b"two")
        assert client.recv(65536) == b"two"

    assert status_of(received) == 101
    assert api.headers[0]["upgrade"] == protocol
    assert status_of(raw(filtered(2), head)) == 403


def test_each_change_is_judged_before_it_is_passed(api, filtered):
    seen: list[KubeEffect] = []

    def judge(effect: KubeEffect, client: socket.socket) -> str:
        seen.append(effect)
        return "Restarted a minute ago." if len(seen) > 1 else ""

    port = filtered(2, judge)
    restart = asked(f"PATCH {APPS}/deployments/web", body=json.dumps(RESTART).encode())

    assert status_of(raw(port, asked(f"GET {APPS}/deployments/web"))) == 200
    assert status_of(raw(port, restart)) == 200
    refused = raw(port, restart)
    assert (status_of(refused), content_of(refused)["message"]) == (403, "Restarted a minute ago.")
    assert [effect.service for effect in seen] == ["web", "web"]
    assert len(api.changes) == 1


def test_a_client_that_left_during_the_decision_changes_nothing(api, filtered):
    judging, left, judged_all = threading.Event(), threading.Event(), threading.Event()

    def judge(effect: KubeEffect, client: socket.socket) -> str:
        judging.set()
        left.wait(10)
        judged_all.set()
        return ""

    port = filtered(2, judge)
    with socket.create_connection(("127.0.0.1", port), 10) as client:
        client.sendall(asked(f"DELETE {SHOP}/pods/web-5d8f7c9b6d-abcde"))
        assert judging.wait(10)
    left.set()

    assert judged_all.wait(10)
    raw(port, asked("GET /version"))
    assert api.changes == []


def test_a_judge_that_fails_lets_nothing_pass(api, filtered):
    def judge(effect: KubeEffect, client: socket.socket) -> str:
        raise OSError("the database is locked")

    assert raw(filtered(2, judge), asked(f"DELETE {SHOP}/pods/web")) == b""
    assert api.requests == []


def test_an_absent_cluster_becomes_a_gateway_error(api):
    def connected() -> socket.socket:
        raise ConnectionRefusedError("refused")

    listener = socket.create_server(("127.0.0.1", 0))
    with KubeFilter(1, connected).serving(listener):
        assert status_of(raw(listener.getsockname()[1], asked("GET /api"))) == 502
