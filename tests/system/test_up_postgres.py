"""`claudeops up` before its database: it waits, and goes on once that answers."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from tests.devtools.postgres import OwnPostgres
from tests.system.conftest import Installation, free_port
from tests.system.test_up import read_until, stop


@contextlib.contextmanager
def relay(port: int, target: int) -> Iterator[None]:
    """What connects to the one port speaks with the other."""
    with socket.create_server(("127.0.0.1", port)) as server:
        threading.Thread(target=_serve, args=(server, target), daemon=True).start()
        yield
        server.shutdown(socket.SHUT_RDWR)


def _serve(server: socket.socket, target: int) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _address = server.accept()
            there = socket.create_connection(("127.0.0.1", target))
            for source, sink in ((client, there), (there, client)):
                threading.Thread(target=_pass_on, args=(source, sink), daemon=True).start()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError), source, sink:
        while words := source.recv(65536):
            sink.sendall(words)
        sink.shutdown(socket.SHUT_RDWR)


def test_up_continues_once_the_database_answers(installation: Installation, postgres: OwnPostgres):
    later = free_port()
    address = postgres.new_database()
    installation.environment["DATABASE_URL"] = address.replace(f":{postgres.port}/", f":{later}/")

    process = installation.start("up")
    waited = read_until(process, "Waiting for it")
    with relay(later, postgres.port):
        said = read_until(process, "Stop ")
        stop(process)

    assert f"Is PostgreSQL running at 127.0.0.1:{later}" in waited
    assert "Setting up the database." in said
    assert process.returncode == 0
