"""Proposals of probes: read from the compose file, from output of Tier 1 and from reports."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from escalation.errors import RefusalCode
from escalation.probes.proposals import (
    Proposed,
    accept,
    choose,
    dismiss,
    from_compose,
    from_listed,
    offered,
)
from escalation.supervisor.conclude import conclude
from escalation.supervisor.decision import Ending, Stop
from sessions_app.models import Cycle, Incident, Probe, ProbeProposal, Session
from tests.escalation.refusals import refused
from tests.escalation.rows import a_report
from tests.factories import (
    CycleFactory,
    IncidentFactory,
    ProbeFactory,
    ServiceStateFactory,
    SessionEventFactory,
    SessionFactory,
    WatchFactory,
)
from tests.tables import each_row

COMPOSE = """
services:
  web:
    image: shop
    ports: ["8080:80"]
    healthcheck: {test: ["CMD", "curl", "-f", "http://localhost/health?full"]}
  db:
    image: postgres
    ports: ["127.0.0.1:5432:5432", "9000:9000/udp"]
    healthcheck: {test: pg_isready}
  api:
    ports: [{target: 80, published: "8443", host_ip: "10.0.0.2"}]
    healthcheck: {test: "wget -q https://127.0.0.1:9443/up"}
  worker: {image: shop}
  cron: {image: shop, container_name: shop_cron, ports: ["${PORT:-80}:80"]}
  tools: {image: shop, profiles: [debug]}
"""
SS = """State  Recv-Q Send-Q Local Address:Port  Peer Address:Port Process
LISTEN 0      511          0.0.0.0:80         0.0.0.0:*    users:(("nginx",pid=7,fd=6))
LISTEN 0      244    127.0.0.1%lo:5432       0.0.0.0:*    users:(("postgres",pid=9,fd=5))
LISTEN 0      128             [::]:22            [::]:*    users:(("sshd",pid=3,fd=4))
LISTEN 0      128          0.0.0.0:99999      0.0.0.0:*    users:(("nginx",pid=7,fd=4))
"""
NETSTAT = "tcp   0   0 192.168.1.5:6379   0.0.0.0:*   LISTEN   77/redis-server\n"
UNITS = """  UNIT                 LOAD   ACTIVE SUB     DESCRIPTION
● backup.service       loaded failed failed  Backup of the shop
  cron.service         loaded active running Cron
  mail@shop.service    loaded active running Mail
