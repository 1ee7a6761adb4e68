"""Whether a web server can listen somewhere, and if not, which setting is to blame.

Nothing of Django is imported here.
"""

from __future__ import annotations

import errno
import socket

HOST_ERRORS = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}


def why_not_bound(host: str, port: int) -> str:
    """A sentence that names the setting and the remedy; empty where nothing is in the way."""
    try:
        family, kind, protocol, _name, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError):
        return (
            f"CLAUDEOPS_HOST is {host!r}, which is no address of this machine and no known name. "
            "Set it to 127.0.0.1, or to an address that `ip addr` shows."
        )
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            return _reason(host, port, error)
    return ""


def _reason(host: str, port: int, error: OSError) -> str:
    if error.errno in HOST_ERRORS:
        return (
            f"CLAUDEOPS_HOST is {host!r}, which is no address of this machine. "
            "Set it to 127.0.0.1, or to an address that `ip addr` shows."
        )
    if error.errno == errno.EACCES:
        return (
            f"CLAUDEOPS_PORT is {port}, which this user may not listen on. "
            "Set it to 1024 or higher, and let a proxy take the lower one."
        )
    if error.errno == errno.EADDRINUSE:
        return (
            f"Port {port} on {host} is taken by another program. "
            "Stop that one, or set CLAUDEOPS_PORT to another number."
        )
    return f"Nothing can listen on {host} port {port}: {error.strerror}. Change CLAUDEOPS_HOST."
