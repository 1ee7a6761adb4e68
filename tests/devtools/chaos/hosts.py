"""Hosts of the scratch installation: a worker, a name and a state directory of its own each.

They share the database, the keys, and the directory of the drills, which on real hosts would be the
working directories that a watch names. The name is the kernel's (a UTS namespace), so that every
process of the host has it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from escalation.rehearsal.chaos.left_behind import children

NAMED = 'hostname "$0" && exec "$@"'


@dataclass(frozen=True, slots=True)
class Host:
    name: str
    state: Path

    @property
    def service(self) -> str:
        return f"queue worker on {self.name}"

    def wrapped(self, command: list[str]) -> list[str]:
        """An ordinary user may name a host in a user namespace of their own."""
        own_user = [] if os.geteuid() == 0 else ["--map-root-user"]
        return ["unshare", "--uts", *own_user, "sh", "-c", NAMED, self.name, *command]

    def environment(self, usual: Mapping[str, str]) -> dict[str, str]:
        return {**usual, "CLAUDEOPS_STATE_DIR": str(self.state)}


def played_hosts(count: int, beside: Path, drills: Path) -> tuple[Host, ...]:
    """None where one is enough: then the scratch installation is it."""
    numbers = range(1, count + 1) if count > 1 else ()
    hosts = tuple(Host(f"host-{number}", beside / f"host-{number}") for number in numbers)
    for host in hosts:
        host.state.mkdir(mode=0o700)
        (host.state / "drills").symlink_to(drills)
    return hosts


def why_no_hosts() -> str:
    """Why this machine cannot play several, or nothing."""
    tried = subprocess.run(
        Host("host-0", Path()).wrapped(["true"]), capture_output=True, text=True, check=False
    )
    if tried.returncode == 0:
        return ""
    return f"no host with a name of its own can be played here: {tried.stderr.strip()}"


def kill_all(root: int) -> None:
    """A process and all that came of it, at once, as when a machine loses its power."""
    family = [root]
    for process in family:  # grows while it is walked
        family += children(process)
    for process in family:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
