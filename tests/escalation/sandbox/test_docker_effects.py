"""What happens to containers is counted by the engine's id before it happens."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from escalation.sandbox.docker_filter import takes_down
from escalation.sandbox.docker_rules import COMPOSE_FILES, DockerEffect, is_same_network
from escalation.sandbox.proof.docker_engine import Container, DockerEngine, docker_engine
from tests.escalation.sandbox.docker_cases import Judge, curl, docker, filters_before
from tests.escalation.sandbox.test_docker_filter import raw, status_of
from tests.tables import each_row

LABELS = {
    "com.docker.compose.project": "shop",
    "com.docker.compose.service": "api",
    "com.docker.compose.container-number": "1",
}
API: dict[str, Any] = {
    "Image": "shop/api",
    "Cmd": ["serve"],
    "Labels": LABELS,
    "HostConfig": {
        "NetworkMode": "host",
        "CapAdd": ["NET_ADMIN"],
        "Devices": [{"PathOnHost": "/dev/dri", "PathInContainer": "/dev/dri"}],
        "Binds": ["shop_data:/data", "/etc/api:/etc/api:ro"],
    },
}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[DockerEngine]:
    with docker_engine(tmp_path / "engine.sock") as engine:
        engine.containers["shop-api-1"] = Container("shop-api-1", config=API)
        yield engine


@pytest.fixture
def judge() -> Judge:
    return Judge()


@pytest.fixture
def filtered(tmp_path: Path, judge: Judge) -> Iterator[Callable[[int], Path]]:
    with filters_before(tmp_path / "engine.sock", judge_effect=judge) as at:
        yield at


def ask(path: Path, line: str, body: object = None) -> int:
    return status_of(answer_to(path, line, body))


def answer_to(path: Path, line: str, body: object = None) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    head = f"{line} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n"
    return raw(path, head.encode() + content)


# One restart in two hundred spellings.

NUMBER = Container("web").id
NAMES = ["web", NUMBER, NUMBER[:12], NUMBER[:6], NUMBER[:3]]
ADDRESSES = [
    "POST {version}/containers/{name}/restart",
    "POST {version}/containers/{name}/restart?t=0",
    "POST {version}/containers/{name}/restart?signal=KILL&t=1",
    "POST {version}//containers//{name}/restart/",
    "POST {version}/libpod/containers/{name}/restart",
    "POST {version}/containers/%{code:x}{rest}/restart",
]
CLIENT = [
    "restart {name}",
    "container restart {name}",
    "restart -t 0 {name}",
    "--log-level error restart {name}",
    "restart /{name}",
    "restart {name} {name}",
    "stop {name}; start {name}",
    "container stop -t 0 {name}; container start {name}",
    "kill {name}; start {name}",
    "kill -s TERM {name}; start {name}",
    "stop {name}; restart {name}",
    "pause {name}; unpause {name}",
]


def by_address() -> Iterator[str]:
    for version in ("", "/v1.24", "/v1.47", "/v5.0.0"):
        for name in NAMES:
            for form in ADDRESSES:
                code, rest = ord(name[0]), name[1:]
                yield form.format(version=version, name=name, code=code, rest=rest)


def by_pairs(names: list[str]) -> Iterator[str]:
    for ending, going_on in (("stop", "start"), ("kill", "start"), ("pause", "unpause")):
        for name in names:
            for other in NAMES[:2]:
                yield f"POST /containers/{name}/{ending}; POST /containers/{other}/{going_on}"


SPELLINGS = [
    *(("raw", line) for line in (*by_address(), *by_pairs(NAMES))),
    *(("docker", form.format(name=name)) for name in NAMES[:3] for form in CLIENT),
    *(("curl", f"POST /v1.47/containers/{name}/restart") for name in NAMES),
    *(("curl", line) for line in by_pairs(NAMES[:2])),
]


def say(path: Path, spelling: tuple[str, str]) -> None:
    client, text = spelling
    for line in text.split("; "):
        if client == "docker":
            docker(path, *line.split())
        elif client == "curl":
            curl(path, line)
        else:
            ask(path, line)


def test_of_two_hundred_spellings_of_a_restart_two_reach_the_engine(engine, filtered, judge):
    path = filtered(2)
    assert len(set(SPELLINGS)) >= 200

    for spelling in SPELLINGS:
        say(path, spelling)

    assert engine.containers["web"].restarts == 2
    assert [effect.container_id for effect in judge.asked] == [NUMBER] * 2


ONE_OF_EACH = [spelling for spelling in SPELLINGS if spelling[0] != "docker"][::3] + [
    ("docker", form.format(name=NUMBER[:12])) for form in CLIENT
]


def test_of_three_restarts_in_one_spelling_two_reach_the_engine(engine, filtered, judge):
    path, web = filtered(2), engine.containers["web"]
    counts = {}

    for spelling in ONE_OF_EACH:
        judge.forget()
        web.restarts = 0
        for _time in range(3):
            say(path, spelling)
        counts[spelling] = (web.restarts, len(judge.asked), web.running, web.paused)

    assert counts == dict.fromkeys(ONE_OF_EACH, (2, 2, True, False))


def test_of_many_restarts_at_once_two_reach_the_engine(engine, filtered, judge):
    path = filtered(2)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda line: ask(path, line), by_address()))

    assert engine.containers["web"].restarts == 2
    assert len(judge.asked) == 2


def test_of_many_stops_and_starts_at_once_no_more_than_two_reach_the_engine(
    engine, filtered, judge
):
    path = filtered(2)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda line: say(path, ("raw", line)), by_pairs(NAMES)))

    assert engine.containers["web"].restarts <= 2
    assert len(judge.asked) == 2


def test_a_restart_that_is_not_approved_does_not_reach_the_engine(engine, filtered, judge):
    judge.approves = False
    path = filtered(2)

    for spelling in SPELLINGS[::8]:
        say(path, spelling)

    assert engine.changes == []


# Pairs.


@pytest.mark.parametrize(
    ("lines", "kinds"),
    [
        (["restart"], ["restart restart web"]),
        (["stop", "start"], ["stop stop web", "other start web"]),
        (["kill", "start"], ["stop kill web", "other start web"]),
        (["pause", "unpause"], ["stop pause web", "other unpause web"]),
        (["stop", "restart"], ["stop stop web", "other restart web"]),
        (["stop", "stop", "kill", "start"], ["stop stop web", *["other"] * 3]),
        (["start"], ["restart start web"]),
        (["stop", "start", "start"], ["stop stop web", "other start web", "restart start web"]),
        (["kill", "start", "kill", "start"], ["stop", "other", "stop", "other"]),
    ],
)
def test_a_start_after_a_stop_of_this_run_is_no_further_restart(
    engine, filtered, judge, lines, kinds
):
    path = filtered(2)

    for act in lines:
        assert ask(path, f"POST /containers/web/{act}") == 204

    assert [told.startswith(kind) for told, kind in zip(judge.kinds, kinds, strict=True)] == (
        [True] * len(kinds)
    )


def test_a_container_that_starts_itself_again_is_counted_for_every_kill(engine, filtered, judge):
    path = filtered(2)

    for _time in range(3):
        engine.containers["web"].running = True
        ask(path, "POST /containers/web/kill?signal=INT")

    assert len(judge.asked) == 2
    assert engine.changes == ["POST /containers/web/kill"] * 2


def test_a_restart_after_a_container_started_itself_again_counts(engine, filtered, judge):
    path = filtered(2)

    ask(path, "POST /containers/web/kill?signal=INT")
    engine.containers["web"].running = True
    ask(path, "POST /containers/web/restart")

    assert [effect.counted for effect in judge.effects] == ["restart", "restart"]


def test_a_start_that_was_refused_is_free_later(engine, tmp_path):
    judge, refused = Judge(), []

    def refuse_first_start(effect: DockerEffect, client: socket.socket) -> str:
        if effect.verb == "start" and not refused:
            refused.append(effect)
            return "not yet"
        return judge(effect, client)

    with filters_before(tmp_path / "engine.sock", judge_effect=refuse_first_start) as at:
        path = at(2)
        statuses = [ask(path, f"POST /containers/web/{act}") for act in ("stop", "start", "start")]

    assert statuses == [204, 403, 204]
    assert judge.kinds == ["stop stop web", "other start web"]


def test_a_start_of_what_somebody_else_stopped_counts(engine, filtered, judge):
    engine.containers["web"].running = False

    assert ask(filtered(2), "POST /containers/web/start") == 204
    assert judge.kinds == ["restart start web"]


def test_a_stop_is_refused_when_no_restart_is_left(engine, filtered, judge):
    judge.restarts = 0

    result = docker(filtered(2), "stop", "web")

    assert "cooldown: web" in result.stderr
    assert engine.containers["web"].running


def test_another_name_for_a_container_is_no_other_service(engine, filtered, judge):
    path = filtered(3)

    for name in ("web", "other"):
        assert ask(path, f"POST /containers/{name}/restart") == 204
        assert ask(path, f"POST /containers/{NUMBER}/rename?name=other") == 204
    assert ask(path, "POST /containers/other/restart") == 403

    assert {effect.service for effect in judge.effects} == {"web"}


def test_the_engine_gets_the_id_whatever_the_name_means_by_then(engine, tmp_path):
    def rename(effect: DockerEffect, client: socket.socket) -> str:
        web, db = engine.containers["web"], engine.containers["db"]
        engine.containers = {"web": replace(db, name="web"), "db": replace(web, name="db")}
        return ""

    with filters_before(tmp_path / "engine.sock", judge_effect=rename) as at:
        assert ask(at(2), "POST /containers/web/restart") == 204

    assert engine.containers["db"].restarts == 1
    assert engine.containers["web"].restarts == 0


def test_what_does_not_exist_is_not_judged(engine, filtered, judge):
    path = filtered(3)

    result = docker(path, "restart", "nobody")

    assert "No such container: nobody" in result.stderr
    assert judge.effects == []
    assert engine.changes == []


def test_an_effect_is_told_with_container_service_and_command(engine, filtered, judge):
    docker(filtered(2), "kill", "-s", "HUP", engine.containers["shop-api-1"].id[:12])

    effect = judge.effects[0]
    assert (effect.kind, effect.verb, effect.service) == ("stop", "kill", "shop-api-1")
    assert effect.container_id == engine.containers["shop-api-1"].id
    assert effect.vector == ("docker", "kill", "shop-api-1")
    assert effect.options == ("--signal=HUP",)
    assert ("docker", "compose", "restart", "api") in effect.spellings


@pytest.mark.parametrize("command", ["ps -a", "logs web", "inspect web", "exec db pg_isready"])
def test_reads_and_probes_are_not_judged(engine, filtered, judge, command):
    assert docker(filtered(2), *command.split()).returncode == 0
    assert judge.effects == []


def test_a_program_is_judged_with_its_words_and_started_once(engine, filtered, judge):
    result = docker(filtered(3), "exec", "-u", "root", "web", "ls", "-l")

    assert (result.returncode, result.stdout) == (0, "inside\n")
    assert [effect.vector for effect in judge.effects] == [("docker", "exec", "web", "ls", "-l")]
    assert judge.effects[0].kind == "exec"
    assert judge.effects[0].options == ("--user=root",)


@pytest.mark.parametrize("level", [1, 2])
def test_a_probe_runs_by_the_real_client(engine, filtered, level):
    path = filtered(level)

    probe = docker(path, "exec", "db", "pg_isready", "-U", "shop")
    other = docker(path, "exec", "db", "psql")

    assert (probe.returncode, probe.stdout) == (0, "inside\n")
    assert f"not at Tier {level}" in other.stderr


def test_a_judge_that_fails_lets_nothing_happen(engine, tmp_path, caplog):
    def fail(effect: DockerEffect, client: socket.socket) -> str:
        raise ValueError("broken")

    with filters_before(tmp_path / "engine.sock", judge_effect=fail) as at:
        assert ask(at(2), "POST /containers/web/restart") == 403

    assert engine.changes == []
    assert "does not happen" in caplog.text


def test_nothing_happens_after_the_client_has_left(engine, tmp_path):
    asked, answered, done = threading.Event(), threading.Event(), threading.Event()

    def wait(effect: DockerEffect, client: socket.socket) -> str:
        if effect.service == "db":
            done.set()
            return ""
        asked.set()
        answered.wait(10)
        return ""

    with ExitStack() as stack:
        path = stack.enter_context(filters_before(tmp_path / "engine.sock", judge_effect=wait))(2)
        client = stack.enter_context(socket.socket(socket.AF_UNIX))
        client.connect(str(path))
        client.sendall(b"POST /containers/web/restart HTTP/1.1\r\nHost: x\r\n\r\n")
        assert asked.wait(10)
        client.close()
        answered.set()
        ask(path, "POST /containers/db/restart")
        assert done.is_set()

    assert engine.changes == ["POST /containers/db/restart"]


# Redeployments.


def recreate(path: Path, engine: DockerEngine, body: dict[str, Any] = API) -> list[int]:
    """Does what `docker compose up --force-recreate` does; returns the status of each step."""
    old = engine.containers["shop-api-1"].id
    temporary = f"{old[:12]}_shop-api-1"
    answer = answer_to(path, f"POST /v1.47/containers/create?name={temporary}", body)
    if status_of(answer) != 201:
        return [status_of(answer)]
    new = json.loads(answer.split(b"\r\n\r\n", 1)[1])["Id"]
    return [
        ask(path, f"POST /v1.47/containers/{old}/stop"),
        ask(path, f"DELETE /v1.47/containers/{old}"),
        ask(path, f"POST /v1.47/containers/{new}/rename?name=shop-api-1"),
        ask(path, f"POST /v1.47/containers/{new}/start"),
    ]


@pytest.mark.parametrize("level", [2, 3])
def test_compose_recreates_a_service_and_that_is_one_redeployment(engine, filtered, judge, level):
    old = engine.containers["shop-api-1"].id

    assert recreate(filtered(level), engine) == [204] * 4

    new = engine.containers["shop-api-1"]
    assert (new.id != old, new.running, set(engine.containers)) == (
        True,
        True,
        {"web", "db", "shop-api-1"},
    )
    assert judge.kinds == [
        "redeployment create shop-api-1",
        "other stop shop-api-1",
        "other rm shop-api-1",
        "other rename shop-api-1",
        "other start shop-api-1",
    ]


def test_a_second_redeployment_stops_before_anything_is_stopped(engine, filtered, judge):
    path = filtered(2)
    recreate(path, engine)
    changes = list(engine.changes)

    assert recreate(path, engine) == [403]

    assert engine.changes == changes
    assert engine.containers["shop-api-1"].running


def test_a_recreated_container_is_recreated_again(engine, filtered, judge):
    judge.redeployments = 2
    path = filtered(2)

    assert [recreate(path, engine), recreate(path, engine)] == [[204] * 4] * 2
    assert [effect.counted for effect in judge.asked] == ["redeploy"] * 2


@pytest.mark.parametrize(
    "change",
    [
        {"Image": "shop/other"},
        {"Cmd": ["sh", "-c", "evil"]},
        {"HostConfig": {**API["HostConfig"], "Privileged": True}},
        {"HostConfig": {**API["HostConfig"], "Binds": ["/:/host"]}},
    ],
    ids=str,
)
def test_tier_2_recreates_nothing_as_something_else(engine, filtered, change):
    assert recreate(filtered(2), engine, {**API, **change}) == [403]
    assert engine.changes == []


def test_tier_2_removes_nothing_that_has_no_replacement(engine, filtered):
    path = filtered(2)

    assert ask(path, f"DELETE /containers/{NUMBER}") == 403
    assert recreate(path, engine) == [204] * 4
    assert ask(path, "DELETE /containers/shop-api-1") == 403
    assert ask(path, "DELETE /containers/db") == 403


def test_the_removal_of_a_replaced_container_is_not_called_down(engine, filtered, judge):
    path = filtered(2)

    assert recreate(path, engine) == [204] * 4
    ask(path, "POST /containers/shop-api-1/stop")

    removals = [effect for effect in judge.effects if effect.verb == "rm"]
    assert [("docker", "compose", "down", "api") in one.spellings for one in removals] == [False]


STOPS = """
import http.client, socket
connection = http.client.HTTPConnection("docker")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect("tier2.sock")
connection.request("POST", "/containers/shop-api-1/stop")
print(connection.getresponse().status)
"""


@pytest.mark.parametrize(("verb", "status", "running"), [("down", 403, True), ("stop", 204, False)])
def test_a_down_that_is_denied_stops_nothing(engine, tmp_path, verb, status, running):
    def deny_down(effect: DockerEffect, client: socket.socket) -> str:
        return "denied" if ("docker", "compose", "down", "api") in effect.spellings else ""

    (tmp_path / verb).write_text(STOPS)
    with filters_before(tmp_path / "engine.sock", judge_effect=deny_down) as filtered:
        filtered(2)
        # Python under another name: it runs the file that its first word names.
        printed = subprocess.check_output(
            ["docker-compose", verb, "-t", "1"], executable=sys.executable, cwd=tmp_path, timeout=30
        )

    assert int(printed) == status
    assert engine.containers["shop-api-1"].running is running


@each_row(
    ("command", "expected"),
    [
        ("docker compose down", True),
        ("docker-compose -f compose.yaml down -t 1", True),
        ("/usr/libexec/docker/cli-plugins/docker-compose compose -p shop down", True),
        ("docker-compose -f down stop", False),
        ("docker compose up -d --remove-orphans", False),
        ("docker stop down", False),
        ("python3 compose down", False),
        ("", False),
    ],
)
def test_the_command_line_of_a_client_tells_whether_it_takes_down(command, expected):
    assert takes_down(tuple(command.split())) is expected


@pytest.fixture
def described(tmp_path: Path, engine: DockerEngine) -> Path:
    """The compose file of a service, older than its container."""
    file = tmp_path / "compose.yaml"
    file.write_text("services: {api: {image: shop/api}}\n")
    os.utime(file, (0, 0))
    labels = {**LABELS, COMPOSE_FILES: str(file)}
    config = {"Image": "shop/api", "Labels": labels, "HostConfig": {"NetworkMode": "host"}}
    engine.containers["shop-api-1"] = Container("shop-api-1", config=config)
    return file


def test_tier_2_takes_down_and_brings_up_what_a_compose_file_describes(
    engine, tmp_path, judge, described
):
    config = engine.containers["shop-api-1"].config
    with filters_before(
        tmp_path / "engine.sock", judge_effect=judge, paths=(str(tmp_path),)
    ) as filtered:
        path = filtered(2)
        statuses = [
            ask(path, "POST /containers/shop-api-1/stop"),
            ask(path, "DELETE /containers/shop-api-1"),
            ask(path, "POST /containers/create?name=shop-api-1", {**config, "Cmd": ["evil"]}),
            ask(path, "POST /containers/create?name=shop-api-1", config),
            ask(path, "POST /containers/shop-api-1/start"),
            ask(path, "DELETE /containers/db"),
        ]

    assert statuses == [204, 204, 403, 201, 204, 403]
    assert engine.containers["shop-api-1"].running


@pytest.mark.parametrize("case", ["changed", "elsewhere", "gone"])
def test_tier_2_removes_no_container_that_its_file_may_not_bring_back(
    engine, tmp_path, described, case
):
    match case:
        case "changed":
            os.utime(described)
        case "gone":
            described.unlink()
    watch = tmp_path / "other" if case == "elsewhere" else tmp_path
    with filters_before(tmp_path / "engine.sock", paths=(str(watch),)) as filtered:
        assert ask(filtered(2), "DELETE /containers/shop-api-1") == 403

    assert "shop-api-1" in engine.containers


NETWORK = {
    "Name": "shop_default",
    "Driver": "bridge",
    "Internal": False,
    "Attachable": False,
    "Options": {},
    "Labels": {"com.docker.compose.project": "shop"},
    "IPAM": {"Driver": "default", "Config": [{"Subnet": "172.18.0.0/16"}]},
}


@each_row(
    ("changes", "is_same"),
    [
        ({}, True),
        ({"CheckDuplicate": True, "Options": None, "IPAM": None}, True),
        ({"IPAM": NETWORK["IPAM"]}, True),
        ({"Driver": "macvlan"}, False),
        ({"Options": {"parent": "eth0"}}, False),
        ({"Internal": True}, False),
        ({"Labels": {}}, False),
        ({"IPAM": {"Config": [{"Subnet": "10.0.0.0/8"}]}}, False),
        ({"ConfigFrom": {"Network": "x"}}, False),
        ({"Name": "other"}, False),
    ],
)
def test_a_network_is_created_only_as_it_was(changes, is_same):
    body = {"Name": "shop_default", "Driver": "bridge", "Labels": NETWORK["Labels"], **changes}

    assert is_same_network(body, NETWORK) is is_same
    assert not is_same_network(body, None)


def test_the_answer_of_the_engine_is_reported_for_each_effect(engine, tmp_path):
    answers: list[tuple[str, int]] = []
    engine.refusals.append("POST /containers/db/restart")
    with filters_before(
        tmp_path / "engine.sock",
        on_answer=lambda effect, status: answers.append((" ".join(effect.vector), status)),
    ) as filtered:
        path = filtered(3)
        ask(path, "POST /containers/web/restart")
        ask(path, "POST /containers/db/restart")
        ask(path, "POST /containers/create?name=new", {"Image": "shop/web"})
        ask(path, "GET /containers/json")

    assert answers == [
        *(("docker restart web", 204), ("docker restart db", 409)),
        ("docker create --name new shop/web", 201),
    ]


def test_a_container_in_the_way_of_compose_is_stopped_freely_only_once(engine, filtered, judge):
    path = filtered(2)
    old = engine.containers["shop-api-1"]
    ask(path, f"POST /containers/create?name={old.id[:12]}_shop-api-1", API)

    for _time in range(5):
        old.running = True
        ask(path, f"POST /containers/{old.id}/kill?signal=INT")

    assert engine.changes.count("POST /containers/shop-api-1/kill") == 1 + judge.restarts


@pytest.mark.parametrize("options", ["", "?force=1"])
def test_what_compose_takes_down_it_brings_up_again(engine, filtered, judge, options):
    """`docker compose down` and `up` for a service with more than Tier 3 gives anew."""
    path = filtered(3)
    old = engine.containers["shop-api-1"].id

    assert ask(path, f"POST /containers/{old}/stop") == 204
    assert ask(path, f"DELETE /containers/{old}{options}") == 204
    assert ask(path, "POST /containers/create?name=shop-api-1", API) == 201
    assert ask(path, "POST /containers/shop-api-1/start") == 204

    assert [effect.counted for effect in judge.effects] == ["restart", "redeploy", "other", "other"]
    assert engine.containers["shop-api-1"].running


def test_a_creation_that_replaces_nothing_gets_nothing_of_others(engine, filtered):
    path = filtered(3)
    unlabelled = {name: value for name, value in API.items() if name != "Labels"}

    assert ask(path, "POST /containers/create?name=shop-api-2", unlabelled) == 403
    assert ask(path, "POST /containers/create?name=x_shop-api-1", unlabelled) == 403
    assert ask(path, "POST /containers/create", unlabelled) == 403
    assert engine.changes == []


def test_another_container_of_a_service_is_not_replaced_by_a_further_one(engine, filtered, judge):
    """`docker compose up --scale api=2` leaves the first container as it is."""
    path = filtered(3)

    assert ask(path, "POST /containers/create?name=shop-api-2", API) == 201
    assert ask(path, "POST /containers/shop-api-1/stop") == 204

    assert [effect.counted for effect in judge.effects] == ["redeploy", "restart"]


def test_a_removal_is_refused_when_no_redeployment_is_left(engine, filtered, judge):
    judge.redeployments = 0

    result = docker(filtered(3), "rm", "-f", "web")

    assert "cooldown: web" in result.stderr
    assert "web" in engine.containers


def test_a_pull_and_a_new_container_are_one_redeployment(engine, filtered, judge):
    path = filtered(3)

    assert docker(path, "pull", "-q", "shop/web").returncode == 0
    assert docker(path, "rm", "-f", "web").returncode == 0
    assert docker(path, "run", "-d", "--name", "web", "shop/web").returncode == 0

    assert [effect.counted for effect in judge.effects] == ["other", "redeploy", "other", "other"]
    assert docker(path, "rm", "-f", "web").returncode == 1


def test_a_removal_that_the_engine_refused_counts_once(engine, filtered, judge):
    """`docker rm` of a container that runs fails, and `docker rm -f` follows."""
    path = filtered(3)
    engine.refusals.append("DELETE /containers/web")

    assert ask(path, "DELETE /containers/web") == 409
    assert ask(path, "DELETE /containers/web?force=1") == 204
    assert ask(path, "POST /containers/create?name=web", {"Image": "shop/web"}) == 201

    assert [effect.counted for effect in judge.effects] == ["redeploy", "other", "other"]
    assert ask(path, "DELETE /containers/web") == 403


@pytest.mark.parametrize("name", ["new", "web"])
def test_a_creation_that_the_engine_refused_counts_once(engine, filtered, judge, name):
    """Without its image a container is created a second time, after the pull."""
    path = filtered(3)
    engine.containers.pop(name, None)
    engine.refusals.append("POST /containers/create")

    statuses = [
        ask(path, f"POST /containers/create?name={name}", {"Image": "shop/web"})
        for _time in range(3)
    ]

    assert statuses == [409, 201, 403]
    assert [effect.counted for effect in judge.effects] == ["redeploy", "other", "redeploy"]


def test_new_names_count_as_redeployments_of_their_own(engine, filtered, judge):
    path = filtered(3)

    for name in ("one", "two"):
        assert docker(path, "run", "-d", "--name", name, "shop/web").returncode == 0
    assert docker(path, "run", "-d", "shop/web").returncode == 0

    assert [effect.service for effect in judge.asked] == ["one", "two"]


# Links in the place of directories.


@pytest.fixture
def linked(engine: DockerEngine, tmp_path: Path) -> Path:
    """A directory of the working directory that `web` mounts, and that became a link."""
    place = tmp_path / "work" / "conf"
    place.mkdir(parents=True)
    bind = {"Type": "bind", "Source": str(place), "Destination": "/conf", "RW": True}
    config = {"HostConfig": {"Binds": [f"{place}:/conf"]}}
    engine.containers["web"] = Container("web", mounts=(bind,), config=config)
    return place


def to_state(place: Path) -> None:
    place.rmdir()
    place.symlink_to("/srv/ops")


@pytest.mark.parametrize("act", ["start", "restart", "unpause", "stop", "kill"])
def test_a_mount_that_became_a_link_is_found_before_each_act(engine, filtered, linked, act):
    path = filtered(2)
    assert ask(path, f"POST /containers/web/{act}") == 204

    to_state(linked)

    assert ask(path, f"POST /containers/web/{act}") == 403
    assert ask(path, f"POST /libpod/containers/web/{act}") == 403
    assert engine.changes == [f"POST /containers/web/{act}"]


def test_a_link_that_is_made_during_an_approval_is_found(engine, linked, tmp_path):
    def approve_late(effect: DockerEffect, client: socket.socket) -> str:
        to_state(linked)
        return ""

    with filters_before(tmp_path / "engine.sock", judge_effect=approve_late) as at:
        assert ask(at(2), "POST /containers/web/restart") == 403

    assert engine.changes == []


def test_a_link_is_found_after_the_creation(engine, filtered, linked):
    path = filtered(3)
    body = {"Image": "shop/web", "HostConfig": {"Binds": [f"{linked}:/x"]}}
    assert ask(path, "POST /containers/create?name=new", body) == 201

    to_state(linked)

    assert ask(path, "POST /containers/new/start") == 403
    assert not engine.containers["new"].running


def test_a_volume_that_is_a_directory_of_the_host_is_followed(engine, filtered, linked):
    engine.volumes["conf"] = {"Name": "conf", "Options": {"o": "bind", "device": str(linked)}}
    engine.containers["db"].mounts = (
        {"Type": "volume", "Name": "conf", "Source": "/v", "Destination": "/conf"},
    )
    path = filtered(2)
    assert ask(path, "POST /containers/db/restart") == 204

    to_state(linked)

    assert ask(path, "POST /containers/db/restart") == 403


def test_a_container_that_cannot_be_created_again_is_not_removed(engine, filtered, linked):
    to_state(linked)

    result = docker(filtered(3), "rm", "-f", "web")

    assert "could not be created again" in result.stderr
    assert engine.containers["web"].running


# Files of the installation.


def test_files_of_the_installation_are_not_copied_out_of_a_container(engine, filtered):
    path = filtered(1)
    assert docker(path, "cp", "web:/hello", "-").returncode == 0

    bind = {"Type": "bind", "Source": "/srv", "Destination": "/host", "RW": False}
    engine.containers["web"].mounts = (bind,)

    result = docker(path, "cp", "web:/host/ops/encryption_key", "-")
    assert "belongs to Claude Ops itself" in result.stderr


def test_a_volume_of_the_installation_is_not_mounted(engine, filtered):
    engine.volumes["state"] = {"Name": "state", "Options": {"o": "bind", "device": "/srv/ops"}}
    path = filtered(3)

    assert docker(path, "create", "-v", "state:/x", "shop/web").returncode == 1
    assert docker(path, "create", "-v", "shop_data:/x", "shop/web").returncode == 0
    assert engine.changes == ["POST /containers/create"]
