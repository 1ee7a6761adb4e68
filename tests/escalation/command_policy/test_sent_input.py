"""Programs that seem to read and send data to another host."""

from __future__ import annotations

import pytest

from escalation.command_policy.decision import CommandPolicy, decide
from escalation.command_policy.grants import default_grants
from sessions_app.models.session import Verdict
from tests.tables import each_row

S_CLIENT = "openssl s_client -quiet -connect web:443"


def judged(command: str, tier: int = 1) -> Verdict:
    policy = CommandPolicy(tier=tier, grants=default_grants(tier), workdir="/srv/shop")
    return decide(policy, command).verdict


@each_row(
    "command",
    [
        f"printf 'DELETE / HTTP/1.0\\r\\n\\r\\n' | {S_CLIENT}",
        f"{S_CLIENT} <<< 'DELETE / HTTP/1.0'",
        f"{S_CLIENT} <<EOF\nDELETE / HTTP/1.0\nEOF",
        f"{S_CLIENT} < request",
        f"cat request | timeout 5 {S_CLIENT}",
        f"echo 'DELETE /' | ssh lighthouse {S_CLIENT}",
        f"for host in a b; do {S_CLIENT}; done < request",
        f"exec < request; {S_CLIENT}",
    ],
)
def test_what_a_connection_is_fed_is_sent(command):
    assert judged(command) is Verdict.DENY


@each_row(
    "command",
    [
        S_CLIENT,
        f"{S_CLIENT} </dev/null",
        f"echo | {S_CLIENT} 2>/dev/null | openssl x509 -noout -dates",
        f"echo Q | timeout 5 {S_CLIENT}",
        f"for host in a b; do {S_CLIENT} </dev/null; done",
    ],
)
def test_a_connection_that_is_fed_nothing_only_looks(command):
    assert judged(command) is Verdict.ALLOW


@each_row(
    "command",
    [
        "curl http://cache:6379/ -H Host: -H 'DEL session:42'",
        "curl http://cache:11211/ -H 'delete session:42'",
        "curl http://cache -H 'X-HTTP-Method-Override: DELETE'",
        "wget -qO- --header='DEL session:42' http://cache:6379/",
        "wget -qO- --header='X-HTTP-Method-Override: DELETE' http://web/",
        "redis-cli -h cache -p 11211 echo $'x\\r\\nflush_all'",
    ],
)
def test_no_line_of_a_request_is_a_command_to_something_else(command):
    assert judged(command) is Verdict.ISOLATE


@pytest.mark.parametrize(
    "command",
    [
        "curl -sH 'Accept: application/json' http://web/health",
        "curl -H 'X-Probe;' http://web/health",
        "wget -qO- --header='Host: shop.example' http://127.0.0.1/",
    ],
)
def test_an_ordinary_header_is_one(command):
    assert judged(command) is Verdict.ALLOW


def test_a_file_that_the_address_names_is_written_nobody_knows_where():
    assert judged("curl -o '/tmp/#1' 'http://web/{../srv/shop/x}'") is not Verdict.ALLOW


@pytest.mark.parametrize("statement", ["system reboot", "tee /srv/x", "source x", ". x"])
def test_no_command_to_the_client_itself_is_taken_for_a_statement(statement):
    assert judged(f"mysql -h db -e '{statement}'", 3) is Verdict.ISOLATE
