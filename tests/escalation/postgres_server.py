"""A PostgreSQL server of the tests' own, from Debian's package, on a free port of loopback."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def postgres_server() -> Iterator[int]:
    """Gives the port. `make test` installs the server; it runs for one test session."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    assert programs, "PostgreSQL's server is not installed: run `make postgres`"
    directory = Path(tempfile.mkdtemp(prefix="claudeops-postgres-"))
    port = _free_port()
    _hand_over(directory)
    data, control = directory / "data", programs[-1] / "pg_ctl"
    _run(str(programs[-1] / "initdb"), "-D", str(data), "-A", "trust", "-U", "tests")
    options = f"-p {port} -k {directory} -c listen_addresses=127.0.0.1 -c fsync=off"
    _run(str(control), "-D", str(data), "-w", "-l", str(directory / "log"), "-o", options, "start")
    try:
        yield port
    finally:
        _run(str(control), "-D", str(data), "-m", "immediate", "stop")
        shutil.rmtree(directory, ignore_errors=True)


def new_database(port: int) -> str:
    """The address of an empty database."""
    name = f"contest_{uuid.uuid4().hex}"
    _run("createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "tests", name)
    return f"postgresql://tests@127.0.0.1:{port}/{name}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _hand_over(directory: Path) -> None:
    """PostgreSQL refuses to run as root; its package brings a user for it."""
    if os.getuid() == 0:
        owner = pwd.getpwnam("postgres")
        os.chown(directory, owner.pw_uid, owner.pw_gid)


def _run(*command: str) -> None:
    as_user = ("runuser", "-u", "postgres", "--") if os.getuid() == 0 else ()
    subprocess.run([*as_user, *command], check=True, capture_output=True, cwd="/", timeout=60)
