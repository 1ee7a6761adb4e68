"""A stage as a trial has it apart: state, HOME and key are planted ones, and lie outside /tmp."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from escalation.rehearsal.walls.set_up import set_up
from escalation.rehearsal.walls.stage import Stage


@contextmanager
def staged(settings, monkeypatch) -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="claudeops-walls-", dir="/var/tmp") as name:
        directory = Path(name)
        for place in ("state", "home"):
            (directory / place).mkdir(mode=0o700)
        settings.CLAUDEOPS_STATE_DIR = directory / "state"
        settings.SECRET_KEY = "a-secret-key-that-is-nowhere-else"
        (directory / "state" / "secret_key").write_text(settings.SECRET_KEY)
        monkeypatch.setenv("HOME", str(directory / "home"))
        monkeypatch.setenv("ANTHROPIC_API_KEY", "canary-key-that-is-nowhere-else")
        with set_up(directory, with_traps=True) as stage:
            yield stage
