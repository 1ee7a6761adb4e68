"""Decisions on vectors: tiers, grants, sudo, other hosts, rules, drills, no sandbox."""

from __future__ import annotations

from escalation.command_policy.decision import ExecRequest, decide, judged
from escalation.command_policy.grants import Grants, grants_for
from escalation.command_policy.programs import PASSED_VARIABLES, SHIMS
from sessions_app.models.session import Verdict
from tests.escalation.command_policy.vectors import WORKDIR, judge, policy, request
from tests.tables import each_row

ALLOW, ASK, DENY = Verdict.ALLOW, Verdict.ASK, Verdict.DENY


@each_row(
    ("command", "lowest"),
    [
        ("curl -s http://shop/", 1),
        ("dmesg -T", 1),
        ("smartctl -a /dev/sda", 1),
        ("zpool status", 1),
        ("crontab -l", 1),
        ("iptables -L", 1),
        ("nginx -t", 1),
        ("sudo nginx -t", 1),
        ("sudo -n dmesg", 1),
        ("sudo -u root -- smartctl -a /dev/sda", 1),
        ("doas zpool status", 1),
        ("sudo ss -tlnp", 1),
        ("sudo systemctl status nginx", 1),
        ("systemctl daemon-reload", 2),
        ("systemctl restart nginx", 2),
        ("sudo systemctl restart nginx", 2),
        ("service nginx restart", 2),
        ("kill 4711", 2),
        ("sudo kill -9 4711", 2),
        ("podman restart web", 2),
        ("systemctl enable nginx", 3),
        ("sudo apt-get install -y jq", 3),
        ("sudo -u postgres dmesg", 3),
        ("sudo rm -rf build", 3),
        ("sudo sysctl -w vm.swappiness=1", 3),
        ("psql -h db -c 'DELETE FROM a'", 3),
        ("reboot", 4),
        ("sudo reboot", 4),
        ("ssh nas uptime", 1),
        ("ssh nas 'df -h | head -3; docker ps 2>&1'", 1),
        ("ssh nas sudo systemctl status nginx", 1),
        ("ssh nas sudo docker ps", 1),
        ("ssh nas docker restart web", 2),
        ("ssh nas 'cd /srv && docker compose restart web'", 2),
        ("ssh nas \"sh -c 'docker restart web'\"", 2),
        ("ssh nas timeout 5 systemctl restart nginx", 2),
        ("ssh nas git fetch", 2),
        ("ssh nas tee file", 3),
        ("ssh nas sudo rm -rf /srv/data", 3),
        ("ssh nas curl -o page http://x", 3),
        ("ssh nas 'sort -o a b'", 3),
        ("ssh nas docker exec web ls", 3),
        ("ssh nas 'echo FLUSHALL | openssl s_client -connect db:6380'", 3),
        ("ssh nas sudo -u www ls", 3),
        ("ssh nas reboot", 4),
        ("ssh nas 'uptime; rm -rf /'", 4),
    ],
)
def test_each_vector_has_a_lowest_tier(command, lowest):
    allowed = [tier for tier in (1, 2, 3) if judge(command, tier).verdict is ALLOW]

    assert allowed == list(range(lowest, 4))


@each_row(
    ("command", "grant"),
    [
        ("curl -s http://shop/", "http"),
        ("nc -z db 5432", "network"),
        ("ping -c 1 db", "raw socket"),
        ("ps aux", "processes"),
        ("ps -eu x", "process table"),
        ("ls -l /home", "processes"),
        ("sudo ls /root", "host"),
        ("ssh nas docker ps", "ssh"),
        ("journalctl -n 5", "bus"),
        ("dmesg", "host"),
        ("sudo ss -tlnp", "host"),
        ("sudo journalctl -n 5", "host"),
        ("sudo -l", "host"),
        ("sudo docker ps", "docker"),
        ("sudo tail -n 5 /var/log/auth.log", "files"),
        ("sudo grep -c error /var/log/nginx/error.log", "files"),
        ("sudo -n true", "files"),
        ("sudo rm x", "files"),
        ("sudo tee -a x", "files"),
    ],
)
def test_an_allowed_vector_has_exactly_one_grant(command, grant):
    decision = judge(command, 3)

    assert (decision.verdict, decision.grant, decision.reason) == (ALLOW, grant, "")


