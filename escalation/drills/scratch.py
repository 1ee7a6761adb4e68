"""Running a command in a scratch installation: a state directory and database of its own."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from django.conf import settings

MARK = "CLAUDEOPS_SCRATCH"
NO_SMALL_DISK = "CLAUDEOPS_SCRATCH_NO_SMALL_DISK"
"""Why the state directory is on the machine's own disk, where a small one was asked for."""


def is_scratch() -> bool:
    return bool(os.environ.get(MARK))


def why_no_small_disk() -> str:
    return os.environ.get(NO_SMALL_DISK, "")


def rerun_in_scratch(
    more: Mapping[str, str] | None = None, *, small_disk_megabytes: int = 0
) -> int:
    """Start this very command again, away from the operator's record; give back its exit code.

    A small disk is a tmpfs that only the command and its children see, and that goes with them.
    """
    with tempfile.TemporaryDirectory(prefix="claudeops-") as directory:
        state = Path(directory) / "state"
        state.mkdir(mode=0o700)
        environment = {
            **os.environ,
            MARK: "1",
            "CLAUDEOPS_STATE_DIR": str(state),
            # By name: a variable that is not there would be read from `.env` again.
            "DATABASE_URL": f"sqlite:///{state}/claudeops.sqlite3",
            "CLAUDEOPS_LOG_LEVEL": "WARNING",
            **(more or {}),
        }
        command = [sys.executable, "-m", "escalation.management", *sys.argv[1:]]
        if small_disk_megabytes:
            wrapper, trouble = small_disk_wrapper(state, small_disk_megabytes)
            command, environment[NO_SMALL_DISK] = [*wrapper, *command], trouble
        return subprocess.run(
            command, cwd=settings.BASE_DIR, env=environment, check=False
        ).returncode


def small_disk_wrapper(directory: Path, megabytes: int) -> tuple[list[str], str]:
    """What to put before a command so that the directory is a small disk, or why that cannot be.

    An ordinary user may mount in a user namespace of their own, where the machine allows those.
    """
    mount = f"mount -t tmpfs -o size={megabytes}m,mode=700 tmpfs {shlex.quote(str(directory))}"
    trouble = ""
    for unshare in (["unshare", "--mount"], ["unshare", "--mount", "--map-root-user"]):
        wrapper = [*unshare, "sh", "-c", f'{mount} && exec "$@"', "sh"]
        try:
            tried = subprocess.run(
                [*wrapper, "true"], capture_output=True, text=True, check=False, timeout=20
            )
        except OSError as error:
            return [], f"no small disk can be mounted here: {error}"
        if tried.returncode == 0:
            return wrapper, ""
        trouble = tried.stderr.strip()
    return [], f"no small disk can be mounted here: {trouble}"
