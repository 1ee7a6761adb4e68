"""Three hosts on one machine with names, states, clocks and CLIs of their own, one PostgreSQL."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.fernet import Fernet

from tests.devtools import chaos
from tests.devtools.chaos.evidence import DrillTraces, ask
from tests.devtools.chaos.hosts import Host, kill_all, played_hosts
from tests.devtools.chaos.record import Row
from tests.devtools.postgres import OwnPostgres

PROJECT = Path(__file__).resolve().parents[2]
SHIFTED_CLOCK = Path(__file__).resolve().parent / "shifted_clock"
OLD_CLI = PROJECT / ".venv" / "old-clis" / "2.1.197" / "claude"

AHEAD, RIGHT, BEHIND = "host-1", "host-2", "host-3"
"""By their clocks. The last one has the older CLI, too."""
CLOCKS = {AHEAD: 60, RIGHT: 0, BEHIND: -60}
LIMIT = 3
"""Sessions at once in the whole installation: a host alone could run two."""
TIMEOUT_SECONDS = 240
STOP_SECONDS = 30

START = """
import sys, django
django.setup()
from escalation.drills.drill import start_drill
print(*[start_drill("chaos").pk for _ in range(int(sys.argv[1]))])
"""


@dataclass
class ThreeHosts:
    directory: Path
    server: OwnPostgres
    address: str
    hosts: dict[str, Host]
    environment: dict[str, str]
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    cycles: list[int] = field(default_factory=list)

    def start(self, name: str) -> None:
        """Its worker, as a service manager would."""
        with self.log_of(name).open("ab") as log:
            self.workers[name] = subprocess.Popen(
                self.hosts[name].wrapped([sys.executable, "-m", "escalation.management", "worker"]),
                cwd=PROJECT,
                env=self._environment_of(name),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """All that runs there at once, as when a machine loses its power."""
        kill_all(self.workers[name].pid)
        self.workers.pop(name).wait()

    def stop(self) -> None:
        for worker in self.workers.values():
            worker.terminate()
        for worker in self.workers.values():
            try:
                worker.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                kill_all(worker.pid)
                worker.wait()

    def manage(self, *words: str) -> str:
        """A command where no worker is: in the directory that the chains are laid out in."""
        done = subprocess.run(
            [sys.executable, *words],
            cwd=PROJECT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start_chains(self, count: int) -> list[int]:
        started = [int(number) for number in self.manage("-c", START, str(count)).split()]
        self.cycles += started
        return started

    def rows(self, query: str, *parameters: Any) -> list[Row]:
        return ask(self.address, query, *parameters)

    def place_of(self, cycle: int) -> DrillTraces:
        return DrillTraces(
            state=Path(self.environment["CLAUDEOPS_STATE_DIR"]),
            drills=self.directory / "drills",
            cycle=cycle,
            other_states=tuple(host.state for host in self.hosts.values()),
            address=self.address,
        )

    def log_of(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def wait_for_end(self, cycles: list[int]) -> None:
        query = "SELECT id FROM sessions_app_cycle WHERE state = 'finished'"
        self.wait_until(
            lambda: set(cycles) <= {row["id"] for row in self.rows(query)}, f"the end of {cycles}"
        )

    def wait_until(self, condition: Callable[[], Any], what: str) -> Any:
        give_up = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < give_up:
            if found := condition():
                return found
            time.sleep(0.1)
        logs = "\n".join(self.log_of(name).read_text()[-3000:] for name in self.hosts)
        raise AssertionError(f"did not happen within {TIMEOUT_SECONDS} s: {what}\n{logs}")

    def _environment_of(self, name: str) -> dict[str, str]:
        old_cli = {"CLAUDEOPS_CLAUDE_BIN": str(OLD_CLI)} if name == BEHIND else {}
        return {
            **self.hosts[name].environment(self.environment),
            "PYTHONPATH": str(SHIFTED_CLOCK),
            "CLOCK_AHEAD_SECONDS": str(CLOCKS[name]),
            **old_cli,
        }


def three_hosts_in(directory: Path, server: OwnPostgres) -> ThreeHosts:
    """Made, with an empty record; no worker runs."""
    assert OLD_CLI.is_file(), "run `make old-clis`: the older CLIs are missing"
    state, drills = directory / "state", directory / "drills"
    for made in (state, drills):
        made.mkdir(mode=0o700)
    (state / "drills").symlink_to(drills)
    address = server.new_database()
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    environment = {
        **kept,
        "DJANGO_SETTINGS_MODULE": "claudeops.settings",
        "CLAUDEOPS_STATE_DIR": str(state),
        "DATABASE_URL": address,
        "CLAUDEOPS_SECRET_KEY": secrets.token_urlsafe(40),
        "CLAUDEOPS_ENCRYPTION_KEY": Fernet.generate_key().decode(),
        "CLAUDEOPS_SCENARIOS_DIR": str(Path(chaos.__file__).parent / "scenarios"),
        "CLAUDEOPS_LOG_LEVEL": "WARNING",
        "CLAUDEOPS_WORKERS": "2",
        "CLAUDEOPS_MAX_SESSIONS": str(LIMIT),
        "CLAUDEOPS_MAX_TIER3_SESSIONS": str(LIMIT),
    }
    hosts = {host.name: host for host in played_hosts(3, directory, drills)}
    made_hosts = ThreeHosts(directory, server, address, hosts, environment)
    made_hosts.manage("manage.py", "migrate", "-v0")
    return made_hosts


@contextmanager
def counting_runs(hosts: ThreeHosts) -> Iterator[list[int]]:
    """How many sessions ran at the same time, again and again, whoever ran them."""
    seen: list[int] = []
    enough = threading.Event()

    def look() -> None:
        query = "SELECT count(*) AS runs FROM sessions WHERE status = 'running'"
        while not enough.wait(0.1):
            seen.append(hosts.rows(query)[0]["runs"])

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield seen
    finally:
        enough.set()
        looking.join()