def test_a_denied_vector_has_nothing_to_execute():
    decision = judge("systemctl restart nginx")

    assert (decision.argv, decision.grant, decision.environment) == ((), "", ())
    assert decision.changes == ("systemctl restart nginx",)


@each_row(
    ("command", "argv"),
    [
        ("sudo dmesg -T", ("sudo", "-n", "--", "dmesg", "-T")),
        ("sudo -u root /usr/bin/dmesg", ("sudo", "-n", "--", "dmesg")),
        ("sudo -u www dmesg", ("sudo", "-n", "-u", "www", "--", "dmesg")),
        ("doas -n dmesg", ("doas", "-n", "--", "dmesg")),
        (
            "sudo systemctl restart nginx",
            ("sudo", "-n", "--", "systemctl", "--no-pager", "restart", "nginx"),
        ),
        ("sudo rm -rf build", ("sudo", "-n", "--", "rm", "-rf", "build")),
        ("sudo sh -c dmesg", ("sudo", "-n", "--", "dmesg")),
        ("sudo DEBIAN_FRONTEND=noninteractive dmesg", ("sudo", "-n", "--", "dmesg")),
        ("sudo /etc/init.d/nginx reload", ("sudo", "-n", "--", "service", "nginx", "reload")),
        ("sudo docker restart web", ("docker", "restart", "web")),
        ("ps aux", ("ps", "aux")),
        ("/usr/bin/ps aux", ("ps", "aux")),
    ],
)
def test_the_vector_to_execute_has_what_makes_it_safe(command, argv):
    assert judge(command, 3).argv == argv


@each_row(
    ("command", "rule"),
    [
        ("sudo", "not understood"),
        ("sudo -i", "not understood"),
        ("sudo -s", "not understood"),
        ("sudo -E dmesg", "not understood"),
        ("sudo -S dmesg", "not understood"),
        ("sudo -u '#0' dmesg", "not understood"),
        ("sudo LD_PRELOAD=/srv/x.so dmesg", "not understood"),
        ("sudo ./dmesg", "not understood"),
        ("sudo /srv/shop/dmesg", "not understood"),
        ("sudo sh -c 'dmesg; reboot'", "not understood"),
        ("sudo sh -c reboot", "for no tier"),
        ("sudo bash", "not understood"),
        ("sudo env dmesg", "not understood"),
        ("sudo xargs rm", "not understood"),
        ("sudo python3 -c 1", "not understood"),
        ("sudo find /srv/shop -exec rm {} +", "not understood"),
        ("sudo timeout 5 dmesg", "not understood"),
        ("sudo find /srv/shop", "works in the sandbox"),
        ("sudo cat /etc/shadow", "works in the sandbox"),
        ("sudo cat /var/log/../../etc/shadow", "works in the sandbox"),
        ("sudo grep -f /etc/shadow x /var/log/syslog", "works in the sandbox"),
        ("sudo grep --file=/etc/shadow x", "works in the sandbox"),
        ("sudo base64 /var/log/syslog", "works in the sandbox"),
        ("sudo -l -U root", "not understood"),
        ("sudo sed -n 1p /etc/shadow", "works in the sandbox"),
        ("sudo curl http://shop/", "works in the sandbox"),
        ("sudo ssh nas uptime", "works in the sandbox"),
        ("sudo psql -h db -c 'SELECT 1'", "works in the sandbox"),
        ("sudo ps auxe", "for no tier"),
        ("sudo sudo dmesg", "works in the sandbox"),
        ("sudo git status", "works in the sandbox"),
        ("sudo rm /tmp/x", "writes outside"),
        ("sudo rm ../x", "writes outside"),
        ("sudo cp /etc/shadow x", "writes outside"),
        ("sudo cp x /etc/cron.d/x", "writes outside"),
        ("sudo ln -s /etc/shadow x", "writes outside"),
        ("sudo mv x /srv/shop/../other", "writes outside"),
        ("sudo sed -i s/a/b/ /etc/passwd", "writes outside"),
        ("sudo tee /etc/cron.d/x", "writes outside"),
        ("sudo rm /srv/shopping", "writes outside"),
    ],
)
def test_sudo_is_for_one_program_that_needs_it(command, rule):
    decision = judge(command, 3)

    assert (decision.verdict, decision.rule) == (DENY, rule)
    assert decision.reason


