"""Unix sockets at paths of any length.

The address of a socket has room for 107 bytes, and a state directory may lie deeper than that. So
the directory is named by a descriptor, and the path begins there.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def listening_at(path: Path, backlog: int) -> socket.socket:
    """For this user alone; what lay at the path before is gone."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(path) as address:
            listener.bind(address)
        path.chmod(0o600)
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    return listener


def connect_to(connection: socket.socket, path: Path) -> None:
    with _short(path) as address:
        connection.connect(address)


@contextmanager
def _short(path: Path) -> Iterator[str]:
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
