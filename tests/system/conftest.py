"""A whole installation of its own for each test: processes, database, state directory."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.escalation.fake_cli import FakeCli

PROJECT = Path(__file__).resolve().parents[2]
TIMEOUT_SECONDS = 60


@dataclass
class Installation:
    state: Path
    environment: dict[str, str]
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    nap: str = field(default_factory=lambda: f"61.{uuid.uuid4().int % 10**12:012}")
    """Seconds that no other test sleeps: the tool of this one is found by them."""

    @property
    def database(self) -> Path:
        return self.state / "claudeops.sqlite3"

    def manage(
        self, *arguments: str, stdin: str = "", timeout: int = 120
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=PROJECT,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "manage.py", *arguments],
            cwd=PROJECT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(self.database, timeout=20)
        try:
            return connection.execute(query, parameters).fetchall()
        finally:
            connection.close()

    def chain(self, session: int) -> list[dict[str, Any]]:
        return json.loads(self.manage("chain", str(session), "--json").stdout)

    def napping_tools(self) -> list[str]:
        """The tool itself, not the shells and prompts that speak of it."""
        command_lines = [process.info["cmdline"] for process in psutil.process_iter(["cmdline"])]
        return [
            " ".join(words)
            for words in command_lines
            if words and words[0].endswith("sleep") and words[1:] == [self.nap]
        ]

    def stop_everything(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(15)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            # The children of a worker that was killed alone.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    """Nothing but an empty directory: the first command makes the rest."""
    installed = installed_in(tmp_path)
    yield installed
    installed.stop_everything()


@pytest.fixture(scope="session")
def first_installation(
    tmp_path_factory: pytest.TempPathFactory, migrated_database: Path
) -> Installation:
    """Migrated and with its CLI probed, once: every other one gets a copy of what came of it.

    The workers of pytest-xdist share it: the first that needs it makes it.
    """
    base = tmp_path_factory.getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "first-installation"
    place.mkdir(exist_ok=True)
    first = installed_in(place)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "ready").exists():
            first.state.mkdir(mode=0o700)
            shutil.copy(migrated_database, first.database)
            done = first.manage("doctor")
            assert done.returncode == 0, done.stderr
            (place / "ready").touch()
    return first


@pytest.fixture
def migrated(installation: Installation, first_installation: Installation) -> Installation:
    """Ready to run a session, with an empty record."""
    installation.state.mkdir(mode=0o700, exist_ok=True)
    shutil.copy(first_installation.database, installation.database)
    shutil.copytree(
        first_installation.state / "cli", installation.state / "cli", dirs_exist_ok=True
    )
    return installation


def installed_in(directory: Path) -> Installation:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    state, watched = directory / "state", directory / "watched"
    watched.mkdir(exist_ok=True)
    environment = {
        **kept,
        "CLAUDEOPS_STATE_DIR": str(state),
        "CLAUDEOPS_WORKDIR": str(watched),
        # A watch that may go all the way: a new one only looks.
        **{"CLAUDEOPS_MAX_TIER": "3", "CLAUDEOPS_DRY_RUN": "no"},
        "CLAUDEOPS_REQUIRE_APPROVAL": "none",
        "CLAUDEOPS_PORT": str(free_port()),
    }
    return Installation(state, environment)


@pytest.fixture
def fake_cli(installation: Installation, settings, tmp_path: Path) -> FakeCli:
    """A `claude` that does as the test says, for every process of the installation."""
    settings.CLAUDEOPS_STATE_DIR = installation.state
    fake = FakeCli(tmp_path / "fake-cli").install(settings)
    installation.environment["CLAUDEOPS_CLAUDE_BIN"] = str(fake.path)
    installation.environment["ANTHROPIC_API_KEY"] = "test-key"
    # The sandbox does not mount its directory.
    installation.environment["CLAUDEOPS_SANDBOX"] = "off"
    return fake


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    give_up = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < give_up:
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError(f"did not happen within {TIMEOUT_SECONDS} s: {what}")


def processes_mentioning(text: str) -> list[str]:
    """Command lines and environments of living processes in which the text occurs."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            known = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if text.encode() in known:
            found.append(known.split(b"\0\0")[0].decode(errors="replace")[:200])
    return found
