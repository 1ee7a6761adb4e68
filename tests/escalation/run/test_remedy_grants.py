"""Grants of remedies and of command probes by effect: the real kubectl and ssh-add in sandboxes."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from escalation import tasks
from escalation.probes.kinds import CommandSandboxPool, run_probe
from escalation.run.remedies import ask_to_run
from escalation.sandbox.proof.kube_api import KubeApi, kube_api, operator_kubeconfig
from sessions_app.models import Probe, RemedyRun, Watch
from tests.escalation.sandbox.running import tls_context
from tests.factories import RemedyFactory, WatchFactory

pytestmark = pytest.mark.django_db
RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"


@pytest.fixture
def watch(tmp_path: Path, settings) -> Watch:
    settings.CLAUDEOPS_STATE_DIR, settings.CLAUDEOPS_SANDBOX = tmp_path / "state", "required"
    workdir = tmp_path / "shop"
    workdir.mkdir()
    watch: Watch = WatchFactory(name="shop", workdir=str(workdir), grants="kube ssh")
    return watch


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "home"
    (made / ".ssh").mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("HOME", str(made))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return made


@pytest.fixture
def cluster(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeApi]:
    with kube_api(tls_context(tmp_path)) as api:
        file = home / ".kube" / "config"
        file.parent.mkdir(mode=0o700)
        text = operator_kubeconfig(namespace="shop")
        file.write_text(text.replace("10.0.0.1:6443", f"127.0.0.1:{api.port}"))
        monkeypatch.setenv("KUBECONFIG", str(file))
        yield api


def ran(watch: Watch, command: list[str], **fields: Any) -> RemedyRun:
    plain = {"kind": "other", "parameters": "", "grants": "", **fields}
    row = RemedyFactory(watch=watch, command=command, **plain)
    run = ask_to_run(row, (), by=None, by_name="ann")
    tasks.run_remedy(run.pk)
    run.refresh_from_db()
    return run


def restarts(api: KubeApi) -> bool:
    return any(RESTARTED_AT in str(one) for one in api.objects.values())


def test_a_remedy_reaches_the_cluster_with_the_grant_kube_alone(watch, cluster):
    restart = ["kubectl", "rollout", "restart", "deployment/web"]
    without = ran(watch, restart, kind="restart", service="web")
    assert (without.state, restarts(cluster)) == ("failed", False)

    run = ran(watch, restart, kind="restart", service="web", grants="kube")

    assert (run.state, restarts(cluster)) == ("succeeded", True), run.output
    look = ran(watch, ["kubectl", "delete", "pod", "web"], kind="look", tier=1, grants="kube")
    assert look.state == "failed"
    assert ran(watch, ["kubectl", "get", "pods"], kind="look", tier=1, grants="kube").exit_code == 0


def test_a_remedy_may_use_the_keys_of_the_operator_with_the_grant_ssh_alone(watch, home):
    key = home / ".ssh" / "id_ed25519"
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    public = key.with_name("id_ed25519.pub").read_text().split()[1]

    assert public not in ran(watch, ["ssh-add", "-L"]).output
    assert public in ran(watch, ["ssh-add", "-L"], grants="ssh").output
    private = ran(watch, ["cat", str(key)], grants="ssh")
    assert (private.state, "PRIVATE" in private.output) == ("failed", False)


def test_a_command_probe_looks_at_the_cluster_and_cannot_change_it(watch, cluster):
    pool = CommandSandboxPool()
    try:

        def result(text: str) -> Any:
            probe = Probe(
                watch=watch,
                name="a",
                service="web",
                kind="command",
                target=text,
                timeout_seconds=30,
            )
            return asyncio.run(run_probe(probe, pool))

        good = result("kubectl get pods -o name")
        assert (good.status, good.output) == (Probe.Status.OK, "pod/web-5d8f7c9b6d-abcde")
        assert result("kubectl rollout restart deployment/web").status != Probe.Status.OK
        assert result("kubectl get secret password -o yaml").status != Probe.Status.OK
    finally:
        pool.close()
    assert not restarts(cluster)
