"""A command runner under test, and the client side of the CLI."""

from __future__ import annotations

import os
import shlex
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from escalation.command_policy.decision import Decision, ExecRequest
from escalation.sandbox.command_runner import CommandEnd, CommandRunner, DecisionRecord
from escalation.sandbox.layout import RunPaths
from escalation.sandbox.limits import SandboxLimits
from escalation.sandbox.setup import write_client
from sessions_app.models.session import Verdict


def wait_until(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.01)


def living(words: str) -> list[int]:
    """Processes of this host whose command line is exactly these words."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if " ".join(process.info["cmdline"] or ()) == words
    ]


def allowed(grant: str = "", *argv: str) -> Decision:
    return Decision(verdict=Verdict.ALLOW, rule="test", grant=grant, argv=argv)


def as_written(grant: str, verdict: Verdict = Verdict.ALLOW) -> Callable[[ExecRequest], Decision]:
    """Let the arguments of a shim be the program that runs: `curl touch made`."""
    return lambda request: Decision(
        verdict=verdict, rule="test", grant=grant, argv=request.argv[1:]
    )


def tls_context(directory: Path) -> ssl.SSLContext:
    """The side of a server, with a certificate that no system knows."""
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    made = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    files = ["-subj", "/CN=localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", "-x509", *made, *files], check=True, stderr=-3)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


DENIED = Decision(verdict=Verdict.DENY, rule="needs Tier 2", reason="Ask for escalation.")


def shell_text(command: str, directory_file: str = "/nowhere/claude-1-cwd") -> str:
    """As CLI 2.1 writes it."""
    return (
        "source /nowhere/snapshot.sh 2>/dev/null || true && "
        f"{{ shopt -u extglob || setopt NO_EXTENDED_GLOB; }} >/dev/null 2>&1 || true && "
        f"eval {shlex.quote(command)} < /dev/null && pwd -P >| {shlex.quote(directory_file)}"
    )


@dataclass
class Running:
    paths: RunPaths
    decisions: list[DecisionRecord] = field(default_factory=list)
    ends: list[CommandEnd] = field(default_factory=list)
    runner: Any = None

    def start(self, command: str | bytes, **options: Any) -> Any:
        """The client, as the CLI starts it."""
        text = shell_text(command) if isinstance(command, str) else command
        cwd = options.pop("cwd", self.paths.workdir)
        return subprocess.Popen(
            [self.paths.client, text],
            stdin=subprocess.DEVNULL,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
            text=True,
            errors="replace",
            env={"PATH": os.environ["PATH"]},
            cwd=cwd,
        )

    def call(self, command: str | bytes, **options: Any) -> subprocess.CompletedProcess[str]:
        with self.start(command, **options) as client:
            said, complained = client.communicate(timeout=60)
        return subprocess.CompletedProcess(command, client.returncode, said, complained)


@contextmanager
def running(
    paths: RunPaths,
    decide: Decision | Callable[[ExecRequest], Decision] = DENIED,
    limits: SandboxLimits | None = None,
    on_decision: Callable[[DecisionRecord], None] | None = None,
    **options: Any,
) -> Iterator[Running]:
    """Serve a run. A decision with an argument vector of its own replaces that of the request."""
    found = Running(paths)
    write_client(Path(paths.run_directory))

    def on_end(record: DecisionRecord, end: CommandEnd) -> None:
        found.ends.append(end)

    def decided(request: ExecRequest) -> Decision:
        decision = decide if isinstance(decide, Decision) else decide(request)
        return decision if decision.argv else replace(decision, argv=request.argv)

    found.runner = CommandRunner(
        paths, decided, on_decision or found.decisions.append, on_end, limits=limits, **options
    )
    with found.runner.serving():
        yield found
