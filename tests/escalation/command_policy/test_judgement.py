from __future__ import annotations

import pytest

from sessions_app.models.session import Verdict
from tests.escalation.command_policy.small_programs import judged, with_grants
from tests.tables import each_row


@each_row(
    ("command", "verdict"),
    [
        ("echo x > /srv/app/a", Verdict.ALLOW),
        ("echo x > a/b", Verdict.ALLOW),
        ("echo x > ../other", Verdict.DENY),
        ("echo x > /srv/app/../other", Verdict.DENY),
        ("echo x > /srv/application", Verdict.DENY),
        ("echo x > /etc/cron.d/x", Verdict.DENY),
        ("echo x > /data/sub/x", Verdict.ALLOW),
        ("echo x > /tmp/x", Verdict.ALLOW),
        ("echo x > /tmp/../etc/x", Verdict.DENY),
        ("cd /etc && echo x > passwd", Verdict.DENY),
        ("cd sub && echo x > y", Verdict.ALLOW),
        ("cd .. && echo x > y", Verdict.ISOLATE),
        ("cd $x && echo x > y", Verdict.ISOLATE),
        ("echo x > $y", Verdict.ISOLATE),
        ("echo x > ~/.bashrc", Verdict.ISOLATE),
        ("rm /srv/app/*.log", Verdict.ALLOW),
        ("rm /var/*", Verdict.DENY),
        ("find /srv/app -delete", Verdict.ALLOW),
        ("find / -name x -delete", Verdict.DENY),
        ("find . -fprint /etc/x", Verdict.DENY),
        ("sh -c 'cd /etc; echo x > passwd'", Verdict.DENY),
    ],
)
def test_files_are_written_in_the_working_directory_and_behind_grants(command, verdict):
    open_grants = with_grants("docker", writable=("/data",))

    assert judged(command, 2, grants=open_grants).verdict is verdict


def test_denied_file_names_the_grant_that_would_allow_it():
    assert "`write:/etc/x`" in judged("echo x > /etc/x", 2).reason


@pytest.mark.parametrize("command", ["echo x > /tmp/x", "rm /tmp/x", "tee /tmp/x"])
def test_temporary_directory_is_shared_without_sandbox(command):
    assert judged(command, sandboxed=False).verdict is Verdict.DENY
    assert judged(command, 2, sandboxed=False).verdict is Verdict.DENY


def test_empty_working_directory_is_not_the_file_system():
    assert judged("echo x > /etc/x", 2, workdir="/").verdict is Verdict.DENY


HOST = "sudo systemctl restart web"


def test_an_understood_command_with_sudo_runs_on_the_host():
    decision = judged(HOST, 2)

    assert (decision.verdict, decision.grants) == (Verdict.ALLOW, frozenset({"host"}))


@each_row(
    ("command", "rule"),
    [
        (f"{HOST} | cat", "host: one plain command"),
        (f"ls; {HOST}", "host: one plain command"),
        (f"{HOST} $(ls)", "host: one plain command"),
        ("sudo sh -c 'systemctl restart web'", "works in the sandbox"),
        ("su -c 'systemctl restart web'", "host: one plain command"),
        ("sudo ./x", "not understood outside a sandbox"),
        ("sudo cat /etc/shadow", "works in the sandbox"),
        ("sudo timeout 5 cat /etc/shadow", "works in the sandbox"),
        ("sudo docker restart web", "works in the sandbox"),
        ("sudo rm /tmp/x", "writes outside"),
        ("sudo systemctl disable web", "needs Tier 3"),
        ("sudo rm link/shadow", "needs Tier 3"),
        ("timeout 5 sudo systemctl restart web", "host: one plain command"),
        ("xargs sudo systemctl restart", "host: one plain command"),
        ("find . -exec sudo systemctl restart web \\;", "host: one plain command"),
    ],
)
def test_the_host_is_for_one_plain_command_that_needs_it(command, rule):
    decision = judged(command, 2)

    assert (decision.verdict, decision.rule) == (Verdict.DENY, rule)


def test_tier_1_never_acts_on_the_host():
    decision = judged("sudo systemctl status web")

    assert (decision.verdict, decision.rule) == (Verdict.DENY, "no host at Tier 1")
    assert "Leave `sudo` out" in decision.reason


def test_denies_the_host_without_its_grant():
    assert judged(HOST, 3, grants=with_grants("bus")).rule == "grant host is missing"


@each_row(
    ("command", "verdict"),
    [
        ("docker ps -a", Verdict.ALLOW),
        ("timeout 5 docker ps", Verdict.ALLOW),
        ("docker container ps", Verdict.ALLOW),
        ("docker inspect web", Verdict.DENY),
        ("docker ps; ls", Verdict.DENY),
        ("docker ps $(ls)", Verdict.DENY),
        ("./x", Verdict.DENY),
        ("$x", Verdict.DENY),
        ("sh -c 'docker ps'", Verdict.ALLOW),
    ],
)
def test_narrower_rules_of_an_operator_allow_nothing_else(command, verdict):
    assert judged(command, allowed=("Read", "Bash(docker ps:*)")).verdict is verdict


def test_without_bash_among_the_tools_nothing_runs():
    assert judged("ls", allowed=("Read",)).verdict is Verdict.DENY


@each_row(
    ("command", "verdict"),
    [
        ("git push origin main", Verdict.ALLOW),
        ("git push --force origin main", Verdict.DENY),
        ("git push origin main --force", Verdict.DENY),
        ("git push -uf origin", Verdict.DENY),
        ("git push origin +main", Verdict.DENY),
        ("git push origin $x", Verdict.ISOLATE),
        ("/usr/bin/git push origin --force", Verdict.DENY),
        ("rm -r -f /", Verdict.DENY),
        ("rm --recursive --force //", Verdict.DENY),
        ("rm -fr /srv/app/x", Verdict.ALLOW),
    ],
)
def test_rules_are_held_against_every_order_of_options(command, verdict):
    assert judged(command, 3).verdict is verdict
