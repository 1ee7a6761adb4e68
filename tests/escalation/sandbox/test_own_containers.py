"""Where Claude Ops runs in a container itself, no tier ends, enters or reads it by the engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from escalation.sandbox.docker_filter import DockerFilter
from escalation.sandbox.proof.docker_engine import Container, DockerEngine, docker_engine
from tests.escalation.sandbox.test_docker_filter import raw, status_of

STATE = "/var/lib/claudeops"
WORKER = Container(
    "ops-worker-1",
    project="ops",
    mounts=(
        {"Type": "volume", "Name": "kept", "Source": "/docker/kept", "Destination": STATE},
        {"Type": "bind", "Source": "/srv/keys", "Destination": f"{STATE}/keys"},
        {"Type": "bind", "Source": "/srv/shop", "Destination": "/srv/shop"},
        {"Type": "volume", "Name": "shop", "Destination": "/srv/shop/data"},
    ),
)
DATABASE = Container("ops-database-1", project="ops")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[DockerEngine]:
    with docker_engine(tmp_path / "engine.sock") as engine:
        engine.containers |= {one.name: one for one in (WORKER, DATABASE)}
        yield engine


@pytest.fixture
def filtered(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    with ExitStack() as stack:

        def at(level: int, own: str = WORKER.id) -> Path:
            path = tmp_path / f"tier{level}.sock"
            engine = tmp_path / "engine.sock"
            made = DockerFilter(path, engine, level, hidden=(STATE,), own_container=own)
            return stack.enter_context(made.serving())

        yield at


def ask(path: Path, line: str, body: object = None) -> int:
    content = b"" if body is None else json.dumps(body).encode()
    head = f"{line} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n"
    return status_of(raw(path, head.encode() + content))


def asked_of(engine: DockerEngine) -> list[str]:
    """Without the filter's own questions, which are inspections."""
    own = ("/json", "/volumes/kept", "/volumes/shop")
    return [line for line in engine.requests if not line.endswith(own)]


@pytest.mark.parametrize("name", ["ops-worker-1", WORKER.id, WORKER.id[:12], "ops-database-1"])
@pytest.mark.parametrize("act", ["stop", "restart", "kill", "start", "pause", "unpause"])
def test_tier_2_stops_none_of_ours_under_any_name(engine, filtered, name, act):
    assert ask(filtered(2), f"POST /containers/{name}/{act}") == 403

    assert engine.changes == []


@pytest.mark.parametrize("own", [WORKER.id, WORKER.id[:12]])
def test_the_own_container_may_be_known_by_the_beginning_of_its_id(engine, filtered, own):
    assert ask(filtered(2, own), "POST /v1.47/containers/ops-worker-1/kill") == 403


@pytest.mark.parametrize(
    "request_line",
    [
        "DELETE /containers/ops-worker-1?force=1",
        "POST /containers/ops-worker-1/pause",
        "POST /containers/ops-worker-1/rename?name=x",
        "POST /containers/ops-worker-1/update",
        "POST /containers/ops-worker-1/exec",
        "POST /containers/ops-worker-1/attach?stream=1",
        "PUT /containers/ops-worker-1/archive?path=/",
        "POST /commit?container=ops-worker-1",
        f"POST /commit?container={WORKER.id[:12]}",
        "POST /build?networkmode=container:ops-worker-1",
    ],
)
def test_tier_3_neither_changes_nor_enters_ours(engine, filtered, request_line):
    assert ask(filtered(3), request_line, {}) == 403

    assert engine.changes == []


@pytest.mark.parametrize("tier", [1, 2, 3])
@pytest.mark.parametrize(
    "what", ["json", "logs?stdout=1", "archive?path=/var/lib", "export", "top?ps_args=e"]
)
def test_no_tier_reads_keys_state_or_logs_of_ours(engine, filtered, tier, what):
    assert ask(filtered(tier), f"GET /containers/ops-worker-1/{what}") == 403

    assert asked_of(engine) == []


