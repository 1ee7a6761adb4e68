from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from escalation.sandbox.docker_rules import (
    AmbiguousRequest,
    Before,
    DockerEffect,
    DockerRequest,
    EffectKind,
    Facts,
    Rules,
    command_for,
    has_effect,
    is_hijacked,
    options_in,
    parse_request,
    read_json,
)
from sessions_app.models import Change
from tests.tables import each_row


def asked_for(request: str, body: object = None) -> DockerRequest:
    method, target = request.split(" ", 1)
    return replace(parse_request(method, target), body=body)


def objection(
    level: int, request: str, body: object = None, facts: Facts | None = None, **rules
) -> str:
    settings = {"real_path": lambda path: path, **rules}
    return Rules(level=level, **settings).objection(asked_for(request, body), facts)


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
        *(f"GET /v5.0.0/libpod/{word}" for word in ("_ping", "info", "version", "events")),
        "GET /v4.0.0/libpod/containers/json?all=true",
        "GET /libpod/containers/stats?stream=false",
        *(f"GET /libpod/containers/web/{word}" for word in ("json", "logs", "top", "exists")),
        "GET /libpod/images/registry.lan/team/web:1/json",
    ],
)
def test_every_tier_may_read(request_line):
    assert lowest_level(request_line) == 1


@each_row("act", ["start", "stop", "restart", "kill", "pause", "unpause"])
@each_row("version", ["", "/v1.47"])
@each_row("interface", ["", "/libpod"])
def test_tier_2_may_start_and_stop_containers(act, version, interface):
    assert lowest_level(f"POST {version}{interface}/containers/web/{act}?t=5&signal=KILL") == 2


