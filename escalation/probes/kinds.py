"""Runs a probe of each kind. Nothing here changes the system or waits longer than the time-out.

A probe gets a result whatever happens: a target that sends one byte a second, a command that
prints without end or forks, an address that does not exist.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import shlex
import shutil
import signal
import ssl
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import h11
from cryptography import x509
from django.conf import settings

from escalation.agent.process import Traces
from escalation.errors import CannotRun
from escalation.probes.results import Result, failure, nagios_result
from escalation.probes.targets import (
    DEFAULT_DISK_PERCENT,
    DEFAULT_STATUSES,
    address_in,
    expected_statuses,
)
from escalation.sandbox.docker_filter import engine_socket
from escalation.sandbox.setup import SandboxRequest, in_sandbox, safe_path
from escalation.tiers import get_tier
from sessions_app.models import Probe, Watch
from sessions_app.tiers import LOWEST_TIER

Kind, Status = Probe.Kind, Probe.Status
MOST_BODY = 1024 * 1024
MOST_OUTPUT = 64 * 1024
MOST_HEADERS = 64 * 1024
READ_BYTES = 64 * 1024
AGENT = "claudeops-probe"


async def run_probe(probe: Probe, sandboxes: CommandSandboxPool) -> Result:
    """Runs a probe once, within its time-out, and returns a result in every case."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(probe.timeout_seconds):
            return await _RUN[probe.kind](probe, sandboxes)
    except TimeoutError:
        seconds = time.monotonic() - began
        return failure(f"No result within {probe.timeout_seconds} s.", seconds=seconds)
    except ssl.SSLError as error:
        return failure(f"TLS failed: {getattr(error, 'verify_message', '') or error.reason}.")
    except OSError as error:
        return failure(f"{error.strerror or error}.")
    except (h11.ProtocolError, ValueError, UnicodeError) as error:
        return failure(f"The answer cannot be read: {error}.")


# HTTP, also over the socket of the container engine.


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpAnswer:
    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float
    certificate_ends: datetime | None = None


@lru_cache(maxsize=2)
def tls_context(verify: bool) -> ssl.SSLContext:
    """Returns the context for all probes: reading the authorities takes longer than a probe."""
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


async def _http(probe: Probe, sandboxes: CommandSandboxPool) -> Result:
    parts, options = urlsplit(probe.target), probe.options
    is_tls = parts.scheme == "https"
    began = time.monotonic()
    reader, writer = await asyncio.open_connection(
        parts.hostname,
        parts.port or (443 if is_tls else 80),
        ssl=tls_context("insecure" not in options) if is_tls else None,
        limit=READ_BYTES,
    )
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    answer = await _answer(reader, writer, parts.netloc, path, began, body="text" in options)
    return http_result(answer, options, datetime.now(UTC))


async def _answer(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    host: str,
    path: str,
    began: float,
    *,
    body: bool,
) -> HttpAnswer:
    try:
        connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MOST_HEADERS)
        headers = [
            ("Host", host),
            ("User-Agent", AGENT),
            ("Accept", "*/*"),
            ("Connection", "close"),
        ]
        request = connection.send(h11.Request(method="GET", target=path, headers=headers))
        end = connection.send(h11.EndOfMessage())
        writer.write((request or b"") + (end or b""))
        await writer.drain()
        response: h11.Response | None = None
        received = bytearray()
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(READ_BYTES))
            elif isinstance(event, h11.Response):
                response = event
                if not body:
                    break
            elif isinstance(event, h11.Data):
                received += event.data
                if len(received) > MOST_BODY:
                    break
            elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                break
        if response is None:
            raise ValueError("it has no status")
        return HttpAnswer(
            status=response.status_code,
            headers={
                name.decode("latin-1").lower(): value.decode("latin-1")
                for name, value in response.headers
            },
            body=bytes(received[:MOST_BODY]),
            seconds=time.monotonic() - began,
            certificate_ends=_certificate_end(writer),
        )
    finally:
        # Without waiting: a target may not answer the end of TLS.
        writer.transport.abort()


def _certificate_end(writer: asyncio.StreamWriter) -> datetime | None:
    tls = writer.get_extra_info("ssl_object")
    certificate = tls.getpeercert(binary_form=True) if tls else None
    return x509.load_der_x509_certificate(certificate).not_valid_after_utc if certificate else None


