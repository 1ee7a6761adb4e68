"""An agent that could end its own supervisor would be held by nobody: no tier may."""

from __future__ import annotations

from dataclasses import replace

from escalation.command_policy.decision import Decision, decide
from escalation.command_policy.protected import Alive, OtherProcess, OwnProcess, Supervisor
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


def _other(pid: int, name: str, command: str, user: str = "shop", parent: int = 1) -> OtherProcess:
    return OtherProcess(
        pid=pid,
        parent=parent,
        name=name,
        command=command,
        users=frozenset({user}),
        started=pid,
    )


CLIENT = OwnProcess(
    pid=77, name="tool-client", command="python3 -IS tool-client shop-server", is_client=True
)
LAB = Supervisor(
    alive=lambda: Alive(
        processes=(*ALIVE.processes, CLIENT),
        others=(
            _other(1, "systemd", "/sbin/init shop-server"),
            _other(10, "shop-server", "python3 /usr/bin/shop-server"),
            _other(11, "shop-server", "python3 /usr/bin/shop-server --spare", parent=10),
            _other(12, "nginx", "nginx: master process", user="root"),
            _other(13, "nginx", "nginx: worker process", user="www-data", parent=12),
            _other(14, "a-name-too-long", "/usr/bin/a-name-too-long-for-the-kernel"),
        ),
    )
)


@each_row(
    ("command", "argv"),
    [
        ("pkill -f shop-server", "kill -TERM 10 11"),
        ("pkill -HUP -f 'shop-server$'", "kill -HUP 10"),
        ("pkill -n shop-server", "kill -TERM 11"),
        ("pkill -o -9 shop", "kill -9 10"),
        ("pkill -P 10 shop", "kill -TERM 11"),
        ("pkill -u www-data nginx", "kill -TERM 13"),
        ("pkill -x ngin", "false"),
        ("pkill -i NGINX", "kill -TERM 12 13"),
        ("pkill --signal USR1 -f 'nginx: master'", "kill -USR1 12"),
        ("pkill -f '[s]hop-server --spare'", "kill -TERM 11"),
        ("killall -HUP nginx", "kill -HUP 12 13"),
        ("killall ngin.", "false"),
        ("killall a-name-too-long-for-the-kernel", "kill -TERM 14"),
        ("sudo pkill -f shop-server", "sudo -n -- kill -TERM 10 11"),
        ("kill -HUP 10 77 99", "kill -HUP 10"),
        ("kill 10 99", "kill 10 99"),
    ],
)
def test_processes_are_signalled_by_number_without_the_client_of_the_command(command, argv):
    decision = decide(policy(2, supervisor=LAB), request(command))

    assert (decision.verdict, " ".join(decision.argv)) == (Verdict.ALLOW, argv)


@each_row("command", ["kill 77", "kill 10 77 4242", "pkill -f claude", "killall bwrap"])
def test_its_own_processes_are_never_left_out_silently_where_they_are_meant(command):
    assert decide(policy(3, supervisor=LAB), request(command)).rule == "supervisor is protected"


OWN_DATABASE = Supervisor(users=frozenset({"ops", "1000"}), databases=frozenset({"claudeops"}))
SELECT = "-c 'select 1'"


def of_database(command: str, supervisor: Supervisor, **environment: str) -> Decision:
    asked = replace(request(command), environment=environment)
    return decide(policy(3, supervisor=supervisor), asked)


@each_row(
    "command",
    [
        f"psql claudeops {SELECT}",
        f"psql -d claudeops {SELECT}",
        f"psql -dclaudeops {SELECT}",
        f"psql --dbname=claudeops {SELECT}",
        f"psql -h localhost -d postgresql://ops@localhost/claudeops {SELECT}",
        f"psql postgresql://localhost/claude%6fps {SELECT}",
        f"psql -U claudeops {SELECT}",
        "psql -d claudeops -c 'drop table sessions_app_session'",
    ],
)
def test_no_tier_connects_to_the_own_database(command):
    decision = of_database(command, OWN_DATABASE)

    assert decision.verdict == Verdict.DENY
    assert "supervisor is protected" in decision.rule


def test_the_default_database_is_judged_too():
    own_user = replace(OWN_DATABASE, users=frozenset({"claudeops"}))

    assert of_database(f"psql {SELECT}", own_user).verdict == Verdict.DENY
    assert of_database(f"psql {SELECT}", OWN_DATABASE, PGDATABASE="claudeops").verdict == (
        Verdict.DENY
    )
    assert of_database(f"psql {SELECT}", own_user, PGDATABASE="shop").verdict == Verdict.ALLOW


@each_row("command", [f"psql shop {SELECT}", f"psql {SELECT}", f"psql -U shop -d shop {SELECT}"])
def test_other_databases_are_read(command):
    assert of_database(command, OWN_DATABASE).verdict == Verdict.ALLOW
