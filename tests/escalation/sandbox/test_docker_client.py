"""What the real docker client can do through the filter, read from what reached the engine."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from escalation.sandbox.proof.docker_engine import DockerEngine, docker_engine
from tests.escalation.sandbox.docker_cases import DOCKER, filters_before
from tests.escalation.sandbox.docker_cases import docker as docker_words


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[DockerEngine]:
    with docker_engine(tmp_path / "engine.sock") as engine:
        yield engine


@pytest.fixture
def filtered(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    with filters_before(tmp_path / "engine.sock") as at:
        yield at


def docker(path: Path, command: str, **options) -> subprocess.CompletedProcess[str]:
    return docker_words(path, *command.split(), **options)


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("ps --format {{.Names}}", "web\ndb\n"),
        ("inspect web --format {{.State.Status}}", "running\n"),
        ("logs web", "web is listening\nweb answered 200\n"),
        ("version --format {{.Server.Version}}", "27.0.0\n"),
        ("volume ls -q", "shop_data\n"),
        ("cp web:/hello -", "hello"),
    ],
)
def test_the_real_client_reads_at_tier_1(engine, filtered, command, shown):
    result = docker(filtered(1), command)

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(shown)


@pytest.mark.parametrize("command", ["restart web", "rm -f db", "exec web ls", "system prune -f"])
def test_the_real_client_changes_nothing_at_tier_1_and_says_why(engine, filtered, command):
    result = docker(filtered(1), command)

    assert result.returncode == 1
    assert "Error response from daemon: not at Tier 1: " in result.stderr
    assert engine.changes == []


def test_the_real_client_restarts_a_container_at_tier_2(engine, filtered):
    result = docker(filtered(2), "restart web")

    assert (result.returncode, result.stdout) == (0, "web\n")
    assert engine.containers["web"].restarts == 1
    assert engine.changes == ["POST /containers/web/restart"]


def test_the_real_client_removes_nothing_at_tier_2(engine, filtered):
    result = docker(filtered(2), "rm -f db")

    assert "not at Tier 2" in result.stderr
    assert set(engine.containers) == {"web", "db"}


def test_the_real_client_works_in_a_container_at_tier_3(engine, filtered):
    result = docker(filtered(3), "run -i --name made shop/web", input="one\ntwo\n")

    assert (result.returncode, result.stdout) == (0, "inside\none\ntwo\n")
    assert engine.containers["made"].running


@pytest.mark.parametrize(
    "command",
    [
        "run -d --privileged shop/web",
        "run -d -v /:/host shop/web",
        "run -d -v /srv/ops/state:/x shop/web",
        "run -d --mount type=bind,src=/var/run/docker.sock,dst=/s shop/web",
        "exec --privileged web ls",
        "volume rm shop_data",
        "container prune -f",
        "rm -v db",
    ],
)
def test_the_real_client_does_not_reach_the_host_at_tier_3(engine, filtered, command):
    result = docker(filtered(3), command)

    assert "not at Tier 3" in result.stderr
    assert engine.changes == []


def test_the_real_client_sends_a_build_through(engine, filtered, tmp_path):
    context = tmp_path / "context"
    context.mkdir()
    (context / "Dockerfile").write_text("FROM scratch\n")
    (context / "large").write_bytes(b"x" * 3_000_000)

    result = docker(filtered(3), f"build {context}")

    assert (result.returncode, engine.changes) == (0, ["POST /build"])
    assert len(engine.bodies[-1]) > 3_000_000


def test_a_client_that_follows_logs_and_leaves_is_not_followed_any_more(engine, filtered):
    environment = {"DOCKER_HOST": f"unix://{filtered(1)}", "HOME": "/nonexistent"}
    with subprocess.Popen(
        [DOCKER, "logs", "-f", "web"], env=environment, stdout=subprocess.PIPE
    ) as client:
        assert client.stdout is not None
        lines = [client.stdout.readline() for _line in range(2)]
        client.kill()

    assert lines == [b"web is listening\n", b"web answered 200\n"]
    assert engine.follower_left.wait(5)


def test_a_missing_engine_is_reported(filtered):
    result = docker(filtered(1), "ps")

    assert result.returncode == 1
    assert "no Docker engine here: No such file or directory" in result.stderr
