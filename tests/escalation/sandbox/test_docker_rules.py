from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from escalation.sandbox.docker_rules import (
    AmbiguousRequest,
    DockerRequest,
    Rules,
    is_hijacked,
    parse_request,
    read_json,
)
from tests.tables import each_row


def objection(level: int, request: str, body: object = None, **rules) -> str:
    method, target = request.split(" ", 1)
    asked = replace(parse_request(method, target), body=body)
    return Rules(level=level, real_path=lambda path: path, **rules).objection(asked)


def lowest_level(request: str) -> int | None:
    return next((level for level in (1, 2, 3) if not objection(level, request)), None)


@each_row(
    "request_line",
    [
        "HEAD /_ping",
        "GET /version",
        "GET /v1.47/containers/json?all=1",
        "GET /v1.47/containers/web/json",
        "GET /containers/web/logs?follow=1",
        "GET /containers/web/archive?path=/etc/hosts",
        "GET /containers/web/stats",
        "GET /images/registry.lan:5000/team/web:latest/json",
        "GET /events",
        "GET /system/df",
        "GET /volumes",
        "GET /exec/abc/json",
        "GET /v1.47//containers//json/",
    ],
)
def test_every_tier_may_read(request_line):
    assert lowest_level(request_line) == 1


@each_row("act", ["start", "stop", "restart", "kill"])
@each_row("version", ["", "/v1.47"])
def test_tier_2_may_start_and_stop_containers(act, version):
    assert lowest_level(f"POST {version}/containers/web/{act}?t=5&signal=KILL") == 2


@each_row(
    "request_line",
    [
        "POST /containers/create?name=x",
        "POST /containers/web/exec",
        "POST /containers/web/attach?stdin=1",
        "POST /containers/web/pause",
        "POST /containers/web/rename?name=y",
        "POST /exec/abc/start",
        "DELETE /containers/web?force=1",
        "DELETE /containers/web?v=0",
        "DELETE /images/shop",
        "POST /images/create?fromImage=shop",
        "POST /build?t=shop",
        "POST /networks/create",
        "PUT /containers/web/archive?path=/",
        "POST /containers/start",
        "POST /containers/web/web/start",
    ],
)
def test_tier_3_may_do_the_rest(request_line):
    assert lowest_level(request_line) == 3


@each_row(
    "request_line",
    [
        *(
            f"POST /{kind}/prune"
            for kind in ("containers", "images", "networks", "volumes", "build")
        ),
        "POST /v1.47/containers/prune/",
        "POST /containers//prune",
        "POST /containers/%70rune",
        "POST /volumes/create",
        "DELETE /volumes/shop_data",
        "DELETE /volumes/shop_data?force=1",
        "PUT /volumes/shop_data",
        "DELETE /containers/web?v=1",
        "DELETE /containers/web?force=1&%76=true",
        "DELETE /containers/web?v=0&v=yes",
        "POST /swarm/init",
        "POST /swarm/leave?force=1",
        "GET /swarm",
        "GET /swarm/unlockkey",
        "POST /secrets/create",
        "DELETE /secrets/x",
        "POST /configs/create",
        "POST /plugins/pull",
        "DELETE /plugins/x",
        "POST /nodes/x/update",
        "POST /session",
        "POST /grpc",
        "GET /containers/web/attach/ws?stdin=1",
        "POST /build?networkmode=host",
        "GET /debug/pprof/",
        "GET /libpod/containers/json",
        "GET /",
        "POST /",
        "BREW /coffee",
    ],
)
def test_no_tier_may_do_these(request_line):
    assert lowest_level(request_line) is None


@pytest.mark.parametrize("path", ["/secrets", "/secrets/x", "/configs", "/configs/x"])
def test_secrets_are_not_listed_below_tier_3(path):
    assert lowest_level(f"GET {path}") == 3


@pytest.mark.parametrize(
    "path",
    [
        "/images/search?term=x",
        "/distribution/evil.example/words/json",
        "/plugins/privileges?remote=x",
    ],
)
def test_the_engine_is_not_sent_to_other_hosts_below_tier_3(path):
    assert lowest_level(f"GET {path}") == 3


@each_row(
    "target",
    [
        "/containers/../volumes/x",
        "/containers/%2e%2e/volumes",
        "/containers/%2E./x",
        "/containers/./json",
        "/containers/%2570rune",
        "/containers/web%00/json",
        "/containers/web%0d%0aX:y/json",
        "/containers\\web/json",
        "/containers/w\xe9b/json",
        "/containers/%ff/json",
        "/containers/%c3%a9/json",
        "http://other/containers/json",
        "containers/json",
        "*",
        "/containers/json#x",
        "/containers/json?a b",
    ],
)
def test_an_ambiguous_address_is_refused(target):
    with pytest.raises(AmbiguousRequest, match="address"):
        parse_request("GET", target)