@each_row(
    ("command", "cwd", "verdict"),
    [
        ("sudo rm x", WORKDIR, ALLOW),
        ("sudo rm a/../x", WORKDIR, ALLOW),
        ("sudo rm x", f"{WORKDIR}/sub", ALLOW),
        ("sudo rm ../x", f"{WORKDIR}/sub", ALLOW),
        ("sudo rm x", "/etc", DENY),
        ("sudo rm /data/x", "/etc", ALLOW),
        ("sudo cp x /data", WORKDIR, ALLOW),
    ],
)
def test_files_of_the_working_directory_and_granted_paths_may_be_changed(command, cwd, verdict):
    granted = grants_for("write:/data")

    assert judge(command, 3, cwd, grants=granted).verdict is verdict


@each_row(
    ("command", "verdict"),
    [
        ("sudo rm -rf /data/cache/old", ALLOW),
        ("sudo truncate -s 0 /data/app.log", ALLOW),
        ("sudo mkdir -p /data/cache", ALLOW),
        ("sudo find /data -type f -mtime +7 -delete", ALLOW),
        ("sudo find /data /srv/shop -delete", DENY),
        ("sudo find / -delete", DENY),
        ("sudo find -delete", DENY),
        ("sudo find -L -delete", DENY),
        ("sudo find /data -delete -exec rm x ;", DENY),
        ("sudo rm -rf /data", ALLOW),
        ("sudo rm -rf /data/../etc", DENY),
        ("sudo rm x", DENY),
        ("sudo tee /data/x", DENY),
        ("sudo chown pat /data/x", DENY),
        ("sudo cp /data/a /data/b", DENY),
    ],
)
def test_tier_2_clears_files_of_root_only_where_the_operator_names_the_path(command, verdict):
    decision = judge(command, 2, grants=grants_for("write:/data"))

    assert decision.verdict is verdict
    assert (decision.grant == "files") is (verdict is ALLOW)


@each_row(
    ("command", "rule"),
    [
        ("sudo logrotate -f /etc/logrotate.d/shop", "understood"),
        ("sudo logrotate /etc/logrotate.conf", "understood"),
        ("sudo logrotate -f /srv/shop/logrotate.conf", "not understood"),
        ("sudo logrotate -f /etc/logrotate.d/../../srv/shop/x", "not understood"),
        ("sudo logrotate -m /srv/shop/x /etc/logrotate.conf", "not understood"),
        ("sudo /etc/init.d/../../srv/shop/x restart", "not understood"),
        ("sudo fuser -k 80/tcp", "not understood"),
        ("sudo DEBIAN_FRONTEND=x dmesg", "not understood"),
    ],
)
def test_a_program_of_root_reads_settings_of_the_system_alone(command, rule):
    assert judge(command, 2).rule == rule


def test_a_working_directory_that_is_the_root_grants_nothing():
    assert judge("sudo rm /etc/x", 3, "/", workdir="/").rule == "writes outside"


def test_a_denial_says_what_to_do_instead():
    assert judge("systemctl restart nginx").reason.endswith("Ask for escalation and say why.")
    assert "Leave it to a person" in judge("reboot", 3).reason
    assert "the option -K" in judge("curl -K x http://shop/", 3).reason
    assert "write:/etc/x" in judge("sudo rm /etc/x", 3).reason
    assert "`python3`" in judge("sudo python3 x", 3).reason