@pytest.mark.parametrize(
    "given",
    [
        {"PidMode": "container:ops-worker-1"},
        {"IpcMode": f"container:{WORKER.id}"},
        {"NetworkMode": "Container:ops-database-1"},
        {"Binds": ["kept:/s"]},
        {"Binds": ["/srv/keys:/s"]},
        {"Binds": ["/srv/keys/deeper:/s"]},
        {"Mounts": [{"Type": "bind", "Source": "//srv/./keys", "Target": "/s"}]},
        {"Binds": ["ops_database:/s:ro"]},
        {"Mounts": [{"Type": "volume", "Source": "kept", "Target": "/s"}]},
    ],
)
def test_no_container_joins_ours_or_gets_its_volumes(engine, filtered, given):
    body = {"Image": "shop", "HostConfig": given}

    assert ask(filtered(3), "POST /containers/create", body) == 403
    assert engine.changes == []


def test_volumes_of_ours_are_known_where_the_state_directory_is_a_link(engine, tmp_path):
    state = tmp_path / "state"
    state.symlink_to(STATE)
    path = tmp_path / "linked.sock"
    made = DockerFilter(
        path, tmp_path / "engine.sock", 3, hidden=(str(state),), own_container=WORKER.id
    )
    body = {"Image": "shop", "HostConfig": {"Binds": ["kept:/s"]}}

    with made.serving():
        assert ask(path, "POST /containers/create", body) == 403


@pytest.mark.parametrize("bind", ["/srv/shop:/s", "shop:/s", "/srv/other:/s", "cache:/s"])
def test_what_is_looked_after_may_be_mounted(engine, filtered, bind):
    body = {"Image": "shop", "HostConfig": {"Binds": [bind]}}

    assert ask(filtered(3), "POST /containers/create", body) == 201


@pytest.mark.parametrize("act", ["connect", "disconnect"])
def test_ours_is_not_cut_off_from_its_network(engine, filtered, act):
    assert ask(filtered(3), f"POST /networks/b/{act}", {"container": "ops-worker-1"}) == 403

    assert engine.changes == []


@pytest.mark.parametrize(
    ("tier", "request_line"),
    [
        (1, "GET /containers/json?all=1"),
        (1, "GET /containers/web/json"),
        (1, "GET /containers/ops-worker-1/stats?stream=0"),
        (2, "POST /containers/web/restart"),
        (3, "DELETE /containers/web"),
    ],
)
def test_the_containers_of_others_are_judged_as_before(engine, filtered, tier, request_line):
    assert ask(filtered(tier), request_line) in (200, 204)


def test_an_engine_that_does_not_know_us_is_another_hosts(engine, filtered):
    assert ask(filtered(2, "f" * 64), "POST /containers/ops-worker-1/restart") == 204


def test_outside_a_container_a_read_asks_the_engine_nothing_more(engine, filtered):
    assert ask(filtered(2, ""), "GET /containers/web/logs") == 200

    assert engine.requests == ["GET /containers/web/logs"]


@pytest.mark.parametrize(
    "given",
    [
        {"HostConfig": {"Links": ["ops-database-1:db"]}},
        {"HostConfig": {"VolumesFrom": ["ops-worker-1:ro"]}},
        {"Labels": {"com.docker.compose.project": "ops", "com.docker.compose.service": "web"}},
    ],
    ids=str,
)
def test_no_container_gets_variables_volumes_or_the_project_of_ours(engine, filtered, given):
    assert ask(filtered(3), "POST /containers/create", {"Image": "shop", **given}) == 403
    assert engine.changes == []


@pytest.mark.parametrize("name", ["ops-worker-1", f"{WORKER.id[:12]}_ops-worker-1"])
def test_no_container_takes_the_place_of_ours_with_what_it_has(engine, filtered, name):
    host = {"Privileged": True}
    engine.containers["ops-worker-1"] = replace(WORKER, config={"HostConfig": host})
    body = {"Image": WORKER.image, "HostConfig": host}

    assert ask(filtered(3), f"POST /containers/create?name={name}", body) == 403
    assert engine.changes == []


@pytest.mark.parametrize("tier", [2, 3])
@pytest.mark.parametrize("name", ["ops-worker-1", WORKER.id[:12]])
def test_ours_is_not_stopped_by_the_interface_of_podman(engine, filtered, tier, name):
    assert ask(filtered(tier), f"POST /v5.0.0/libpod/containers/{name}/stop") == 403
    assert ask(filtered(tier), f"GET /libpod/containers/{name}/json") == 403
    assert engine.changes == []


def test_an_engine_that_does_not_say_is_not_asked_to_act(engine, filtered, monkeypatch):
    monkeypatch.setattr(Container, "details", lambda self: {"Id": ""})

    assert ask(filtered(2), "POST /containers/web/restart") == 400
    assert engine.changes == []