def read_or_refused(target: str) -> DockerRequest | None:
    try:
        return parse_request("GET", target)
    except AmbiguousRequest:
        return None


@given(some.text(alphabet="/.%2ef0d5c?a#v1\\", max_size=30))
def test_the_parsed_target_is_sent_on(path):
    asked = read_or_refused(f"/{path}")

    assert asked is None or parse_request("GET", asked.target) == asked
    assert asked is None or ".." not in asked.parts


@pytest.mark.parametrize("slashes", ["//", "///", "/%2F"])
def test_slashes_before_a_version_hide_nothing(slashes):
    asked = parse_request("POST", f"{slashes}v1.47/volumes/create")

    assert (asked.version, asked.parts) == ("/v1.47", ("volumes", "create"))


def test_two_versions_are_refused():
    with pytest.raises(AmbiguousRequest, match="two versions"):
        parse_request("POST", "/v1.47/v1.40/volumes/create")


def test_a_path_keeps_its_version_and_its_query():
    asked = parse_request("GET", "/v1.47//images/a%2Fb:1/json?filters=%7B%7D")

    assert asked == DockerRequest(
        method="GET",
        version="/v1.47",
        parts=("images", "a", "b:1", "json"),
        query="filters=%7B%7D",
    )
    assert asked.target == "/v1.47/images/a/b:1/json?filters=%7B%7D"


CREATE = "POST /containers/create"
REFUSED_SETTINGS = [
    {"Privileged": True},
    {"privileged": True},
    {"PRIVILEGED": 1},
    {"PidMode": "host"},
    {"NetworkMode": "host"},
    {"networkmode": "HOST"},
    {"IpcMode": "host"},
    {"UsernsMode": "host"},
    {"UTSMode": "host"},
    {"CapAdd": ["SYS_ADMIN"]},
    {"CapAdd": "ALL"},
    {"Devices": [{"PathOnHost": "/dev/sda"}]},
    {"DeviceCgroupRules": ["a *:* rwm"]},
    {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["vendor.com/disk=all"]}]},
    {"Annotations": {"run.oci.hooks.stdout": "/etc/cron.d/x"}},
    {"SecurityOpt": ["seccomp=unconfined"]},
    {"SecurityOpt": ["label=disable"]},
    {"SecurityOpt": ['seccomp={"defaultAction":"SCMP_ACT_ALLOW"}']},
    {"SecurityOpt": ["apparmor=mine"]},
    {"LogConfig": {"Type": "fluentd", "Config": {"fluentd-address": "unix:///run/x.sock"}}},
    {"LogConfig": {"Type": "syslog", "Config": {"syslog-address": "unixgram:///dev/log"}}},
    {"MaskedPaths": []},
    {"Runtime": "other"},
    {"CgroupParent": "/"},
    {"VolumesFrom": ["portainer"]},
    {"Binds": ["/:/host"]},
    {"Binds": ["//:/host:ro"]},
    {"Binds": ["/srv/..:/host"]},
    {"Binds": ["/etc:/x"]},
    {"Binds": ["/etc/shadow:/x"]},
    {"Binds": ["/root/.ssh:/x"]},
    {"Binds": ["/home/me:/x"]},
    {"Binds": ["/home/me/.ssh:/x"]},
    {"Binds": ["/var/run/docker.sock:/x"]},
    {"Binds": ["/run/docker.sock:/x"]},
    {"Binds": ["/srv/fine:/y", "/var/lib/docker:/x"]},
    {"Mounts": [{"Type": "bind", "Source": "/"}]},
    {"mounts": [{"type": "bind", "source": "/proc"}]},
    {"Mounts": [{"Type": "volume", "VolumeOptions": {"DriverConfig": {"Name": "local"}}}]},
]


@each_row("asked_for", REFUSED_SETTINGS, ids=str)
@each_row("holder", ["HostConfig", "hostconfig", "Ho\u017ftConfig"])
def test_no_container_reaches_the_host(asked_for, holder):
    assert objection(3, CREATE, {"Image": "shop", holder: asked_for})


