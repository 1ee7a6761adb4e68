"""The home lab has the services, the data and the faults that other proofs rely on."""

from __future__ import annotations

import pytest

from tests.homelab.lab import OPERATOR, HomeLab
from tests.tables import each_row

pytestmark = [pytest.mark.prove, pytest.mark.timeout(900)]

FACTS = [
    ("systemctl is-active shop nginx docker postgresql redis-server ssh cron", "active\n" * 7),
    ("systemctl is-failed backup", "failed\n"),
    ("curl -s http://127.0.0.1:8088/health | jq -r .status", "ok\n"),
    ("curl -s http://127.0.0.1:8090/", "hello from the container\n"),
    ("docker exec db pg_isready", "/tmp:5432 - accepting connections\n"),
    ("docker inspect -f '{{.State.ExitCode}}' old", "3\n"),
    ("psql -At shop -c \"select count(*) from orders where state = 'open'\"", "4\n"),
    ("redis-cli llen jobs", "3\n"),
    ("ssh -o BatchMode=yes nas cat /etc/shop/shop.conf | head -1", "port = 8082\n"),
    ("df --output=pcent /home/pat/media | tail -1", "100%\n"),
    ("git -C ~/lab status --short", " M config/shop.env\n"),
    ("ls /tmp/uploads", "17.log\n"),
]


@pytest.mark.parametrize("user", ["root", OPERATOR])
@each_row("command, printed", FACTS)
def test_services_and_data_are_there_for_each_user(
    lab: HomeLab, user: str, command: str, printed: str
) -> None:
    assert lab.run(["bash", "-c", command], user).stdout == printed


def test_processes_of_the_lab_end_with_it(lab: HomeLab) -> None:
    assert lab.is_up
    seen = lab.run(["ps", "-e", "-o", "comm="]).stdout.split()
    assert "dockerd" in seen
    assert "pytest" not in seen
