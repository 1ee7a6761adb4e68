"""Simulated hosts, each with its own worker, host name and state directory.

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

from tests.devtools.chaos.leftovers import children

NAMED = 'hostname "$0" && exec "$@"'


@dataclass(frozen=True, slots=True)
class Host:
    name: str
    state: Path

    @property
    def service(self) -> str:
        return f"queue worker on {self.name}"

    def wrapped(self, command: list[str]) -> list[str]:
        """Return the prefix that sets a host name in a user namespace."""
        own_user = [] if os.geteuid() == 0 else ["--map-root-user"]
        return ["unshare", "--uts", *own_user, "sh", "-c", NAMED, self.name, *command]

    def environment(self, usual: Mapping[str, str]) -> dict[str, str]:
        return {**usual, "CLAUDEOPS_STATE_DIR": str(self.state)}


def played_hosts(count: int, beside: Path, drills: Path) -> tuple[Host, ...]:
    """Create the hosts; none if one is enough."""
    numbers = range(1, count + 1) if count > 1 else ()
    hosts = tuple(Host(f"host-{number}", beside / f"host-{number}") for number in numbers)
    for host in hosts:
        host.state.mkdir(mode=0o700)
        (host.state / "drills").symlink_to(drills)
    return hosts


def why_no_hosts() -> str:
    """Return the reason why several hosts cannot be simulated; empty if they can."""
    tried = subprocess.run(
        Host("host-0", Path()).wrapped(["true"]), capture_output=True, text=True, check=False
    )
    if tried.returncode == 0:
        return ""
    return f"no host with a name of its own can be played here: {tried.stderr.strip()}"


def kill_all(root: int) -> None:
    """Kill a process and all its descendants at once."""
    family = [root]
    for process in family:  # grows while it is walked
        family += children(process)
    for process in family:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
