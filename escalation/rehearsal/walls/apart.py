"""A trial runs apart: in a scratch installation whose key, state and HOME are planted ones.

What is tried there is this installation's code, CLI and kernel; what could be lost there is not
the operator's.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.conf import settings

from escalation.errors import CannotRun
from escalation.rehearsal.scratch import MARK

PLACE = "/var/tmp"  # noqa: S108 (a directory of its own, that only we can enter)
RESULT = "result.json"
# What it has started (a CLI, its rooms, a web server) needs a moment to end.
PATIENCE_SECONDS = 30


def play_apart(
    arguments: Sequence[str], *, corpus_text: str = "", progress: bool = False
) -> dict[str, Any]:
    """What `manage.py walls` with these arguments found in its scratch installation.

    With `progress` it says on our standard error how far it has come.
    """
    with tempfile.TemporaryDirectory(prefix="claudeops-walls-", dir=PLACE) as name:
        directory = Path(name)
        state, home = directory / "state", directory / "home"
        state.mkdir(mode=0o700)
        home.mkdir(mode=0o700)
        environment = {
            name: value for name, value in os.environ.items() if name not in {"DATABASE_URL"}
        } | {
            MARK: "1",
            "CLAUDEOPS_STATE_DIR": str(state),
            "CLAUDEOPS_LOG_LEVEL": "ERROR",
            "ANTHROPIC_API_KEY": f"canary{secrets.token_hex(12)}",
            "HOME": str(home),
            # An import that writes beside the code would look like somebody changing it.
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        exit_code = _run(arguments, environment, corpus_text, progress=progress)
        try:
            found = json.loads((directory / RESULT).read_text())
        except (OSError, ValueError) as error:
            raise CannotRun(
                f"The trial of the walls did not come to its end (exit code {exit_code})."
            ) from error
    if problem := found.get("problem"):
        raise CannotRun(problem)
    assert isinstance(found, dict)
    return found


def _run(
    arguments: Sequence[str], environment: Mapping[str, str], corpus_text: str, *, progress: bool
) -> int:
    """Whatever interrupts us, the trial is asked to end, and clears its stage away."""
    trial = subprocess.Popen(
        [sys.executable, "-m", "escalation.management", "walls", *arguments],
        cwd=settings.BASE_DIR,
        env=dict(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=None if progress else subprocess.DEVNULL,
    )
    try:
        trial.communicate(corpus_text.encode("utf-8", "replace"))
    except BaseException:
        trial.terminate()
        with suppress(subprocess.TimeoutExpired):
            trial.wait(PATIENCE_SECONDS)
        trial.kill()
        trial.wait()
        raise
    return trial.returncode


def hand_over(found: dict[str, Any]) -> None:
    """The trial's answer to the one that started it."""
    (scratch_directory() / RESULT).write_text(json.dumps(found))


def scratch_directory() -> Path:
    return Path(settings.CLAUDEOPS_STATE_DIR).parent
