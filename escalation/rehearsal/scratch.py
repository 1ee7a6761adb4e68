"""Running a command in a scratch installation: a state directory and database of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from django.conf import settings

MARK = "CLAUDEOPS_SCRATCH"


def is_scratch() -> bool:
    return bool(os.environ.get(MARK))


def rerun_in_scratch() -> int:
    """Start this very command again, away from the operator's record; give back its exit code."""
    with tempfile.TemporaryDirectory(prefix="claudeops-") as directory:
        environment = {
            name: value for name, value in os.environ.items() if name != "DATABASE_URL"
        } | {
            MARK: "1",
            "CLAUDEOPS_STATE_DIR": directory,
            "CLAUDEOPS_LOG_LEVEL": "WARNING",
        }
        command = [sys.executable, "manage.py", *sys.argv[1:]]
        return subprocess.run(
            command, cwd=settings.BASE_DIR, env=environment, check=False
        ).returncode