def test_decides_as_tier_1_in_a_dry_run():
    decision = judge("systemctl restart nginx", 3, changes_nothing=True)

    assert (decision.verdict, decision.rule) == (DENY, "needs Tier 2")
    assert "report what you would have done" in decision.reason
    assert judge("sudo dmesg", 3, changes_nothing=True).verdict is ALLOW


@each_row(
    ("command", "grant"),
    [
        ("curl http://shop/", "network"),
        ("ping -c 1 db", "network"),
        ("ps aux", "processes"),
        ("ssh nas uptime", "ssh"),
        ("systemctl status nginx", "bus"),
        ("dmesg", "host"),
        ("sudo systemctl status nginx", "host"),
        ("sudo rm x", "host"),
    ],
)
def test_names_the_missing_grant(command, grant):
    decision = judge(command, 3, grants=grants_for(f"-{grant}"))

    assert (decision.verdict, decision.rule) == (DENY, f"grant {grant} is missing")
    assert f"`{grant}`" in decision.reason


def test_grants_of_this_host_are_not_needed_elsewhere():
    only_ssh = Grants(names=frozenset({"ssh"}))

    assert judge("ssh nas docker ps", grants=only_ssh).verdict is ALLOW
    assert judge("ssh nas sudo dmesg", grants=only_ssh).verdict is ALLOW


def test_lists_actions_changes_and_effects_in_plain_form():
    decision = judge("ssh nas 'docker --context x restart web; ls -l'", 2)

    assert decision.actions == ("docker restart web", "ls -l")
    assert decision.changes == ("docker restart web",)
    assert [(effect.kind, effect.service, effect.action) for effect in decision.effects] == [
        ("restart", "web", "docker restart web")
    ]


def test_a_look_changes_nothing():
    decision = judge("sudo dmesg")

    assert (decision.actions, decision.changes, decision.effects) == (("dmesg",), (), ())


@each_row(
    ("command", "verdict"),
    [
        ("systemctl restart nginx", ASK),
        ("systemctl --user restart nginx", ASK),
        ("systemctl restart --no-block nginx", ASK),
        ("sudo systemctl restart nginx", ASK),
        ("ssh nas systemctl restart nginx", ASK),
        ("ssh nas 'uptime; sudo systemctl restart nginx'", ASK),
        ("/usr/bin/systemctl restart nginx", ASK),
        ("systemctl status nginx", ALLOW),
        ("systemctl reload nginx", ALLOW),
        ("systemctl enable nginx", DENY),
    ],
)
def test_every_spelling_of_what_the_operator_named_is_asked_for(command, verdict):
    decision = judge(command, 2, ask=("Bash(systemctl restart:*)",))

    assert decision.verdict is verdict
    if verdict is ASK:
        assert decision.rule == "asked by Bash(systemctl restart:*)"
        assert decision.argv


@each_row(
    ("command", "rule"),
    [
        ("systemctl --user restart nginx", "denied by Bash(systemctl restart:*)"),
        ("sudo systemctl restart nginx", "denied by Bash(systemctl restart:*)"),
        ("ssh nas docker container restart web", "denied by Bash(docker restart:*)"),
        ("ssh nas 'ls; docker -D restart web'", "denied by Bash(docker restart:*)"),
        ("ssh nas rm -f -r /", "denied by Bash(rm -rf /:*)"),
        ("doas dmesg", "denied by Bash(doas:*)"),
        ("ssh evil uptime", "denied by Bash(ssh evil:*)"),
        ("ssh -p 22 evil uptime", "denied by Bash(ssh evil:*)"),
        ("curl -sX POST http://shop/", "denied by Bash(curl -X POST:*)"),
    ],
)
def test_a_denied_rule_matches_every_order_and_inside_sudo_and_ssh(command, rule):
    rules = (
        "Bash(systemctl restart:*)",
        "Bash(docker restart:*)",
        "Bash(rm -rf /:*)",
        "Bash(doas:*)",
        "Bash(ssh evil:*)",
        "Bash(curl -X POST:*)",
    )

    assert judge(command, 3, denied=rules).rule == rule


