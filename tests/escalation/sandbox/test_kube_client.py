"""What the real kubectl can do through the filter, read from what reached the API server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from escalation.sandbox.kube_filter import (
    SOCKET,
    KubectlProxy,
    KubeFilter,
    context_in,
    kubeconfig_for_sandbox,
    operator_config,
)
from escalation.sandbox.proof.kube_api import KubeApi, kube_api, operator_kubeconfig
from tests.escalation.sandbox.running import tls_context
from tests.escalation.sandbox.test_kube_filter import APPS, SHOP, asked, status_of


@pytest.fixture
def api(tmp_path) -> Iterator[KubeApi]:
    """With TLS, because kubectl sends a token only there."""
    with kube_api(tls_context(tmp_path)) as api:
        yield api


@pytest.fixture
def operator(api, tmp_path) -> dict[str, str]:
    """The operator's environment, with credentials in the kubeconfig."""
    file = tmp_path / "operator.json"
    file.write_text(
        operator_kubeconfig(namespace="shop").replace("10.0.0.1:6443", f"127.0.0.1:{api.port}")
    )
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KUBECONFIG": str(file)}


Kubectl = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def kubectl(operator, tmp_path) -> Iterator[Kubectl]:
    """Runs kubectl as in a sandbox of a tier, in front of a real `kubectl proxy`."""
    directory, home = tmp_path / ("run-" + "x" * 120), tmp_path / "home"
    directory.mkdir(mode=0o700)
    home.mkdir()
    inside = tmp_path / "inside.json"
    with ExitStack() as stack:
        proxy = KubectlProxy(directory, operator, "me@home")
        stack.enter_context(proxy.available())

        def run(tier: int, command: str) -> subprocess.CompletedProcess[str]:
            listener = socket.create_server(("127.0.0.1", 0))
            port = listener.getsockname()[1]
            text = kubeconfig_for_sandbox(operator_config(operator))
            inside.write_text(text.replace(":6443", f":{port}"))
            with KubeFilter(tier, proxy.connected).serving(listener):
                return subprocess.run(
                    ["kubectl", *command.split()],
                    env={"PATH": os.environ["PATH"], "HOME": str(home), "KUBECONFIG": str(inside)},
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=False,
                )

        yield run


POD = "web-5d8f7c9b6d-abcde"


def test_kubectl_reads_at_tier_1_without_credentials(api, kubectl):
    assert kubectl(1, "get pods -o name").stdout == f"pod/{POD}\n"
    assert kubectl(1, f"logs {POD}").stdout == "web is listening\n"
    assert "colour" in kubectl(1, "describe configmap settings").stdout
    assert kubectl(1, "auth can-i get pods").stdout == "yes\n"
    assert kubectl(1, "rollout status deployment/web").returncode == 0
    # Added outside.
    assert {headers["authorization"] for headers in api.headers} == {"Bearer hunter2"}


@pytest.mark.parametrize(
    "command",
    [
        "get secrets",
        "get secret password -o yaml",
        "get secrets -A -w",
        "describe secret password",
        "get --raw /api/v1/namespaces/shop/secrets",
        "get --raw /api/v1/namespaces/shop/services/web/proxy",
        "get --raw /api/v1/namespaces/shop/pods --as=system:admin",
        "rollout restart deployment/web",
        f"delete pod {POD} --wait=false",
        f"exec {POD} -- ls",
        "scale deployment/web --replicas=0",
        "create configmap x --from-literal=a=b",
        "label deployment web a=b",
    ],
)
def test_kubectl_is_refused_at_tier_1_and_prints_why(api, kubectl, command):
    result = kubectl(1, command)

    printed = result.stdout + result.stderr
    assert result.returncode == 1
    assert "Forbidden" in printed or "Not at Tier 1" in printed
    assert not any(word in printed for word in ("hunter2", "aHVudGVyMg"))
    assert api.changes == []


