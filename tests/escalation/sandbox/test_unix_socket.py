from __future__ import annotations

import socket
from pathlib import Path

from escalation.sandbox.command_runner import connect_to, listening_at


def deep(tmp_path: Path) -> Path:
    directory = tmp_path / ("a" * 100) / ("b" * 100)
    directory.mkdir(parents=True)
    return directory / "tools.sock"


def test_a_path_longer_than_any_address_is_bound_and_reached(tmp_path):
    path = deep(tmp_path)

    with listening_at(path, 4) as listener, socket.socket(socket.AF_UNIX) as client:
        connect_to(client, path)
        served, _address = listener.accept()
        with served:
            served.sendall(b"hello")
        assert client.recv(5) == b"hello"


def test_only_this_user_may_connect_and_what_lay_there_is_gone(tmp_path):
    path = deep(tmp_path)
    path.write_text("in the way")

    with listening_at(path, 4):
        assert path.is_socket()
        assert path.stat().st_mode & 0o777 == 0o600
