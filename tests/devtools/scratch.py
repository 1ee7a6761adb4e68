"""Runs a command of devtools in a scratch installation with its own state directory."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from django.conf import settings

from escalation.drills.scratch import MARK

NO_SMALL_DISK = "CLAUDEOPS_SCRATCH_NO_SMALL_DISK"
"""Reason why no small disk could be used for the state directory."""


def why_no_small_disk() -> str:
    return os.environ.get(NO_SMALL_DISK, "")


def rerun_in_scratch(
    more: Mapping[str, str] | None = None, *, small_disk_megabytes: int = 0
) -> int:
    """Run the same command again in a scratch installation; return its exit code.

    A small disk is a tmpfs that only the command and its children see.
    """
    with tempfile.TemporaryDirectory(prefix="claudeops-") as directory:
        state = Path(directory) / "state"
        state.mkdir(mode=0o700)
        environment = {
            **os.environ,
            MARK: "1",
            "CLAUDEOPS_STATE_DIR": str(state),
            # Set explicitly: a missing variable would be read from `.env` again.
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
    """Return the command prefix that mounts a small disk, or the reason why that fails.

    An ordinary user may mount in a user namespace, where the host allows it.
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
            return [], f"could not mount a small disk: {error}"
        if tried.returncode == 0:
            return wrapper, ""
        trouble = tried.stderr.strip()
    return [], f"could not mount a small disk: {trouble}"