"""
DOCKER = """CONTAINER ID   IMAGE   COMMAND   CREATED   STATUS   PORTS   NAMES
0123456789ab   shop    "run"     1h        Up 1h            shop-queue-1
"""


def pairs(found: tuple[Proposed, ...]) -> dict[str, tuple[str, str]]:
    return {one.service: (one.kind, one.target) for one in found}


def test_each_service_of_a_compose_file_gets_its_best_probe():
    assert pairs(from_compose(COMPOSE, "compose.yaml", "My Shop")) == {
        "web": ("http", "http://127.0.0.1:8080/health?full"),
        "db": ("tcp", "127.0.0.1:5432"),
        "api": ("tcp", "10.0.0.2:8443"),
        "worker": ("container", "myshop-worker-1"),
        "cron": ("container", "shop_cron"),
    }


@each_row(
    "text",
    [
        *("", "services: [web]", "services: {web: 3}", "- web", "services: {1: {ports: 8}}"),
        *("{{{{", "a: &a [*a]", "services: !!python/object:os.system {}", "[" * 5_000),
        *("\x00", "key: @"),
    ],
)
def test_a_compose_file_that_is_none_proposes_nothing_that_cannot_be(text):
    found = from_compose(text, "compose.yaml", "shop")
    assert pairs(found) in ({}, {"web": ("container", "shop-web-1")})


def test_what_tier_1_listed_is_proposed_for_known_services():
    services = ["nginx", "Postgres", "redis", "backup", "mail", "queue", "missing"]

    assert pairs(from_listed([SS, NETSTAT, UNITS, DOCKER], services)) == {
        "nginx": ("tcp", "127.0.0.1:80"),
        "Postgres": ("tcp", "127.0.0.1:5432"),
        "redis": ("tcp", "192.168.1.5:6379"),
        "backup": ("unit", "backup.service"),
        "mail": ("unit", "mail@shop.service"),
        "queue": ("container", "shop-queue-1"),
    }


def a_proposal(service="web", kind="tcp", target="127.0.0.1:80", session=None) -> Proposed:
    return Proposed(service=service, kind=kind, target=target, why="", session=session)


@each_row(
    "given, number",
    [
        ({}, 1),
        ({"probes": [("Web", "http", "http://x/")]}, 0),
        ({"probes": [("other", "tcp", "127.0.0.1:80")]}, 0),
        ({"decided": [a_proposal().key]}, 0),
        ({"read": [a_proposal(target="80")]}, 0),
        ({"read": [a_proposal("a", "command", "x --password=hunter22hunter")]}, 0),
        ({"read": [a_proposal("a", "command", "true\nrm -rf /")]}, 0),
        ({"read": [a_proposal("a", "command", "true \u202e /-fr mr")]}, 0),
        ({"read": [a_proposal("a", "heartbeat", "")]}, 0),
        ({"reported": [a_proposal("web", "dns", "a.example", 4)]}, 1),
    ],
)
def test_only_a_new_and_possible_probe_is_offered(given, number):
    facts = {"reported": [], "read": [a_proposal()], "decided": [], "probes": [], **given}
    assert len(choose(**facts)) == number


@pytest.fixture
def watch(db, tmp_path: Path):
    workdir = tmp_path / "shop"
    workdir.mkdir()
    return WatchFactory(name="shop", workdir=str(workdir))


def test_a_proposal_runs_only_after_a_person_accepts_it(watch):
    (Path(watch.workdir) / "compose.yaml").write_text(COMPOSE)
    names = ["web", "db", "api", "worker", "cron"]
    assert [one.service for one in offered(watch)] == names
    assert not Probe.objects.exists()
    ProbeFactory(watch=watch, name="web-http", service="other")

    web, db = offered(watch)[:2]
    probe = accept(watch, web.key, by="ann")
    dismiss(watch, db.key, by="ann")

    assert (probe.name, probe.kind, probe.target) == ("web-http-2", "http", web.target)
    assert [one.service for one in offered(watch)] == names[2:]
    for key in (web.key, db.key, "0"):
        with refused(RefusalCode.NOT_FOUND):
            accept(watch, key, by="ann")
    states = ProbeProposal.objects.order_by("pk").values_list("state", "decided_by")
    assert list(states) == [("accepted", "ann"), ("dismissed", "ann")]


@pytest.mark.parametrize("how", ["link", "pipe", "large", "directory"])
def test_a_compose_file_that_an_agent_made_a_trap_is_left(watch, tmp_path, how):
    file, outside = Path(watch.workdir) / "compose.yaml", tmp_path / "outside"
    outside.write_text(COMPOSE)
    match how:
        case "link":
            file.symlink_to(outside)
        case "pipe":
            os.mkfifo(file)
        case "large":
            file.write_text(COMPOSE + "#" * 70_000)
        case "directory":
            file.mkdir()

    assert offered(watch) == ()


def test_what_the_last_tier_1_session_listed_is_offered(watch):
    ServiceStateFactory(watch=watch, service="nginx", name="nginx")
    session = SessionFactory(cycle=CycleFactory(watch=watch), report=a_report())
    call = {"type": "tool_use", "id": "a", "name": "Bash", "input": {"command": "ss -ltnp"}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": SS}
    for number, (kind, block) in enumerate((("assistant", call), ("user", result))):
        payload = {"type": kind, "message": {"id": "m", "content": [block]}}
        SessionEventFactory(session=session, sequence=number, kind=kind, payload=payload)

    assert pairs(offered(watch)) == {"nginx": ("tcp", "127.0.0.1:80")}


PROPOSED = {"service": "web", "kind": "command", "target": "curl -f http://127.0.0.1/"}


def concluded(watch, *probes: dict[str, str], outcome: str = "fixed") -> Session:
    session = SessionFactory(running=True, cycle=CycleFactory(watch=watch, running=True))
    report: Any = {**a_report(), "probes": list(probes)}
    ending = Ending(
        tier=1, status=Session.Status.COMPLETED, report=report, stored={"report": report}
    )
    conclude(session, ending, Stop(Cycle.Outcome(outcome), "Done."))
    return session


def test_a_probe_of_a_report_is_offered_once_its_fix_is_verified(watch):
    session = concluded(watch, PROPOSED, {**PROPOSED, "target": "x\ny"}, PROPOSED)
    assert ProbeProposal.objects.count() == 1
    incident = IncidentFactory(watch=watch, cause="web", state=Incident.State.VERIFYING)
    incident.cycles.add(session.cycle)
    assert offered(watch) == ()

    Incident.objects.update(state=Incident.State.RESOLVED)

    [one] = offered(watch)
    assert (one.kind, one.target, one.session) == ("command", PROPOSED["target"], session.pk)
    assert not Probe.objects.exists()
    assert accept(watch, one.key, by="ann").target == PROPOSED["target"]


def test_reports_leave_at_most_a_hundred_open_proposals(watch):
    for cycle in range(12):
        many = [{**PROPOSED, "target": f"check {cycle} {number}"} for number in range(12)]
        concluded(watch, *many)
    assert ProbeProposal.objects.count() == 100