def http_result(answer: HttpAnswer, options: Mapping[str, Any], now: datetime) -> Result:
    """Compares an answer with the expectations of a probe. Pure."""
    wanted = str(options.get("status", DEFAULT_STATUSES))
    words = f"status {answer.status} in {answer.seconds * 1000:.0f} ms"
    problems: list[tuple[int, str]] = []
    if not any(answer.status in statuses for statuses in expected_statuses(wanted)):
        problems.append((Status.CRITICAL, f"status {answer.status}, expected {wanted}"))
    text = str(options.get("text", ""))
    if text and text.encode() not in answer.body:
        problems.append((Status.CRITICAL, f"the answer does not contain {text!r}"))
    name, colon, value = str(options.get("header", "")).partition(":")
    if name and name.strip().lower() not in answer.headers:
        problems.append((Status.CRITICAL, f"the answer has no header {name.strip()}"))
    elif colon and value.strip() not in answer.headers[name.strip().lower()]:
        problems.append((Status.CRITICAL, f"the header {name.strip()} is not {value.strip()!r}"))
    if "certificate_days" in options and answer.certificate_ends:
        days = (answer.certificate_ends - now).days
        words += f", certificate valid for {days} days"
        if days < int(options["certificate_days"]):
            problems.append((Status.WARNING, f"the certificate ends in {days} days"))
    return _with_latency(words, problems, options, answer.seconds)


def _with_latency(
    words: str, problems: Sequence[tuple[int, str]], options: Mapping[str, Any], seconds: float
) -> Result:
    found = [*problems]
    longest = options.get("latency_ms")
    if longest is not None and seconds * 1000 > int(longest):
        found.append((Status.WARNING, f"it took {seconds * 1000:.0f} ms, expected {longest}"))
    if not found:
        return Result(status=Status.OK, output=words, seconds=seconds)
    status = max(status for status, _words in found)
    return Result(status=status, output="; ".join(one for _s, one in found), seconds=seconds)


# TCP and DNS.


async def _tcp(probe: Probe, sandboxes: CommandSandboxPool) -> Result:
    address = address_in(probe.target)
    began = time.monotonic()
    _reader, writer = await asyncio.open_connection(address.host, address.port)
    seconds = time.monotonic() - began
    writer.transport.abort()
    return _with_latency(f"connected in {seconds * 1000:.0f} ms", (), probe.options, seconds)


async def _dns(probe: Probe, sandboxes: CommandSandboxPool) -> Result:
    began = time.monotonic()
    found = await asyncio.get_running_loop().getaddrinfo(probe.target, None)
    seconds = time.monotonic() - began
    addresses = sorted({str(entry[4][0]) for entry in found})
    wanted = probe.options.get("address")
    words = f"{probe.target} has the address {', '.join(addresses)}"
    if wanted and wanted not in addresses:
        return failure(f"{words}, expected {wanted}", seconds=seconds)
    return _with_latency(words, (), probe.options, seconds)


# Files and disks. A file system that hangs keeps a thread; the time-out ends the probe.


async def _file(probe: Probe, sandboxes: CommandSandboxPool) -> Result:
    found = await asyncio.to_thread(os.stat, probe.target)
    return file_result(found.st_size, time.time() - found.st_mtime, probe.options)


def file_result(size: int, age: float, options: Mapping[str, Any]) -> Result:
    problems = []
    if "max_age" in options and age > int(options["max_age"]):
        problems.append(f"it is {age:.0f} s old, expected at most {options['max_age']}")
    if "min_size" in options and size < int(options["min_size"]):
        problems.append(f"it has {size} bytes, expected at least {options['min_size']}")
    if "max_size" in options and size > int(options["max_size"]):
        problems.append(f"it has {size} bytes, expected at most {options['max_size']}")
    if problems:
        return failure("; ".join(problems))
    return Result(status=Status.OK, output=f"{size} bytes, {max(0.0, age):.0f} s old")


async def _disk(probe: Probe, sandboxes: CommandSandboxPool) -> Result:
    usage = await asyncio.to_thread(shutil.disk_usage, probe.target)
    percent = 100 * usage.used / (usage.used + usage.free)
    most = int(probe.options.get("max_percent", DEFAULT_DISK_PERCENT))
    words = f"{percent:.1f} % used, {usage.free // 1024**2} MiB free"
    return (
        failure(f"{words}, expected at most {most} %")
        if percent > most
        else Result(status=Status.OK, output=words)
    )