@each_row(
    "request_line",
    [
        "POST /containers/create?name=x",
        "POST /containers/web/exec",
        "POST /containers/web/attach?stdin=1",
        "POST /containers/web/rename?name=y",
        "POST /volumes/create",
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
        "DELETE /volumes/shop_data",
        "DELETE /volumes/shop_data?force=1",
        "PUT /volumes/shop_data",
        "DELETE /containers/web?v=1",
        "DELETE /containers/web?force=1&%76=true",
        "DELETE /containers/web?V=1",
        "DELETE /containers/web?depend=1",
        "POST /build?networkmode=none&networkmode=host",
        "PATCH /containers/web/restart",
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
        "POST /exec/abc/start",
        "GET /libpod/secrets/json",
        "GET /libpod/containers/web/healthcheck",
        "GET /libpod/containers/web/archive?path=/",
        "GET /libpod/generate/kube?names=web",
        "POST /libpod/containers/create",
        "POST /libpod/containers/web/exec",
        "POST /libpod/containers/web/checkpoint",
        "POST /libpod/pods/shop/stop",
        "POST /libpod/play/kube",
        "DELETE /libpod/containers/web",
        "POST /libpod/system/prune",
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


@each_row("settings", REFUSED_SETTINGS, ids=str)
@each_row("holder", ["HostConfig", "hostconfig", "Ho\u017ftConfig"])
def test_no_container_reaches_the_host(settings, holder):
    assert objection(3, CREATE, {"Image": "shop", holder: settings})


@each_row(
    "settings",
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
def test_an_ordinary_container_is_made_at_tier_3(settings):
    assert objection(3, CREATE, {"Image": "shop", "HostConfig": settings}) == ""


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
@pytest.mark.parametrize(
    "query", ["checkpoint=c&checkpoint-dir=/srv/shop/c", "Checkpoint=c", "t=1&all=true"]
)
def test_a_container_starts_without_unknown_options(level, query):
    assert objection(level, f"POST /containers/web/start?{query}")


@each_row(
    "target",
    [
        "/containers/create?name=web&name=db",
        "/containers/create?name=web&Name=db",
        "/containers/create?name=web;x",
        "/libpod/containers/web/stop?t=1&t=2",
        "/containers/web?v=0&v=yes",
    ],
)
def test_a_value_that_is_given_twice_is_refused(target):
    with pytest.raises(AmbiguousRequest, match="twice"):
        parse_request("POST", target)


def test_a_build_may_have_two_tags():
    assert objection(3, "POST /build?t=shop:1&t=shop:2") == ""


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


# Programs in containers.

EXEC = "POST /containers/web/exec"
WEB = Facts(target={"Id": "a" * 64, "Name": "/web"})


@each_row(
    "command",
    [
        ["pg_isready"],
        ["pg_isready", "-U", "shop", "-d", "shop"],
        ["redis-cli", "ping"],
        ["mysqladmin", "ping"],
        ["nginx", "-t"],
        ["rabbitmq-diagnostics", "-q", "ping"],
    ],
)
@each_row("level", [1, 2, 3])
def test_a_declared_probe_runs_at_every_tier(command, level):
    body = {"Cmd": command, "AttachStdout": True, "Tty": False, "Env": None, "User": ""}

    assert objection(level, EXEC, body, WEB) == ""


@each_row(
    "body",
    [
        {"Cmd": ["ls"]},
        {"Cmd": []},
        {},
        {"Cmd": "pg_isready"},
        {"Cmd": ["pg_isready; ls"]},
        {"Cmd": ["sh", "-c", "pg_isready"]},
        {"Cmd": ["/bin/pg_isready"]},
        {"Cmd": ["redis-cli", "flushall"]},
        {"Cmd": ["redis-cli", "-h", "other", "ping"]},
        {"Cmd": ["mysqladmin", "ping", "shutdown"]},
        {"Cmd": ["nginx", "-t", "-g", "load_module /tmp/x.so;"]},
        {"Cmd": ["nginx"]},
        {"Cmd": ["pg_isready"], "Env": ["LD_PRELOAD=/tmp/x.so"]},
        {"Cmd": ["pg_isready"], "User": "root"},
        {"Cmd": ["pg_isready"], "WorkingDir": "/tmp"},
        {"Cmd": ["pg_isready"], "privileged": True},
        {"Cmd": ["pg_isready"], "Unknown": 1},
    ],
    ids=str,
)
@each_row("level", [1, 2])
def test_no_other_program_runs_below_tier_3(body, level):
    assert objection(level, EXEC, body, WEB)


def test_a_probe_is_declared_for_one_container():
    probes = {"web": (("curl", "-f", "http://localhost/health"),)}
    body = {"Cmd": ["curl", "-f", "http://localhost/health"]}
    other = Facts(target={"Id": "b" * 64, "Name": "/db"})

    assert objection(1, EXEC, body, WEB, probes=probes) == ""
    assert objection(1, EXEC, body, other, probes=probes)
    assert objection(1, EXEC, {"Cmd": ["pg_isready"]}, WEB, probes=probes)


@each_row("level", [1, 2, 3])
def test_a_program_starts_only_if_this_run_created_it(level):
    assert objection(level, "POST /exec/abc/start", facts=Facts(is_known_exec=True)) == ""
    assert objection(level, "POST /exec/abc/start")


# A container that is created again.

SETTINGS: dict[str, Any] = {
    "NetworkMode": "host",
    "Privileged": True,
    "PidMode": "host",
    "CapAdd": ["NET_ADMIN"],
    "CapDrop": ["MKNOD"],
    "Devices": [{"PathOnHost": "/dev/dri", "PathInContainer": "/dev/dri"}],
    "Binds": ["/etc/web:/etc/web:ro", "/var/run/docker.sock:/s", "shop_data:/data"],
    "SecurityOpt": ["apparmor=web", "no-new-privileges"],
    "PortBindings": {"80/tcp": [{"HostIp": "", "HostPort": "8080"}]},
    "RestartPolicy": {"Name": "always"},
}
LABELS = {"com.docker.compose.project": "shop", "com.docker.compose.service": "web"}
BODY = {
    "Image": "shop/web",
    "Cmd": ["serve"],
    "User": "web",
    "Env": ["MODE=live"],
    "Labels": {**LABELS, "com.docker.compose.config-hash": "1", "team": "shop"},
    "HostConfig": SETTINGS,
    "NetworkingConfig": {"EndpointsConfig": {"host": None}},
}
MASKED = ["/proc/kcore", "/proc/keys"]
DETAILS = {
    "Id": "a" * 64,
    "Name": "/web",
    "Image": "sha256:1",
    "Config": {**BODY, "Env": ["MODE=live", "PATH=/bin"], "Hostname": "web"},
    "HostConfig": {**SETTINGS, "CapAdd": ["CAP_NET_ADMIN"], "ShmSize": 64, "MaskedPaths": MASKED},
    "NetworkSettings": {"Networks": {"host": {"NetworkID": "n1"}}},
    "Mounts": [
        {"Type": "volume", "Name": "shop_data", "Source": "/v", "Destination": "/data", "RW": True}
    ],
}
IMAGE = {"Id": "sha256:1", "Config": {"Env": ["PATH=/bin"], "User": "root", "Cmd": ["sh"]}}
SEEN = Facts(before=(Before(details=DETAILS, image=IMAGE),), image_id="sha256:1")


def changed(**changes) -> dict[str, object]:
    """The same container with other settings."""
    host = {name: value for name, value in changes.items() if name in SETTINGS or name in HOST}
    rest = {name: value for name, value in changes.items() if name not in host}
    return {**BODY, **rest, "HostConfig": {**SETTINGS, **host}}


HOST = ("IpcMode", "Mounts", "MaskedPaths", "LogConfig", "ReadonlyRootfs", "GroupAdd", "Memory")


@each_row(
    "body",
    [
        BODY,
        changed(Labels={**LABELS, "com.docker.compose.config-hash": "2", "team": "shop"}),
        changed(CapAdd=["CAP_NET_ADMIN"], AttachStdout=True, Tty=False, Domainname=""),
        changed(LogConfig={"Type": "", "Config": {}}, MaskedPaths=None, Mounts=None, Memory=0),
        changed(
            Binds=SETTINGS["Binds"][:2],
            Mounts=[{"Type": "volume", "Source": "shop_data", "Target": "/data"}],
        ),
    ],
    ids=str,
)
@each_row("level", [2, 3])
def test_a_container_is_created_again_as_it_was(body, level):
    assert objection(level, CREATE, body, SEEN) == ""


MORE_THAN_BEFORE = [
    changed(CapAdd=["NET_ADMIN", "SYS_ADMIN"]),
    changed(CapAdd="ALL"),
    changed(Devices=[{"PathOnHost": "/dev/sda"}]),
    changed(Binds=[*SETTINGS["Binds"], "/etc:/host"]),
    changed(Binds=["/etc/web:/etc/web", *SETTINGS["Binds"][1:]]),
    changed(Binds=["/etc/web:/bin:ro", *SETTINGS["Binds"][1:]]),
    changed(Mounts=[{"Type": "bind", "Source": "/", "Target": "/data"}]),
    changed(
        Mounts=[
            {
                "Type": "volume",
                "Source": "shop_data",
                "Target": "/data",
                "VolumeOptions": {"DriverConfig": {"Options": {"device": "/"}}},
            }
        ]
    ),
    changed(IpcMode="host"),
    changed(MaskedPaths=[]),
    changed(MaskedPaths=["/proc/kcore"]),
    changed(SecurityOpt=["apparmor=web", "no-new-privileges", "seccomp=unconfined"]),
    changed(SecurityOpt=["no-new-privileges"]),
    changed(CapDrop=[]),
    changed(User=""),
    changed(User="root"),
]


@each_row("body", MORE_THAN_BEFORE, ids=str)
@each_row("level", [2, 3])
def test_a_replacement_gets_nothing_that_the_container_did_not_have(body, level):
    assert objection(level, CREATE, body, SEEN)


@each_row(
    "body",
    [
        changed(Image="shop/web:2"),
        changed(Cmd=["sh", "-c", "evil"]),
        changed(Cmd=None),
        changed(Entrypoint=["sh"]),
        changed(Env=["MODE=live", "LD_PRELOAD=/x"]),
        changed(Env=[]),
        changed(Healthcheck={"Test": ["CMD", "evil"]}),
        changed(Labels={**LABELS, "team": "shop", "traefik.http.routers.x.rule": "Host(`x`)"}),
        changed(Labels=LABELS),
        changed(PortBindings={"22/tcp": [{"HostPort": "22"}]}),
        changed(PortBindings={}),
        changed(RestartPolicy={"Name": "no"}),
        changed(Binds=SETTINGS["Binds"][:2]),
        changed(Volumes={"/other": {}}),
        changed(NetworkMode="none"),
        changed(NetworkingConfig={"EndpointsConfig": {"other": {}}}),
        changed(NetworkingConfig={"EndpointsConfig": {"host": {"Aliases": ["db"]}}}),
        changed(GroupAdd=["docker"]),
        changed(Memory=1),
    ],
    ids=str,
)
def test_only_tier_3_changes_what_a_replacement_is(body):
    assert objection(2, CREATE, body, SEEN)
    assert objection(3, CREATE, body, SEEN) == ""


def test_tier_2_creates_nothing_that_replaces_nothing():
    other_name = replace(SEEN.before[0], is_namesake=False)

    assert objection(2, CREATE, {"Image": "shop/web"})
    assert objection(2, CREATE, BODY, replace(SEEN, before=(other_name,)))
    assert objection(3, CREATE, BODY, replace(SEEN, before=(other_name,))) == ""


def test_what_shows_files_of_the_installation_is_created_again_only_as_it_was():
    host = {"Binds": ["/:/host:ro"]}
    body = {"Image": "exporter", "HostConfig": host}
    details = {**DETAILS, "Config": {"Image": "exporter"}, "HostConfig": host, "Mounts": []}
    seen = Facts(before=(Before(details=details),), image_id="sha256:1")
    hidden = ("/opt/ops",)

    assert objection(2, CREATE, body, seen, hidden=hidden) == ""
    assert objection(3, CREATE, body, seen, hidden=hidden) == ""
    assert objection(3, CREATE, {**body, "Cmd": ["cat"]}, seen, hidden=hidden)
    assert objection(3, CREATE, body, replace(seen, image_id="sha256:2"), hidden=hidden)


def test_tier_2_removes_and_renames_only_to_finish_a_replacement():
    remove, rename = "DELETE /containers/web", "POST /containers/x_web/rename?name=web"

    assert objection(2, remove, facts=Facts(is_replaced=True)) == ""
    assert objection(2, remove)
    assert objection(2, f"{remove}?v=1", facts=Facts(is_replaced=True))
    assert objection(2, rename, facts=Facts(stands_for="web")) == ""
    assert objection(2, rename, facts=Facts(stands_for="db"))
    assert objection(2, rename)


@each_row(
    ("device", "is_made"),
    [
        ("/srv/shop/data", True),
        ("/", False),
        ("/opt/ops/state", False),
        ("/srv/other", False),
    ],
)
def test_a_volume_is_what_its_directory_is(device, is_made):
    body = {"HostConfig": {"Binds": ["data:/x"]}}
    facts = Facts(devices={"data": device})
    rules = {"paths": ("/srv/shop",), "hidden": ("/opt/ops",)}

    assert (objection(3, CREATE, body, facts, **rules) == "") == is_made


def test_a_new_container_mounts_only_directories_of_the_watch():
    def create(source: str) -> str:
        body = {"HostConfig": {"Binds": [f"{source}:/x"]}}
        return objection(3, CREATE, body, paths=("/srv/shop",))

    assert create("/srv/shop/data") == ""
    assert create("/srv/shop") == ""
    assert create("data") == ""
    assert create("/etc/localtime") == ""
    assert create("/srv/other")
    assert create("/srv/shop/../other")
    assert create("/srv/shopping")


@each_row(
    ("body", "is_made"),
    [
        ({"Name": "cache"}, True),
        ({"Name": "cache", "Driver": "local", "DriverOpts": {}}, True),
        ({"Name": "cache", "DriverOpts": {"o": "bind", "device": "/"}}, False),
        ({"Name": "cache", "Driver": "other"}, False),
        ({"Name": "cache", "ClusterVolumeSpec": {"Group": "x"}}, False),
    ],
)
def test_a_volume_of_a_directory_of_the_host_is_not_made(body, is_made):
    assert (objection(3, "POST /volumes/create", body) == "") == is_made


# Links in the place of directories.


def container_with(*binds: str, **host) -> Facts:
    mounts = [{"Type": "bind", "Source": bind, "Destination": "/x", "RW": True} for bind in binds]
    settings = {"Binds": [f"{bind}:/x" for bind in binds], **host}
    target = {"Id": "a" * 64, "Name": "/web", "HostConfig": settings, "Mounts": mounts}
    return Facts(target=target, named={"web": target})


LINKS = {
    "/srv/shop/state": "/opt/ops/state",
    "/srv/shop/etc": "/etc",
    "/srv/shop/socket": "/run/docker.sock",
    "/srv/shop/zone": "/usr/share/zoneinfo/Europe/Berlin",
    "/srv/shop/data": "/mnt/large/data",
    "/srv/shop/inner": "/srv/shop/real",
    "/root/shop/etc": "/etc/web",
    "/var/run/docker.sock": "/run/docker.sock",
    "/etc/resolv.conf": "/run/systemd/resolve/stub-resolv.conf",
    "/root/shop/state": "/opt/ops/state/db",
    "/root/shop/inner": "/root/shop/real",
    "/root/other/state": "/opt/ops/state",
}


@each_row(
    ("bind", "may_start"),
    [
        ("/srv/shop/state", False),
        ("/srv/shop/etc", False),
        ("/srv/shop/socket", False),
        ("/root/shop/etc", False),
        ("/root/shop/state", False),
        ("/root/other/state", False),
        ("/root/shop/inner", True),
        ("/srv/shop/zone", True),
        ("/srv/shop/data", True),
        ("/srv/shop/inner", True),
        ("/srv/shop/plain", True),
        ("/var/run/docker.sock", True),
        ("/etc/resolv.conf", True),
        ("/", True),
        ("/opt/ops/state", True),
    ],
)
@each_row(
    "request_line",
    [
        *(f"POST /containers/web/{act}" for act in ("start", "restart", "unpause", "stop", "kill")),
        "POST /libpod/containers/web/start",
        "DELETE /containers/web",
    ],
)
def test_a_container_neither_starts_nor_ends_with_a_link_in_the_place_of_a_directory(
    bind, may_start, request_line
):
    why = objection(
        3,
        request_line,
        facts=container_with(bind),
        hidden=("/opt/ops/state",),
        paths=("/srv/shop", "/root/shop"),
        real_path=lambda path: LINKS.get(path, path),
    )

    assert (why == "") == may_start


def test_a_replacement_does_not_get_what_a_link_leads_to_now():
    host = {"Binds": ["/srv/shop/etc:/x"]}
    details = {**DETAILS, "Config": {"Image": "shop"}, "HostConfig": host, "Mounts": []}
    seen = Facts(before=(Before(details=details),), image_id="sha256:1")
    body = {"Image": "shop", "HostConfig": host}

    for level in (2, 3):
        assert objection(level, CREATE, body, seen) == ""
        assert objection(level, CREATE, body, seen, real_path=lambda path: LINKS.get(path, path))


@each_row(
    ("level", "act", "is_made_here", "may_end"),
    [
        (2, "stop", False, False),
        (2, "kill", False, False),
        (2, "pause", False, True),
        (2, "restart", False, True),
        (3, "stop", False, False),
        (3, "stop", True, True),
    ],
)
def test_a_container_that_removes_itself_is_not_stopped(level, act, is_made_here, may_end):
    facts = container_with(AutoRemove=True)
    facts.target["Mounts"] = [{"Type": "volume", "Name": "f" * 64, "Destination": "/data"}]

    why = objection(
        level, f"POST /containers/web/{act}", facts=replace(facts, is_made_here=is_made_here)
    )

    assert (why == "") == may_end


@each_row(
    "request_line",
    [
        EXEC,
        "POST /containers/web/attach",
        "GET /containers/web/archive?path=/etc/hosts",
        "HEAD /containers/web/archive?path=/",
        "PUT /containers/web/archive?path=/",
    ],
)
def test_a_container_that_shows_files_of_the_installation_is_not_entered(request_line):
    body = {"Cmd": ["ls"]} if request_line == EXEC else None

    for bind in ("/", "/opt", "/opt/ops/state/db"):
        facts = container_with(bind)
        assert objection(3, request_line, body, facts, hidden=("/opt/ops/state",))
        assert objection(3, "POST /containers/web/restart", None, facts, hidden=("/opt/ops",)) == ""
        assert objection(3, "GET /containers/web/logs", None, facts, hidden=("/opt/ops",)) == ""
    assert objection(3, request_line, body, container_with("/srv"), hidden=("/opt/ops",)) == ""


def test_namespaces_of_a_container_that_shows_files_of_the_installation_are_not_joined():
    facts = Facts(named=container_with("/").named)
    body = {"HostConfig": {"PidMode": "container:web"}}

    assert objection(3, CREATE, body, facts, hidden=("/opt/ops",))
    assert objection(3, CREATE, body, facts) == ""


def test_a_service_is_removed_only_if_it_could_be_created_again():
    def remove(template: object) -> str:
        target = {"ID": "s1", "Spec": {"Name": "web", "TaskTemplate": template}}
        return objection(3, "DELETE /services/web", facts=Facts(target=target))

    assert remove({"ContainerSpec": {"Image": "shop"}}) == ""
    assert remove({"ContainerSpec": {"CapabilityAdd": ["CAP_SYS_ADMIN"]}})


# What a request does, as a command.


@each_row(
    ("request_line", "body", "command"),
    [
        ("POST /v1.47/containers/abc/restart?t=5", None, "docker restart web"),
        ("POST /libpod/containers/abc/stop", None, "docker stop web"),
        ("POST /containers/create?name=web", {"Image": "shop"}, "docker create --name web shop"),
        ("POST /containers/abc/exec", {"Cmd": ["ls", "-l"]}, "docker exec web ls -l"),
        ("POST /containers/abc/exec", {"cmd": "ls"}, "docker exec web ls"),
        ("POST /containers/abc/rename?name=x", None, "docker rename web x"),
        ("DELETE /containers/abc?force=1", None, "docker rm web"),
        ("PUT /containers/abc/archive?path=/x", None, "docker cp - web:/x"),
        ("POST /images/create?fromImage=shop&tag=2", None, "docker pull shop:2"),
        ("POST /images/create?fromSrc=http://x", None, "docker import http://x"),
        ("POST /images/team/shop/tag?repo=x", None, "docker tag team/shop"),
        ("DELETE /images/team/shop:1", None, "docker rmi team/shop:1"),
        ("POST /build?t=x", None, "docker build"),
        ("POST /networks/create", {"Name": "n"}, "docker network create n"),
        ("POST /networks/n/connect", {"Container": "w"}, "docker network connect n w"),
        ("DELETE /networks/n", None, "docker network rm n"),
        ("POST /services/abc/update?version=1", {}, "docker service update web"),
    ],
)
def test_a_request_is_told_as_a_command(request_line, body, command):
    assert " ".join(command_for(asked_for(request_line, body), "web")) == command


def test_what_a_command_leaves_out_is_told_beside_it():
    kill = asked_for("POST /containers/web/kill?signal=HUP")
    program = asked_for(EXEC, {"Cmd": ["ls"], "User": "root", "Env": ["A=1"]})

    assert options_in(kill) == ("--signal=HUP",)
    assert options_in(program) == ("--user=root", "--env=A=1")


@each_row(
    ("request_line", "expected"),
    [
        ("POST /containers/web/restart", True),
        ("DELETE /containers/web", True),
        ("POST /build", True),
        ("GET /containers/web/json", False),
        ("POST /exec/abc/start", False),
        ("POST /containers/web/wait", False),
        ("POST /containers/web/resize?h=1", False),
    ],
)
def test_only_changes_have_an_effect(request_line, expected):
    assert has_effect(asked_for(request_line)) == expected


def effect(kind: EffectKind, verb: str, compose_service: str = "") -> DockerEffect:
    return DockerEffect(
        kind=kind,
        service="shop-web-1",
        container_id="a" * 64,
        verb=verb,
        vector=("docker", verb, "shop-web-1"),
        compose_service=compose_service,
    )


@each_row(
    ("kind", "counted"),
    [
        (EffectKind.RESTART, Change.Kind.RESTART),
        (EffectKind.STOP, Change.Kind.RESTART),
        (EffectKind.REDEPLOYMENT, Change.Kind.REDEPLOY),
        (EffectKind.REMOVE, Change.Kind.REDEPLOY),
        (EffectKind.EXEC, Change.Kind.OTHER),
        (EffectKind.OTHER, Change.Kind.OTHER),
    ],
)
def test_the_first_half_of_a_pair_counts(kind, counted):
    assert effect(kind, "x").counted == counted


def test_rules_for_a_restart_apply_to_a_stop():
    assert effect(EffectKind.STOP, "kill", "web").spellings == (
        ("docker", "kill", "shop-web-1"),
        ("docker", "restart", "shop-web-1"),
        ("docker", "compose", "kill", "web"),
        ("docker", "compose", "restart", "web"),
    )
    assert effect(EffectKind.OTHER, "start").spellings == (("docker", "start", "shop-web-1"),)


def test_rules_for_commands_that_create_or_remove_apply_to_each_of_their_requests():
    creation = effect(EffectKind.REDEPLOYMENT, "create", "web").spellings
    removal = effect(EffectKind.REMOVE, "rm", "web").spellings

    assert ("docker", "run", "shop-web-1") in creation
    assert ("docker", "compose", "up", "web") in creation
    assert ("docker", "compose", "down", "web") in removal
