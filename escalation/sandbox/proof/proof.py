"""Stores sandbox proofs, compares them with earlier ones, and repeats them when due."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from escalation.agent.binary import find_binary, fingerprint_of
from escalation.errors import CannotRun, WhyNot
from escalation.notifications.outbox import notify
from escalation.sandbox.bubblewrap import sandbox_state
from escalation.sandbox.proof.play import kernel, play_in_scratch
from escalation.sandbox.setup import sandbox_or_refusal
from escalation.worker.schedules import PROOF_TAKES, next_proof
from sessions_app.models import Notification, SandboxProof

ARGUMENTS = {SandboxProof.Kind.CORPUS: (), SandboxProof.Kind.ATTACKS: ("--attacks",)}


def store(kind: str, found: dict[str, Any]) -> SandboxProof:
    """Store a complete trial; a partial one must not replace the result of a complete one."""
    finished = timezone.now()
    proof = SandboxProof(
        kind=kind,
        host=found["host"],
        cli_version=found["cli_version"],
        cli_fingerprint=found["cli_fingerprint"],
        kernel=found["kernel"],
        sandbox=found["sandbox"],
        rows=found["rows"],
        tried=found["tried"],
        failed=found["failed"],
        started_at=finished - timedelta(seconds=found["seconds"]),
        finished_at=finished,
        is_worse=found["failed"] > accepted_failures(kind),
    )
    with transaction.atomic():
        proof.save()
        if proof.is_worse:
            _notify(proof)
    return proof


def _notify(proof: SandboxProof) -> None:
    notify(
        Notification.Kind.SANDBOX_WORSE,
        f"The sandbox proof got worse: {proof.failed} of {proof.tried} failed",
        text=f"{proof} on {proof.host}, kernel {proof.kernel}, CLI {proof.cli_version}. The "
        "tiers above Tier 1 wait until an approver has checked the failures and accepted them.",
        path=reverse("web:sandbox"),
    )


def accepted_failures(kind: str) -> int:
    """Return the number of failures in the newest proof that holds back no tier; 0 without one."""
    proofs = SandboxProof.objects.filter(kind=kind).defer("rows")
    return next((proof.failed for proof in proofs if not proof.holds_higher_tiers), 0)


def prove(kind: str) -> SandboxProof:
    """Play one kind completely in a scratch installation, at low priority; store the result."""
    require_sandbox()
    arguments = ARGUMENTS[SandboxProof.Kind(kind)]
    return store(kind, play_in_scratch(arguments, low_priority=True))


def due_kinds() -> list[str]:
    """Return the kinds without a proof on this host for the current CLI and kernel."""
    try:
        fingerprint = fingerprint_of(Path(find_binary().path))
    except OSError as error:
        raise CannotRun(f"The CLI cannot be read: {error}.", WhyNot.CLI) from error
    stored = SandboxProof._meta.get_field("kernel").get_prep_value(kernel())
    now = (fingerprint, stored)
    proofs = SandboxProof.objects.filter(host=socket.gethostname())
    newest = {
        kind: proofs.filter(kind=kind).values_list("cli_fingerprint", "kernel").first()
        for kind in ARGUMENTS
    }
    return [kind for kind, proved in newest.items() if proved != now]


def proof_ahead() -> str:
    """Say when the worker proves the sandboxes, and for how long; empty if nothing is due."""
    state = sandbox_state(settings.CLAUDEOPS_SANDBOX)
    if not state.in_force or not due_kinds():
        return ""
    at = timezone.localtime(next_proof())
    return (
        f"The sandboxes are proved in the background at {at:%H:%M}: {PROOF_TAKES}, once for each "
        "version of CLI and kernel. `claudeops sandbox prove` does it now."
    )


def prove_if_due() -> Sequence[SandboxProof]:
    """Repeat the proof, in a scheduled task, if CLI or kernel changed."""
    if not sandbox_or_refusal().in_force:
        return []
    return [prove(kind) for kind in due_kinds()]


def require_sandbox() -> None:
    """Raise CannotRun without a sandbox: hostile commands would run on the host itself."""
    state = sandbox_or_refusal()
    if not state.in_force:
        raise CannotRun(
            "A sandbox proof runs hostile commands, and no sandbox is in force here: "
            f"{state.why}. `claudeops sandbox prove --dry` asks the command policy alone.",
            WhyNot.SANDBOX,
        )