@each_row(
    ("command", "verdict"),
    [
        ("systemctl status nginx", ALLOW),
        ("systemctl --no-pager status nginx", ALLOW),
        ("sudo systemctl status nginx", ALLOW),
        ("ssh nas systemctl status nginx", ALLOW),
        ("ssh nas uptime", DENY),
        ("ssh web 'df; uptime'", ALLOW),
        ("systemctl is-active nginx", DENY),
        ("curl http://shop/", DENY),
    ],
)
def test_narrower_rules_of_an_operator_allow_nothing_else(command, verdict):
    allowed = ("Read", "Bash(systemctl status:*)", "Bash(ssh web:*)")

    assert judge(command, allowed=allowed).verdict is verdict


def test_without_bash_among_the_tools_nothing_runs():
    assert judge("uptime", allowed=("Read",)).rule == "not among the allowed commands"


@each_row(
    "command",
    ["cat /etc/shadow", "docker ps", "docker restart web", "ansible-playbook x.yml", "rm x"],
)
def test_a_program_that_is_no_shim_is_not_run_for_the_sandbox(command):
    """Whoever speaks to the runner's socket gets no other program than the shims."""
    assert judge(command, 3).rule == "works in the sandbox"


@each_row(
    ("command", "verdict", "grant"),
    [
        ("docker restart web", ALLOW, "docker"),
        ("/drill/bin/docker restart web", ALLOW, "docker"),
        ("ansible-playbook -i hosts web.yml", ALLOW, "ssh"),
        ("kubectl get pods", DENY, ""),
        ("cat x", DENY, ""),
    ],
)
def test_the_stand_ins_of_a_drill_are_shims(command, verdict, grant):
    decision = judge(command, 3, programs_in=("/drill/bin",))

    assert (decision.verdict, decision.grant) == (verdict, grant)


def test_a_denied_vector_names_the_lowest_tier_that_would_run_it():
    others = [policy(2), policy(3)]

    assert judged(policy(1), others, request("systemctl restart nginx")).allowed_from == 2
    assert judged(policy(1), others, request("systemctl enable nginx")).allowed_from == 3
    assert judged(policy(1), others, request("reboot")).allowed_from == 0
    assert judged(policy(1), others, request("uptime")).allowed_from == 0


@each_row(
    "argv",
    [
        (),
        ("",),
        ("curl", "\0"),
        ("curl", "\ud800"),
        ("curl", "x" * 200_000),
        ("./curl", "http://shop/"),
        ("/srv/shop/curl", "http://shop/"),
        ("no-such-program",),
        ("ssh", "nas", "a;" * 20_000),
        ("sudo",) * 2000,
        ("ssh", "nas", "sh -c " * 500),
    ],
)
def test_what_is_no_plain_vector_is_denied(argv):
    decision = decide(policy(3), ExecRequest(argv=argv, cwd="/"))

    assert decision.verdict is DENY
    assert decision.reason


def test_denies_when_the_decision_fails():
    decision = decide(policy(3, grants=None), request("ps aux"))

    assert (decision.verdict, decision.rule) == (DENY, "could not be judged")


def test_the_variables_of_the_request_reach_the_program_if_they_are_plain():
    asked = "psql -c 'SELECT 1'"
    plain = decide(policy(), request(asked, PGHOST="db", PGPASSWORD="x", PGOPTIONS="-c x"))
    odd = decide(policy(), request(asked, PGDATABASE="x options=evil"))
    path = decide(policy(), request("uptime", TZ="/srv/shop/evil"))

    assert dict(plain.environment) == {
        "PGHOST": "db",
        "PGOPTIONS": "-c default_transaction_read_only=on",
    }
    assert (odd.rule, path.rule) == ("not understood", "not understood")


def test_no_password_and_no_path_is_passed_on():
    for name in PASSED_VARIABLES:
        assert not {"PASSWORD", "TOKEN", "PATH", "OPTIONS", "PRELOAD"} & set(name.split("_"))
        assert not name.endswith(("PASSWORD", "PASSFILE", "OPTIONS", "PWD"))


