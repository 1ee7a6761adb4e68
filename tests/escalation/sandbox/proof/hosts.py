"""A host as a trial has it apart: state, HOME and key are planted ones, and lie outside /tmp."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from escalation.sandbox.proof.host import ProofHost, proof_host


@contextmanager
def planted_host(settings, monkeypatch) -> Iterator[ProofHost]:
    with tempfile.TemporaryDirectory(prefix="claudeops-sandbox-", dir="/var/tmp") as name:
        directory = Path(name)
        for paths in ("state", "home"):
            (directory / paths).mkdir(mode=0o700)
        settings.CLAUDEOPS_STATE_DIR = directory / "state"
        settings.SECRET_KEY = "a-secret-key-that-is-nowhere-else"
        (directory / "state" / "secret_key").write_text(settings.SECRET_KEY)
        monkeypatch.setenv("HOME", str(directory / "home"))
        monkeypatch.setenv("ANTHROPIC_API_KEY", "canary-key-that-is-nowhere-else")
        with proof_host(directory, with_traps=True) as host:
            yield host
