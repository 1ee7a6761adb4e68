"""Every kind of probe against real targets on this machine, also hostile ones."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from escalation.probes.kinds import (
    CommandSandboxPool,
    HttpAnswer,
    container_result,
    file_result,
    http_result,
    run_probe,
    unit_result,
)
from escalation.probes.results import Result
from sessions_app.models import Probe, Watch
from tests.tables import each_row

Kind, Status = Probe.Kind, Probe.Status
NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)


def run(
    kind: str, target: str, timeout: int = 5, watch: Watch | None = None, **options: Any
) -> Result:
    probe = Probe(
        watch=watch or Watch(pk=1, name="shop", workdir="/tmp"),
        name="it",
        service="it",
        kind=kind,
        target=target,
        timeout_seconds=timeout,
        options=options,
    )
    pool = CommandSandboxPool()
    try:
        return asyncio.run(run_probe(probe, pool))
    finally:
        pool.close()


@contextmanager
def serving(answer: Callable[[socket.socket], None], path: Path | None = None) -> Iterator[int]:
    """A server that passes every connection to a function, in a thread of its own."""
    listener = socket.socket(socket.AF_UNIX if path else socket.AF_INET)
    listener.bind(str(path) if path else ("127.0.0.1", 0))
    listener.listen()

    def serve() -> None:
        while True:
            try:
                connection, _address = listener.accept()
            except OSError:
                return
            threading.Thread(target=guarded, args=(connection,), daemon=True).start()

    def guarded(connection: socket.socket) -> None:
        with connection:
            try:
                connection.recv(65536)
                answer(connection)
            except OSError:
                return

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield 0 if path else listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def saying(text: str) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(text.replace("\n", "\r\n").encode())


GOOD = "HTTP/1.1 200 OK\nX-App: shop\nContent-Length: 5\n\nhello"


@pytest.mark.parametrize(
    ("answer", "options", "status"),
    [
        (GOOD, {}, Status.OK),
        (GOOD, {"text": "hello", "header": "X-App: shop", "status": "200"}, Status.OK),
        (GOOD, {"text": "bye"}, Status.CRITICAL),
        (GOOD, {"header": "X-Other"}, Status.CRITICAL),
        (GOOD, {"latency_ms": 0}, Status.WARNING),
        ("HTTP/1.1 502 Bad\nContent-Length: 0\n\n", {}, Status.CRITICAL),
        ("HTTP/1.1 302 Found\nContent-Length: 0\n\n", {}, Status.OK),
        ("HTTP/1.1 302 Found\nContent-Length: 0\n\n", {"status": "200"}, Status.CRITICAL),
        ("nonsense\n\n", {}, Status.CRITICAL),
        ("", {}, Status.CRITICAL),
    ],
)
def test_http(answer, options, status):
    with serving(saying(answer)) as port:
        assert run(Kind.HTTP, f"http://127.0.0.1:{port}/x", **options).status == status


def one_byte_a_second(connection: socket.socket) -> None:
    for character in GOOD * 100:
        connection.send(character.encode())
        time.sleep(1)


def without_end(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(b"x" * 100_000)


def endless_headers(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X-More: " + b"y" * 1000 + b"\r\n")


@pytest.mark.parametrize(
    ("server", "options", "status"),
    [
        (one_byte_a_second, {}, Status.CRITICAL),
        (without_end, {"text": "z"}, Status.CRITICAL),
        (without_end, {"text": "xxx"}, Status.OK),
        (endless_headers, {}, Status.CRITICAL),
    ],
)
def test_a_hostile_http_server_is_bounded(server, options, status):
    began = time.monotonic()
    with serving(server) as port:
        result = run(Kind.HTTP, f"http://127.0.0.1:{port}/", timeout=2, **options)

    assert result.status == status
    assert time.monotonic() - began < 5


def test_a_server_without_tls_fails_https():
    with serving(saying(GOOD)) as port:
        assert run(Kind.HTTP, f"https://127.0.0.1:{port}/").status == Status.CRITICAL


def answered(**facts: Any) -> HttpAnswer:
    return HttpAnswer(**{"status": 200, "headers": {}, "body": b"", "seconds": 0.1, **facts})


@each_row(
    "days, wanted, status",
    [(30, 14, Status.OK), (13, 14, Status.WARNING), (-1, 14, Status.WARNING)],
)
def test_days_left_of_the_certificate(days, wanted, status):
    answer = answered(certificate_ends=NOW + timedelta(days=days, hours=1))

    assert http_result(answer, {"certificate_days": wanted}, NOW).status == status


def test_tcp():
    with serving(saying("")) as port:
        assert run(Kind.TCP, f"127.0.0.1:{port}").status == Status.OK
    assert run(Kind.TCP, f"127.0.0.1:{port}").status == Status.CRITICAL


def test_dns():
    assert run(Kind.DNS, "localhost").status == Status.OK
    assert run(Kind.DNS, "localhost", address="192.0.2.1").status == Status.CRITICAL
    assert run(Kind.DNS, "no-such-name.invalid").status == Status.CRITICAL


@each_row(
    "size, age, options, status",
    [
        (10, 5, {}, Status.OK),
        (10, 61, {"max_age": 60}, Status.CRITICAL),
        (10, -600, {"max_age": 60}, Status.OK),
        (10, 5, {"min_size": 11}, Status.CRITICAL),
        (10, 5, {"max_size": 9}, Status.CRITICAL),
        (10, 5, {"max_age": 60, "min_size": 10, "max_size": 10}, Status.OK),
    ],
)
def test_expectations_of_a_file(size, age, options, status):
    assert file_result(size, age, options).status == status


def test_files_and_disks(tmp_path):
    file = tmp_path / "latest.tar"
    file.write_text("x")

    assert run(Kind.FILE, str(file)).status == Status.OK
    assert run(Kind.FILE, str(tmp_path / "missing")).status == Status.CRITICAL
    assert run(Kind.DISK, str(tmp_path), max_percent=100).status == Status.OK
    assert run(Kind.DISK, str(tmp_path), max_percent=0).status == Status.CRITICAL


def container(restarts: int = 0, health: str = "", **state: Any) -> dict[str, Any]:
    found = {"Status": "running", "Running": True, **state}
    if health:
        found["Health"] = {"Status": health, "Log": [{"Output": "curl: (7)"}]}
    return {"State": found, "RestartCount": restarts}


@each_row(
    "inspected, memory, status",
    [
        (container(), {}, Status.OK),
        (container(restarts=3), {"restarts": 3}, Status.OK),
        (container(restarts=3), {}, Status.OK),
        (container(restarts=4), {"restarts": 3}, Status.WARNING),
        (container(health="healthy"), {}, Status.OK),
        (container(health="starting"), {}, Status.OK),
        (container(health="unhealthy"), {}, Status.CRITICAL),
        (container(Running=False, ExitCode=1), {}, Status.CRITICAL),
        (container(Restarting=True), {}, Status.CRITICAL),
        (container(Paused=True), {}, Status.CRITICAL),
        ({}, {}, Status.CRITICAL),
    ],
)
def test_states_of_a_container(inspected, memory, status):
    assert container_result(inspected, memory).status == status


def test_a_container_is_read_from_the_engine(tmp_path, monkeypatch):
    path = tmp_path / "docker.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    assert run(Kind.CONTAINER, "web").status == Status.UNKNOWN
    body = json.dumps(container(restarts=2))
    head = f"HTTP/1.1 200 OK\nContent-Length: {len(body)}\n\n"

    with serving(saying(head + body), path):
        result = run(Kind.CONTAINER, "web")

    assert (result.status, result.memory) == (Status.OK, {"restarts": 2})


SHOWN = "LoadState={}\nActiveState={}\nSubState={}\nResult=success\nNRestarts=0\n"


@each_row(
    "load, active, sub, status",
    [
        ("loaded", "active", "running", Status.OK),
        ("loaded", "active", "exited", Status.OK),
        ("loaded", "activating", "auto-restart", Status.WARNING),
        ("loaded", "failed", "failed", Status.CRITICAL),
        ("loaded", "inactive", "dead", Status.CRITICAL),
        ("not-found", "inactive", "dead", Status.CRITICAL),
        ("masked", "inactive", "dead", Status.CRITICAL),
    ],
)
def test_states_of_a_unit(load, active, sub, status):
    assert unit_result(SHOWN.format(load, active, sub)).status == status


def test_output_of_systemctl_without_properties_is_a_failure():
    assert unit_result("").status == Status.CRITICAL


@pytest.mark.django_db
def test_commands_run_in_the_sandbox_of_tier_1(tmp_path, settings):
    settings.CLAUDEOPS_STATE_DIR, settings.CLAUDEOPS_SANDBOX = tmp_path / "state", "required"
    workdir = tmp_path / "shop"
    workdir.mkdir()
    watch = Watch(pk=1, name="shop", workdir=str(workdir))

    def command(text: str, timeout: int = 20) -> Result:
        return run(Kind.COMMAND, text, timeout=timeout, watch=watch)

    good = command("echo 'ALL OK | load1=0.5;1;2'; exit 1")
    assert (good.status, good.output) == (Status.WARNING, "ALL OK")
    assert good.figures["load1"].value == 0.5
    assert command("echo broken; touch made || true; exit 2").status == Status.CRITICAL
    assert list(workdir.iterdir()) == []
    assert command("touch /tmp/x && systemctl restart nginx").status == Status.UNKNOWN
    flood = command("yes | head -c 10000000")
    assert flood.status == Status.UNKNOWN
    assert "64 KiB" in flood.output
    began = time.monotonic()
    mark = f"100{time.monotonic_ns() % 100_000}"
    hangs = command(f"(sleep {mark} & sleep {mark} &); sleep {mark}", timeout=3)
    assert hangs.status == Status.CRITICAL
    assert time.monotonic() - began < 15
    forks = command(f"for one in $(seq 900); do sleep {mark} & done; wait", timeout=5)
    assert forks.status != Status.OK
    assert not [line for line in _command_lines() if mark in line]
    assert not list((tmp_path / "state" / "runs").iterdir())


def _command_lines() -> list[str]:
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            found.append((directory / "cmdline").read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return found
