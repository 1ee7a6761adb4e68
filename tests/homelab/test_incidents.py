"""Real incidents in a home lab are mended end to end, by root and by an ordinary user.

The CLI, the sandboxes, the command policy, the services and the record are real; only the replies
of the model are scripted.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.homelab.lab import OPERATOR, PROJECT, HomeLab

pytestmark = [pytest.mark.prove, pytest.mark.timeout(900)]

USERS = pytest.mark.parametrize("user", ["root", OPERATOR])


def played(lab: HomeLab, user: str, *steps: dict[str, Any], grants: str = "") -> dict[str, Any]:
    home = "/root" if user == "root" else f"/home/{user}"
    incident = {"workdir": f"{home}/lab", "grants": grants, "steps": steps}
    python = PROJECT / ".venv/bin/python"
    player = f"cd {PROJECT} && PYTHONDONTWRITEBYTECODE=1 {python} -m tests.homelab.play_incident"
    done = lab.run(["bash", "-c", player], user, stdin=json.dumps(incident))
    assert done.returncode == 0, done.stderr
    record: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return record


def printed(lab: HomeLab, script: str) -> str:
    return lab.run(["bash", "-c", script]).stdout.strip()


@USERS
def test_dead_unit_runs_again(lab: HomeLab, user: str) -> None:
    printed(lab, "systemctl stop shop")

    record = played(
        lab,
        user,
        {
            "service": "shop",
            "status": "down",
            "commands": ["systemctl is-active shop; curl -s http://127.0.0.1:8082/health"],
            "escalate": "shop does not run",
        },
        {
            "service": "shop",
            "status": "healthy",
            "commands": [
                "sudo systemctl start shop",
                "sleep 1; systemctl is-active shop && curl -s http://127.0.0.1:8082/health",
            ],
            "did": ["sudo systemctl start shop"],
        },
    )

    assert (record["outcome"], record["tiers"]) == ("fixed", [1, 2]), record
    assert record["changes"] == [["systemctl start shop", 0]]
    assert any('active\n{"status": "ok"' in output for output in record["outputs"]), record
    assert printed(lab, "systemctl is-active shop") == "active"
    assert printed(lab, "curl -s http://127.0.0.1:8082/health | jq -r .status") == "ok"


@USERS
def test_dead_container_runs_again(lab: HomeLab, user: str) -> None:
    printed(lab, "docker kill lab-web-1")

    record = played(
        lab,
        user,
        {
            "service": "lab-web-1",
            "status": "down",
            "commands": ["docker ps -a --format '{{.Names}} {{.Status}}'"],
            "escalate": "lab-web-1 exited",
        },
        {
            "service": "lab-web-1",
            "status": "healthy",
            "commands": ["docker start lab-web-1", "curl -s http://127.0.0.1:8090/"],
            "did": ["docker start lab-web-1"],
        },
    )

    assert (record["outcome"], record["tiers"]) == ("fixed", [1, 2]), record
    assert record["changes"] == [["docker start lab-web-1", 0]]
    assert "lab-web-1 Exited (137)" in record["outputs"][0]
    assert "hello from the container" in record["outputs"]
    assert printed(lab, "curl -s http://127.0.0.1:8090/") == "hello from the container"


@USERS
def test_bad_configuration_is_corrected_at_tier_3(lab: HomeLab, user: str) -> None:
    broken = "/etc/nginx/conf.d/broken.conf"
    printed(lab, f"echo 'bogus on;' > {broken}; systemctl restart nginx")
    assert printed(lab, "systemctl is-active nginx") == "failed"

    record = played(
        lab,
        user,
        {
            "service": "nginx",
            "status": "down",
            "commands": ["sudo nginx -t"],
            "escalate": "nginx does not run",
        },
        {
            "service": "nginx",
            "status": "down",
            "commands": ["sudo systemctl restart nginx"],
            "escalate": "its configuration is wrong",
        },
        {
            "service": "nginx",
            "status": "healthy",
            "commands": [
                f"sudo sed -i /bogus/d {broken} && sudo nginx -t && sudo systemctl restart nginx",
                "curl -s http://127.0.0.1:8088/health",
            ],
            "did": ["sudo systemctl restart nginx"],
        },
        grants="write:/etc/nginx",
    )

    assert (record["outcome"], record["tiers"]) == ("fixed", [1, 2, 3]), record
    assert [code for _action, code in record["changes"]] == [1, 0, 0], record
    assert 'unknown directive "bogus"' in record["outputs"][0]
    assert printed(lab, "systemctl is-active nginx") == "active"
    assert printed(lab, "curl -s http://127.0.0.1:8088/health | jq -r .status") == "ok"
