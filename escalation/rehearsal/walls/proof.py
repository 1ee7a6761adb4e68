"""Proofs of the walls: stored, held against the ones before, and due when CLI or kernel change."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from escalation.agent import find_binary, fingerprint_of
from escalation.errors import CannotRun
from escalation.rehearsal.walls.apart import play_apart
from escalation.rehearsal.walls.play import kernel
from escalation.run.walls import rooms_or_refusal
from escalation.word.happenings import tell
from sessions_app.models import Happening, WallsProof

ARGUMENTS = {WallsProof.Kind.CORPUS: (), WallsProof.Kind.ATTACKS: ("--attacks",)}


def store(kind: str, found: dict[str, Any]) -> WallsProof:
    """Only a whole trial is a proof: one of a few rows would lift what a whole one holds."""
    finished = timezone.now()
    proof = WallsProof(
        kind=kind,
        host=found["host"],
        cli_version=found["cli_version"],
        cli_fingerprint=found["cli_fingerprint"],
        kernel=found["kernel"][:200],
        rooms=found["rooms"][:300],
        rows=found["rows"],
        tried=found["tried"],
        failed=found["failed"],
        started_at=finished - timedelta(seconds=found["seconds"]),
        finished_at=finished,
        is_worse=found["failed"] > failed_so_far(kind),
    )
    with transaction.atomic():
        proof.save()
        if proof.is_worse:
            _tell_of(proof)
    return proof


def _tell_of(proof: WallsProof) -> None:
    tell(
        Happening.Kind.WALLS_WORSE,
        f"The walls got worse: {proof.failed} of {proof.tried} failed",
        text=f"{proof} on {proof.host}, kernel {proof.kernel}, CLI {proof.cli_version}. Tier 2 and "
        "3 wait until somebody has looked at what failed and accepted it.",
        path=reverse("sessions_app:walls"),
    )


def failed_so_far(kind: str) -> int:
    """How many failed in the newest proof that nothing is held for. Where there is none, none may
    fail: walls that were never seen to hold are a person's to accept."""
    proofs = WallsProof.objects.filter(kind=kind).defer("rows")
    return next((proof.failed for proof in proofs if not proof.holds_higher_tiers), 0)


def prove(kind: str, *, progress: bool = False) -> WallsProof:
    """Try all of one kind, apart from the operator's record, and store what was found."""
    require_rooms()
    return store(kind, play_apart(ARGUMENTS[WallsProof.Kind(kind)], progress=progress))


def due_kinds() -> list[str]:
    """Those whose newest proof on this host is of another CLI or another kernel, or missing."""
    try:
        fingerprint = fingerprint_of(Path(find_binary().path))
    except OSError as error:
        raise CannotRun(f"The CLI cannot be looked at: {error}.") from error
    now = (fingerprint, kernel()[:200])
    proofs = WallsProof.objects.filter(host=socket.gethostname())
    newest = {
        kind: proofs.filter(kind=kind).values_list("cli_fingerprint", "kernel").first()
        for kind in ARGUMENTS
    }
    return [kind for kind, proved in newest.items() if proved != now]


def prove_if_due() -> Sequence[WallsProof]:
    """For a scheduled task: the walls are tried again when CLI or kernel changed."""
    if not rooms_or_refusal().in_force:
        return []
    return [prove(kind) for kind in due_kinds()]


def require_rooms() -> None:
    rooms = rooms_or_refusal()
    if not rooms.in_force:
        raise CannotRun(
            "The walls cannot be tried where no rooms hold the commands: hostile ones would meet "
            f"this very host. There are none because {rooms.why}. "
            "`claudeops walls --dry` asks the gate alone."
        )