@each_row(
    "asked_for",
    [
        {},
        {"Privileged": False, "NetworkMode": "default", "CapAdd": None, "Devices": []},
        {"Binds": ["shop_data:/data", "/srv/shop:/app:ro", "/home/me/shop:/x"]},
        {"Binds": ["/etc/localtime:/etc/localtime:ro", "/opt/shop/config:/c"]},
        {"Mounts": [{"Type": "volume", "Source": "shop_data"}, {"Type": "tmpfs"}]},
        {"NetworkMode": "shop_default", "RestartPolicy": {"Name": "always"}, "MaskedPaths": None},
        {"SecurityOpt": ["no-new-privileges"], "CapDrop": ["ALL"]},
    ],
    ids=str,
)
def test_an_ordinary_container_is_made_at_tier_3(asked_for):
    assert objection(3, CREATE, {"Image": "shop", "HostConfig": asked_for}) == ""


def test_a_link_to_a_place_is_that_place():
    asked = replace(
        parse_request("POST", "/containers/create"),
        body={"HostConfig": {"Binds": ["/srv/shop/link:/x"]}},
    )

    assert Rules(level=3, real_path=lambda _path: "/").objection(asked)


@pytest.mark.parametrize("source", ["/opt/ops/state", "/opt/ops/state/db", "/opt/ops"])
def test_directories_of_the_installation_are_not_mounted(source):
    body = {"HostConfig": {"Binds": [f"{source}:/x"]}}

    assert objection(3, CREATE, body, hidden=("/opt/ops/state",))
    assert objection(3, CREATE, body) == ""


def test_the_hosts_network_is_not_joined_by_another_name():
    body = {"NetworkingConfig": {"EndpointsConfig": {"host": {}}}}

    assert objection(3, CREATE, body)


def test_limits_are_changed_without_giving_devices():
    assert objection(3, "POST /containers/web/update", {"Memory": 1}) == ""
    assert objection(3, "POST /containers/web/update", {"Devices": [{}]})


def test_nothing_runs_privileged_in_a_container():
    assert objection(3, "POST /containers/web/exec", {"Cmd": ["ls"], "Privileged": False}) == ""
    assert objection(3, "POST /containers/web/exec", {"Cmd": ["ls"], "privileged": True})


@pytest.mark.parametrize("level", [2, 3])
@pytest.mark.parametrize("query", ["checkpoint=c&checkpoint-dir=/srv/shop/c", "Checkpoint=c"])
def test_a_container_starts_from_no_checkpoint(level, query):
    asked = parse_request("POST", f"/containers/web/start?{query}")

    assert "checkpoint" in Rules(level=level).objection(asked).lower()


def test_a_start_brings_no_settings_of_its_own():
    assert objection(2, "POST /containers/web/start", {}) == ""
    assert objection(2, "POST /containers/web/start", {"Privileged": True})
    assert objection(3, "POST /containers/web/start", {"Binds": ["/:/x"]})


@pytest.mark.parametrize(
    "template",
    [
        {"ContainerSpec": {"Mounts": [{"Type": "bind", "Source": "/"}]}},
        {"ContainerSpec": {"CapabilityAdd": ["CAP_SYS_ADMIN"]}},
        {"PluginSpec": {"Name": "x"}},
        {"Networks": [{"Target": "host"}]},
    ],
    ids=str,
)
def test_a_service_gets_no_more_than_a_container(template):
    assert objection(3, "POST /services/create", {"TaskTemplate": template})
    assert objection(3, "POST /services/web/update?version=1", {"TaskTemplate": template})
    assert objection(3, "POST /services/create", {"TaskTemplate": {"ForceUpdate": 1}}) == ""


@each_row("content", [b'{"a": 1, "a": 2}', b"{", b"\xff", b"[" * 100_000, b"{} {}"])
def test_an_ambiguous_body_is_refused(content):
    with pytest.raises(AmbiguousRequest):
        read_json(content)


@pytest.mark.parametrize("source", ["/srv/\x00", "/srv/\ud800", "/srv/a\nb"])
def test_an_invalid_path_is_refused(source):
    with pytest.raises(AmbiguousRequest):
        objection(3, CREATE, {"HostConfig": {"Binds": [source]}})


def test_two_spellings_of_one_name_are_refused():
    body = {"HostConfig": {"Privileged": False, "privileged": True}}

    with pytest.raises(AmbiguousRequest):
        objection(3, CREATE, body)


def test_an_objection_tells_the_tier_and_what_it_may():
    assert objection(1, "POST /containers/web/restart") == (
        "not at Tier 1: POST /containers/web/restart is a change, and this tier only reads"
    )


def test_only_terminals_hijack_a_connection():
    assert is_hijacked(parse_request("POST", "/v1.47/exec/abc/start"))
    assert is_hijacked(parse_request("POST", "/containers/web/attach"))
    assert not is_hijacked(parse_request("GET", "/containers/web/attach"))
    assert not is_hijacked(parse_request("POST", "/containers/web/start"))
