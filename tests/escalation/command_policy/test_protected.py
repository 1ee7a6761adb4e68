"""An agent that could end its own supervisor would be held by nobody: no tier may."""

from __future__ import annotations

from escalation.command_policy.decision import Decision, decide
from escalation.command_policy.protected import Alive, OwnProcess, Supervisor
from sessions_app.models.session import Verdict
from tests.escalation.command_policy.vectors import policy, request
from tests.tables import each_row

WORKER = "/opt/claudeops/bin/python3 /opt/claudeops/bin/claudeops worker"
CONTAINER = "4f" * 32
ALIVE = Alive(
    processes=(
        OwnProcess(pid=4242, name="claudeops", command=WORKER, numbers=frozenset({4250, 4001})),
        OwnProcess(pid=4343, name="bwrap", command="bwrap --ro-bind / / claude -p"),
    ),
    units=frozenset({"ops.service", "system.slice", "session-7.scope", "user@1000.service"}),
)
SUPERVISOR = Supervisor(
    alive=lambda: ALIVE,
    users=frozenset({"claudeops", "1000"}),
    containers=frozenset({CONTAINER, "ops-worker-1", "ops-database-1"}),
)


def judged(command: str, tier: int) -> Decision:
    return decide(policy(tier, supervisor=SUPERVISOR, programs_in=("/drill",)), request(command))


@each_row("tier", [1, 2, 3])
@each_row(
    "command",
    [
        "systemctl stop claudeops-worker",
        "systemctl restart claudeops-web.service",
        "systemctl restart nginx claudeops-worker",
        "sudo systemctl stop ops",
        "systemctl stop 'claude*'",
        "systemctl stop '*'",
        "systemctl stop system.slice",
        "systemctl stop session-7.scope",
        "systemctl --user stop user@1000",
        "systemctl kill --signal=9 ops.service",
        "systemctl disable --now ops",
        "systemctl mask ops",
        "systemctl freeze ops",
        "systemctl set-property ops MemoryMax=1M",
        "service claudeops-worker stop",
        "ssh lighthouse systemctl stop claudeops-worker",
        "loginctl terminate-user claudeops",
        "loginctl kill-user 1000",
        "loginctl terminate-session 7",
        "loginctl terminate-session",
        "kill 4242",
        "sudo kill -9 4343",
        "sudo kill -TERM -- -4242",
        "sudo kill -9 4250",
        "sudo kill -9 -- -4001",
        "sudo pkill -f claudeops",
        "sudo pkill bwrap",
        "sudo pkill -f '[c]laudeops worker'",
        "sudo killall claudeops",
        "sudo pkill -f PYTHON3",
        "docker stop ops-worker-1",
        "docker restart 4f4f4f4f4f4f",
        "docker kill ops-database-1",
        "ssh lighthouse docker restart ops-worker-1",
        "docker cp evil.py ops-worker-1:/opt/claudeops",
        "sudo apt-get remove -y bubblewrap",
        "sudo apt install bubblewrap-",
        "sudo apt purge 'bubble*'",
        "sudo dpkg -r bubblewrap",
        "sudo sysctl -w user.max_user_namespaces=0",
        "sudo sysctl kernel.unprivileged_userns_clone=0",
        "sudo pkill -F /run/claudeops/worker.pid",
        "docker exec ops-worker-1 ls",
    ],
)
def test_what_the_supervisor_is_may_be_ended_or_changed_at_no_tier(command, tier):
    assert judged(command, tier).verdict == Verdict.DENY


@each_row(
    ("tier", "command"),
    [
        (1, "systemctl status claudeops-worker --no-pager"),
        (1, "systemctl is-active ops"),
        (1, "docker logs ops-worker-1"),
        (1, "pgrep -af claudeops"),
        (2, "systemctl restart nginx"),
        (2, "docker restart web"),
        (2, "docker restart shop-worker-1"),
        (3, "sudo kill -9 5151"),
        (3, "sudo pkill -f gunicorn"),
        (3, "sudo apt-get install -y bubblewrap"),
        (3, "sudo apt-get remove -y nginx"),
        (3, "sudo sysctl -w vm.swappiness=10"),
        (3, "loginctl terminate-session 9"),
    ],
)
def test_everything_else_is_judged_as_before(command, tier):
    assert judged(command, tier).verdict == Verdict.ALLOW


@each_row(
    "command",
    [
        "systemctl stop claudeops-worker",
        "ssh nas 'uptime; systemctl stop claudeops-worker'",
        "sudo kill 4250",
        "sudo pkill -F /run/claudeops/worker.pid",
        "docker exec ops-worker-1 ls",
        "docker inspect ops-worker-1",
        "systemctl show -p Environment ops",
        "systemctl cat claudeops-worker",
        "sudo apt-get remove bubblewrap",
    ],
)
def test_the_rule_says_that_it_is_protected(command):
    assert judged(command, 3).rule == "supervisor is protected"


def test_the_model_is_told_what_it_would_have_ended():
    decision = judged("systemctl restart ops", 2)

    assert decision.rule == "supervisor is protected"
    assert "ops.service" in decision.reason


def test_processes_are_looked_up_only_for_a_command_that_could_end_one():
    asked: list[int] = []

    def alive() -> Alive:
        asked.append(1)
        return ALIVE

    asking = policy(2, supervisor=Supervisor(alive=alive))
    decide(asking, request("ssh nas 'docker ps; systemctl status nginx; docker restart web'"))
    decide(asking, request("systemctl status nginx"))

    assert asked == []
