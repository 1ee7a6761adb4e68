"""ping opens a raw socket, which no room may. A kernel can give it another kind, by group: then it
works without any right."""

from __future__ import annotations

import os
from pathlib import Path

GROUPS_THAT_MAY = Path("/proc/sys/net/ipv4/ping_group_range")
WHAT_TO_SET = "sysctl -w net.ipv4.ping_group_range='0 2147483647'"


def ping_in_rooms() -> str:
    """Whether it works there, in words for an operator."""
    try:
        lowest, highest = map(int, GROUPS_THAT_MAY.read_text().split())
    except (OSError, ValueError):
        return "unknown: the kernel does not say which groups may"
    if lowest <= os.getegid() <= highest:
        return "works"
    return f"does not work: no right to raw sockets; {WHAT_TO_SET} lets it"
