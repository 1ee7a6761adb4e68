"""Where the dashboard is, as far as this machine can tell: for links in what it sends."""

from __future__ import annotations

import socket

EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 (compared, not bound)


def own_address(host: str, port: int) -> str:
    """What listens everywhere is reached by the machine's name."""
    name = socket.gethostname() if host in EVERYWHERE else host
    return f"http://{f'[{name}]' if ':' in name else name}:{port}"
