from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from escalation.sandbox import bubblewrap
from escalation.sandbox.bubblewrap import KernelFacts, explain, kernel_facts, sandbox_state


@pytest.fixture(autouse=True)
def looked_up_anew():
    bubblewrap.forget_sandbox_state()
    yield
    bubblewrap.forget_sandbox_state()


def program(tmp_path: Path, text: str, monkeypatch) -> None:
    path = tmp_path / "bwrap"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    monkeypatch.setattr(bubblewrap, "BWRAP", str(path))


VERSION = '[ "$1" = --version ] && echo bubblewrap 0.8.0 && exit; '


@pytest.mark.parametrize("mode", ["auto", "on"])
def test_sandboxes_are_in_force_where_a_real_one_can_be_built(mode):
    state = sandbox_state(mode)

    assert (state.in_force, state.why) == (True, "")
    assert state.version.startswith("0.")


def test_commands_that_begin_at_once_share_one_namespace():
    bubblewrap.forget_namespaces()
    together = threading.Barrier(6)

    def options(_number: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
        together.wait()
        return bubblewrap.isolation()

    with ThreadPoolExecutor(6) as pool:
        found = set(pool.map(options, range(6)))

    [(_options, descriptors)] = found
    for descriptor in descriptors:
        os.fstat(descriptor)


def test_sandboxes_can_be_switched_off():
    assert not sandbox_state("off").in_force
    assert "CLAUDEOPS_SANDBOX=off" in sandbox_state("off").why


def test_a_missing_program_says_what_to_install(monkeypatch):
    monkeypatch.setattr(bubblewrap, "BWRAP", "/nowhere/bwrap")

    assert not sandbox_state("auto").in_force
    assert "apt-get install bubblewrap" in sandbox_state("auto").why


def test_a_program_that_is_too_old_says_so(tmp_path, monkeypatch):
    program(tmp_path, "echo bubblewrap 0.6.1", monkeypatch)

    assert "0.6.1 is too old" in sandbox_state("on").why


def test_reports_no_sandbox_when_bubblewrap_is_killed(tmp_path, monkeypatch):
    program(tmp_path, f"{VERSION} kill -9 $$", monkeypatch)

    assert not sandbox_state("on").in_force
    assert "-9" in sandbox_state("on").why


def test_reports_no_sandbox_when_the_kernel_refuses(tmp_path, monkeypatch):
    """In a sandbox that forbids further namespaces."""
    inside = "/usr/bin/bwrap --unshare-user --disable-userns --ro-bind / / --dev /dev --proc /proc"
    program(tmp_path, f'{VERSION} exec {inside} -- /usr/bin/bwrap "$@"', monkeypatch)

    state = sandbox_state("auto")

    assert not state.in_force
    assert "the kernel forbids user namespaces" in state.why


def test_state_is_detected_once_per_process(tmp_path, monkeypatch):
    log = tmp_path / "log"
    program(tmp_path, f"echo x >> {log}; {VERSION} exit 1", monkeypatch)

    sandbox_state("auto"), sandbox_state("on")

    assert log.read_text() == "x\nx\n"  # its version and one sandbox


def test_reports_no_sandbox_where_a_command_cannot_enter_one(tmp_path, monkeypatch):
    refused = (
        'case "$*" in *--ro-bind*/bin/true) exit 0;; esac; echo "Permission denied" >&2; exit 1'
    )
    program(tmp_path, f"{VERSION} {refused}", monkeypatch)

    assert not sandbox_state("on").in_force
    assert "Permission denied" in sandbox_state("on").why


REFUSED = "bwrap: No permissions to create new namespace, likely because the kernel does not allow"
REFUSALS = {
    "kernel": (REFUSED, KernelFacts(namespaces_off=True), "user.max_user_namespaces"),
    "container": (
        "bwrap: Creating new namespace failed: Operation not permitted",
        KernelFacts(in_container=True),
        "seccomp=unconfined",
    ),
    "container's proc": (
        "bwrap: Can't mount proc on /newroot/proc: Operation not permitted",
        KernelFacts(in_container=True),
        "systempaths=unconfined",
    ),
    "AppArmor": (
        "bwrap: setting up uid map: Permission denied",
        KernelFacts(apparmor_restricts=True),
        "/etc/apparmor.d/bwrap",
    ),
    "AppArmor's network": (
        "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted",
        KernelFacts(apparmor_restricts=True),
        "apparmor_restrict_unprivileged_userns=0",
    ),
    "unknown": ("bwrap: setting up uid map: Permission denied", KernelFacts(), "uid map"),
    "no refusal": (
        "bwrap: Can't find source path /x",
        KernelFacts(in_container=True),
        "does not work here: bwrap: Can't find source path /x",
    ),
}


@pytest.mark.parametrize(("error", "facts", "advice"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_names_its_cause_and_the_remedy(error, facts, advice):
    assert advice in explain(error, facts)


def test_kernel_facts_are_read_from_proc(tmp_path):
    settings = tmp_path / "proc/sys"
    (settings / "user").mkdir(parents=True)
    (settings / "kernel").mkdir()
    (settings / "user/max_user_namespaces").write_text("0\n")
    (settings / "kernel/apparmor_restrict_unprivileged_userns").write_text("1\n")
    (tmp_path / ".dockerenv").touch()

    assert kernel_facts(tmp_path) == KernelFacts(
        namespaces_off=True, apparmor_restricts=True, in_container=True
    )
    assert kernel_facts(tmp_path / "nowhere") == KernelFacts()
