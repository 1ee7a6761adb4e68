"""Started as root: what that means, and what to do in its place.

It is said once at the start of a worker, on the dashboard and by `check --deploy`; not by every
command, since in a container root may be all there is.
"""

from __future__ import annotations

import os

RUNS_AS_ROOT = "Claude Ops runs as root: what its walls let through, it does with every right."
INSTEAD_OF_ROOT = (
    "Give it a user of its own (systemd: User=claudeops) with the groups and sudo rules that "
    "Tier 3 needs, and let that user own the state directory."
)


def runs_as_root() -> bool:
    return os.geteuid() == 0