# Containers and units.


async def _container(probe: Probe, sandboxes: CommandSandboxPool) -> Result:
    socket = engine_socket(os.environ)
    if socket is None:
        return failure("There is no socket of Docker or Podman here.", Status.UNKNOWN)
    began = time.monotonic()
    reader, writer = await asyncio.open_unix_connection(str(socket), limit=READ_BYTES)
    path = f"/containers/{probe.target}/json"
    answer = await _answer(reader, writer, "localhost", path, began, body=True)
    if answer.status == 404:
        return failure(f"There is no container {probe.target}.")
    if answer.status != 200:
        return failure(f"The engine answered with status {answer.status}.", Status.UNKNOWN)
    return container_result(json.loads(answer.body), probe.memory)


def container_result(inspected: Mapping[str, Any], memory: Mapping[str, Any]) -> Result:
    """Reads the answer of `docker inspect`. A restart since the look before is a warning."""
    state = inspected.get("State") or {}
    restarts = int(inspected.get("RestartCount") or 0)
    before = memory.get("restarts")
    health = (state.get("Health") or {}).get("Status", "")
    words = ", ".join(filter(None, (str(state.get("Status", "")), health, f"{restarts} restarts")))
    kept = {"restarts": restarts}
    if not state.get("Running") or state.get("Restarting") or state.get("Paused"):
        error = state.get("Error") or f"exit code {state.get('ExitCode')}"
        return Result(status=Status.CRITICAL, output=f"{words}; {error}", memory=kept)
    if health == "unhealthy":
        log = (state["Health"].get("Log") or [{}])[-1].get("Output", "")
        return Result(status=Status.CRITICAL, output=f"{words}; {log[:1000]}", memory=kept)
    if isinstance(before, int) and restarts > before:
        return Result(
            status=Status.WARNING,
            output=f"{words}; it was restarted {restarts - before} times since the look before",
            memory=kept,
        )
    return Result(status=Status.OK, output=words, memory=kept)


UNIT_PROPERTIES = ("LoadState", "ActiveState", "SubState", "Result", "NRestarts")


async def _unit(probe: Probe, sandboxes: CommandSandboxPool) -> Result:
    if shutil.which("systemctl") is None:
        return failure("There is no systemctl here.", Status.UNKNOWN)
    properties = ",".join(UNIT_PROPERTIES)
    argv = ("systemctl", "show", f"--property={properties}", "--", probe.target)
    environment = {**os.environ, "LC_ALL": "C"}
    code, output = await asyncio.to_thread(
        run_bounded, argv, cwd="/", environment=environment, timeout=probe.timeout_seconds
    )
    if code:
        return failure(f"systemctl failed: {output}", Status.UNKNOWN)
    return unit_result(output)


def unit_result(output: str) -> Result:
    """Reads the output of `systemctl show`."""
    found = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
    active = found.get("ActiveState", "")
    words = f"{active} ({found.get('SubState', '')}), {found.get('NRestarts') or 0} restarts"
    if found.get("LoadState") != "loaded":
        return failure(f"The unit is {found.get('LoadState') or 'not known'}.")
    if active == "active":
        return Result(status=Status.OK, output=words)
    if active in {"activating", "reloading", "deactivating"}:
        return Result(status=Status.WARNING, output=words)
    return failure(f"{words}; result {found.get('Result', '')}")


# Commands run in the command sandbox of Tier 1, with the grants of the watch: nothing can be
# changed. They use the client of the command runner, as the CLI does.


async def _command(probe: Probe, sandboxes: CommandSandboxPool) -> Result:
    began = time.monotonic()
    try:
        client = await asyncio.to_thread(sandboxes.client_of, probe.watch)
    except CannotRun as error:
        return failure(str(error), Status.UNKNOWN)
    text = f"eval {shlex.quote(probe.target)}"
    code, output = await asyncio.to_thread(
        run_bounded,
        (str(client), text),
        cwd=probe.watch.workdir,
        environment={},
        timeout=probe.timeout_seconds,
    )
    return nagios_result(code, output, time.monotonic() - began)