# Without a sandbox every program is judged.


@each_row(
    ("command", "lowest"),
    [
        ("cat README.md", 1),
        ("docker ps", 1),
        ("curl -s http://shop/", 1),
        ("docker restart web", 2),
        ("touch x", 2),
        ("sed -i s/a/b/ f", 2),
        ("curl -o page http://shop/", 2),
        ("touch /tmp/x", 4),
        ("curl -o /tmp/page http://shop/", 4),
        ("kubectl apply -f x.yml", 3),
        ("python3 -c 1", 4),
        ("sudo rm x", 4),
        ("./script", 4),
        ("sh -c ls", 4),
    ],
)
def test_without_a_sandbox_every_program_must_be_understood(command, lowest):
    allowed = [tier for tier in (1, 2, 3) if judge(command, tier, sandboxed=False).verdict is ALLOW]

    assert allowed == list(range(lowest, 4))


def test_without_a_sandbox_git_runs_only_where_the_model_cannot_write_its_settings():
    verdicts = [judge("git log", tier, sandboxed=False).verdict for tier in (1, 2, 3)]

    assert verdicts == [ALLOW, DENY, DENY]


def test_the_shims_are_the_programs_that_need_a_grant():
    named = """
        curl wget ping ping6 dig host nslookup nc ncat openssl traceroute tracepath mtr whois
        snmpget snmpwalk ntpq chronyc psql pg_isready mysql mariadb mysqladmin redis-cli gh ps top
        pgrep pidof ss netstat lsof fuser ip free vmstat iostat mpstat uptime w who last df du
        findmnt lsblk lscpu lsmod sensors numactl ssh systemctl journalctl service loginctl
        timedatectl hostnamectl resolvectl sudo doas crontab dmesg smartctl zpool zfs mdadm lvs vgs
        pvs iptables nft ufw nginx apachectl apt-get apt dpkg dnf yum apk snap kill pkill killall
        sysctl mount umount swapon swapoff fail2ban-client certbot wg tailscale virsh reboot
        shutdown
    """
    sandboxed = (
        "sh bash awk python3 xargs cat grep tar docker kubectl helm git rsync scp sqlite3 rm"
    )

    assert [name for name in named.split() if name not in SHIMS] == []
    assert [name for name in sandboxed.split() if name in SHIMS] == []


READ_ONLY = "PGOPTIONS=-c default_transaction_read_only=on"


@each_row(
    ("command", "lowest", "executed"),
    [
        ("psql -l", 1, ("env", READ_ONLY, "psql", "-X", "--no-password", "-l")),
        (
            "psql -c 'select count(*) from a'",
            1,
            ("env", READ_ONLY, "psql", "-X", "--no-password", "-c", "select count(*) from a"),
        ),
        ("psql -c 'VACUUM a'", 3, ("psql", "-X", "--no-password", "-c", "VACUUM a")),
    ],
)
def test_another_user_reads_the_database_of_this_host(command, lowest, executed):
    decisions = [judge(f"sudo -u postgres {command}", tier) for tier in (1, 2, 3)]

    assert [one.verdict is ALLOW for one in decisions] == [tier >= lowest for tier in (1, 2, 3)]
    assert decisions[-1].argv == ("sudo", "-n", "-u", "postgres", "--", *executed)
    assert decisions[-1].grant == "host"


@each_row(
    ("command", "rule"),
    [
        ("sudo -u postgres psql -h db -l", "not as another user"),
        ("sudo -u postgres psql -Ath db -l", "not as another user"),
        ("sudo -u postgres psql -d postgres://db/a -l", "not as another user"),
        ("sudo -u postgres psql -c 'drop table a'", "for no tier"),
        ("sudo -u www git status", "not as another user"),
        ("sudo psql -l", "works in the sandbox"),
    ],
)
def test_another_user_reaches_nothing_else(command, rule):
    assert judge(command, 3).rule == rule
