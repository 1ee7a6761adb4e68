"""A temporary PostgreSQL server from the Debian package, on a free port of loopback."""

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
from dataclasses import dataclass
from pathlib import Path

NOT_INSTALLED = "PostgreSQL's server is not installed: run `make postgres`"


class NoPostgres(Exception):
    """No PostgreSQL server can be started; the message says what to do."""


@dataclass(frozen=True, slots=True)
class OwnPostgres:
    directory: Path
    programs: Path
    port: int

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def new_database(self, template: str = "") -> str:
        """Create an empty database, or a copy of another one, and return its address."""
        return new_database(self.port, template)

    def dump(self, address: str) -> bytes:
        """Return the statements that make the database at the address."""
        return _run("pg_dump", address)

    def load(self, address: str, statements: bytes) -> None:
        _run("psql", "-qX", "-v", "ON_ERROR_STOP=1", address, stdin=statements)

    def begin(self) -> None:
        initdb = (str(self.programs / "initdb"), "-D", str(self.data), "-E", "UTF8")
        _run(*initdb, "-A", "trust", "-U", "tests", "--no-sync")
        self.start()

    def start(self) -> None:
        options = f"-p {self.port} -k {self.directory} -c listen_addresses=127.0.0.1 -c fsync=off"
        log = str(self.directory / "log")
        self._control("-w", "-l", log, "-o", options, "start")

    def stop(self, manner: str = "immediate") -> None:
        """Stop the server: `immediate` as in a crash, `fast` after a rollback."""
        self._control("-m", manner, "stop")

    def _control(self, *words: str) -> None:
        _run(str(self.programs / "pg_ctl"), "-D", str(self.data), *words)


@contextmanager
def own_postgres() -> Iterator[OwnPostgres]:
    """Start a server; stop it and remove its directory at the end."""
    programs = newest_programs()
    directory = Path(tempfile.mkdtemp(prefix="claudeops-postgres-"))
    _hand_over(directory)
    server = OwnPostgres(directory, programs, _free_port())
    server.begin()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


def newest_programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not found:
        raise NoPostgres(NOT_INSTALLED)
    return found[-1]


@contextmanager
def postgres_server() -> Iterator[int]:
    """Start the server and return its port."""
    with own_postgres() as server:
        yield server.port


def new_database(port: int, template: str = "", name: str = "", encoding: str = "") -> str:
    """Create an empty database, or a copy of the one at `template`, and return its address."""
    name = name or f"contest_{uuid.uuid4().hex}"
    copied = ["-T", template.rpartition("/")[2]] if template else []
    if encoding:
        copied = ["-T", "template0", "-E", encoding, "--locale", "C"]
    _run("createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "tests", *copied, name)
    return f"postgresql://tests@127.0.0.1:{port}/{name}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _hand_over(directory: Path) -> None:
    """Run as the user of the package if this is root, as which PostgreSQL does not start."""
    if os.getuid() == 0:
        owner = pwd.getpwnam("postgres")
        os.chown(directory, owner.pw_uid, owner.pw_gid)


def _run(*command: str, stdin: bytes = b"") -> bytes:
    as_user = ("runuser", "-u", "postgres", "--") if os.getuid() == 0 else ()
    done = subprocess.run(
        [*as_user, *command], input=stdin, check=True, capture_output=True, cwd="/", timeout=60
    )
    return done.stdout