def run_bounded(
    argv: Sequence[str], *, cwd: str, environment: Mapping[str, str], timeout: float
) -> tuple[int, str]:
    """Runs a program and returns its exit code and what it prints. Raises TimeoutError.

    A program that prints too much or takes too long is killed with all processes of its session.
    """
    until, output = time.monotonic() + timeout, bytearray()
    process = subprocess.Popen(
        argv,
        cwd=cwd,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    with process:
        try:
            assert process.stdout is not None, "it has a pipe"
            poll = select.poll()
            poll.register(process.stdout, select.POLLIN)
            while len(output) < MOST_OUTPUT:
                left = max(0.0, until - time.monotonic())
                if not poll.poll(left * 1000):
                    raise TimeoutError
                data = os.read(process.stdout.fileno(), READ_BYTES)
                if not data:
                    code = process.wait(max(0.1, until - time.monotonic()))
                    return code, output.decode(errors="replace")
                output += data
        except subprocess.TimeoutExpired as error:
            raise TimeoutError from error
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    return Status.UNKNOWN, f"It printed more than {MOST_OUTPUT // 1024} KiB and was ended."


class CommandSandboxPool:
    """Command sandboxes of Tier 1, one for each watch, until `close`."""

    def __init__(self, stand_ins: tuple[Path, ...] = ()) -> None:
        """`stand_ins`: directories with the programs of a drill."""
        self._stand_ins = stand_ins
        self._lock = threading.Lock()
        self._open: dict[int, tuple[object, ExitStack, Path]] = {}
        _remove_leftovers()

    def client_of(self, watch: Watch) -> Path:
        """Returns the program that runs a text in the sandbox of a watch. Raises CannotRun."""
        made_from = (watch.workdir, watch.grants)
        with self._lock:
            known = self._open.get(watch.pk)
            if known is not None and known[0] == made_from:
                return known[2]
            if known is not None:
                self._close(watch.pk)
            stack = ExitStack()
            try:
                sandbox = stack.enter_context(
                    in_sandbox(
                        self._request(watch),
                        on_decision=lambda record: None,
                        on_end=lambda record, end: None,
                    )
                )
            except BaseException:
                stack.close()
                raise
            self._open[watch.pk] = (made_from, stack, sandbox.paths.client)
            return sandbox.paths.client

    def close(self) -> None:
        with self._lock:
            for number in list(self._open):
                self._close(number)

    def _close(self, number: int) -> None:
        _made_from, stack, client = self._open.pop(number)
        stack.close()
        shutil.rmtree(client.parent, ignore_errors=True)

    def _request(self, watch: Watch) -> SandboxRequest:
        name = f"probes-{os.getpid()}-{watch.pk}"
        directory = _run_directories() / name
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        configuration = directory / "claude"
        configuration.mkdir(exist_ok=True, mode=0o700)
        path = safe_path(os.environ.get("PATH", ""), (watch.workdir,))
        path = ":".join((*map(str, self._stand_ins), path))
        others = Watch.objects.exclude(pk=watch.pk).values_list("workdir", flat=True)
        return SandboxRequest(
            tier=get_tier(LOWEST_TIER),
            workdir=Path(watch.workdir),
            config_directory=configuration,
            run_directory=directory,
            run_environment={**os.environ, "PATH": path},
            login={},
            traces=Traces(mark=name, tool_log=directory / "tools"),
            watch_grants=watch.grants,
            changes_nothing=True,
            stand_ins=self._stand_ins,
            other_watches=tuple(map(Path, others)),
        )


def _run_directories() -> Path:
    return Path(settings.CLAUDEOPS_STATE_DIR) / "runs"


def _remove_leftovers() -> None:
    """Removes the directories of workers of this host that were killed."""
    for directory in _run_directories().glob("probes-*"):
        pid = directory.name.split("-")[1]
        if not Path("/proc", pid).exists():
            shutil.rmtree(directory, ignore_errors=True)


async def _heartbeat(probe: Probe, sandboxes: CommandSandboxPool) -> Result:
    return failure("A heartbeat is called; it is not run.", Status.UNKNOWN)


_RUN: Mapping[str, Callable[[Probe, CommandSandboxPool], Awaitable[Result]]] = {
    Kind.HTTP: _http,
    Kind.TCP: _tcp,
    Kind.DNS: _dns,
    Kind.COMMAND: _command,
    Kind.FILE: _file,
    Kind.DISK: _disk,
    Kind.CONTAINER: _container,
    Kind.UNIT: _unit,
    Kind.HEARTBEAT: _heartbeat,
}