def test_kubectl_restarts_scales_deletes_pods_and_cordons_at_tier_2(api, kubectl):
    for command in (
        "rollout restart deployment/web",
        "rollout restart statefulset/db",
        "rollout restart daemonset/logger",
        "scale deployment/web --replicas=3",
        f"delete pod {POD} --wait=false",
        "cordon node-1",
        "uncordon node-1",
    ):
        result = kubectl(2, command)
        assert (result.returncode, result.stderr) == (0, "")

    assert api.changes == [
        f"PATCH {APPS}/deployments/web",
        f"PATCH {APPS}/statefulsets/db",
        f"PATCH {APPS}/daemonsets/logger",
        f"PATCH {APPS}/deployments/web/scale",
        f"DELETE {SHOP}/pods/{POD}",
        "PATCH /api/v1/nodes/node-1",
        "PATCH /api/v1/nodes/node-1",
    ]


@pytest.mark.parametrize(
    "command",
    [
        "set image deployment/web web=shop:2",
        "delete deployment web",
        "create configmap x --from-literal=a=b",
        f"exec {POD} -- ls",
    ],
)
def test_kubectl_is_refused_other_changes_at_tier_2(api, kubectl, command):
    assert kubectl(2, command).returncode == 1
    assert api.changes == []


def test_kubectl_changes_and_deletes_at_tier_3(api, kubectl, tmp_path):
    manifest = tmp_path / "new.json"
    manifest.write_text(
        json.dumps(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}, "data": {}}
        )
    )
    for command in (
        "set image deployment/web web=shop:2",
        f"apply --validate=false -f {manifest}",
        "create configmap plain --from-literal=a=b",
        "delete configmap settings",
    ):
        result = kubectl(3, command)
        assert (result.returncode, result.stderr) == (0, "")

    assert api.changes == [
        f"PATCH {APPS}/deployments/web",
        f"POST {SHOP}/configmaps",
        f"POST {SHOP}/configmaps",
        f"DELETE {SHOP}/configmaps/settings",
    ]


@pytest.mark.parametrize("command", ["delete namespace shop", "delete node node-1"])
def test_kubectl_deletes_neither_namespaces_nor_nodes_at_tier_3(api, kubectl, command):
    assert kubectl(3, command).returncode == 1
    assert api.changes == []


def test_a_stream_passes_through_kubectl_proxy(api, operator, tmp_path):
    with KubectlProxy(tmp_path, operator, "me@home").available() as proxy:
        listener = socket.create_server(("127.0.0.1", 0))
        with KubeFilter(3, proxy.connected).serving(listener):
            port = listener.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), 10) as client:
                line = f"POST {SHOP}/pods/web/exec?command=cat"
                client.sendall(asked(line, "Connection: Upgrade", "Upgrade: SPDY/3.1"))
                assert status_of(client.recv(65536)) == 101
                client.sendall(b"typed")
                assert client.recv(65536) == b"typed"


def test_kubectl_proxy_starts_with_the_first_connection_and_leaves_nothing(operator, tmp_path):
    directory = tmp_path / "run"
    directory.mkdir()
    with KubectlProxy(directory, operator, "me@home").available() as proxy:
        assert list(directory.iterdir()) == []
        proxy.connected().close()
        assert (directory / SOCKET).is_socket()
        proxy.connected().close()

    assert list(directory.iterdir()) == []


def test_kubectl_that_does_not_start_is_reported(operator, tmp_path):
    for environment, context in ((operator, "unknown"), ({"PATH": "/nowhere"}, "me@home")):
        with (
            KubectlProxy(tmp_path, environment, context).available() as proxy,
            pytest.raises(ChildProcessError),
        ):
            proxy.connected()


def test_an_operator_without_kubectl_or_kubeconfig_has_no_context(operator, tmp_path):
    assert context_in(operator_config(operator)) == ("me@home", "shop")
    assert "hunter2" not in operator_config(operator)
    assert operator_config({"PATH": "/nowhere"}) == ""
    nobody = {**operator, "KUBECONFIG": str(tmp_path / "none")}
    with pytest.raises(ValueError, match="."):
        context_in(operator_config(nobody))
