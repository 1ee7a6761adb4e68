"""Programs that ask the network, and clients of forges."""

from __future__ import annotations

from escalation.command_policy.understanding import FULL, LOOK, NEVER, SAFE
from sessions_app.models.session import Verdict
from tests.escalation.command_policy.vectors import (
    Row,
    assert_is,
    assert_not_understood,
    judge,
    understood,
)
from tests.tables import each_row

LOOKS = [
    "ssh-keyscan -t ed25519 nas",
    "dig +short example.org @1.1.1.1",
    "dig -t MX example.org",
    "host -t A example.org 1.1.1.1",
    "nslookup example.org",
    "nslookup -querytype=MX example.org",
    "nc -zv -w 2 localhost 80",
    "nc -zvw3 localhost 80-90",
    "ncat -z localhost 80",
    "netcat -zu localhost 53",
    "traceroute -n example.org",
    "tracepath example.org",
    "mtr --report -c 3 example.org",
    "mtr -rwc 3 example.org",
    "whois -h whois.example.org example.org",
    "snmpget -v 2c -c public switch 1.3.6.1.2.1.1.3.0",
    "snmpwalk -v2c -c public switch",
    "ntpq -pn",
    "ntpq -c rv -c 'readvar 0 offset' clock",
    "chronyc -n sources",
    "chronyc tracking",
    "pg_isready -h db -p 5432",
    "getent hosts localhost",
]


@each_row("command", LOOKS)
def test_a_question_is_a_look_with_the_network(command):
    assert_is(Row(command, command.split()[0], LOOK, "network"))


@each_row(
    "command",
    [
        "ping -f example.org",
        "ping -i 0 example.org",
        "ping -i0.001 example.org",
        "ping -l 60000 example.org",
        "ping 'a b'",
        "dig -f /etc/passwd",
        "dig -4f /etc/passwd",
        "dig -k key example.org",
        "dig 'a;b'",
        "host '$(evil)'",
        "nslookup",
        "nslookup -",
        "nslookup -type=A",
        "nc localhost 80",
        "nc -zv -e sh localhost 80",
        "nc -zc sh localhost 80",
        "ncat -z --exec sh localhost 80",
        "ncat -z --sh-exec id localhost 80",
        "nc -l 80",
        "nc -zl 80",
        "mtr example.org",
        "mtr -rF /etc/passwd",
        "whois -h 127.0.0.1 -p 6379 FLUSHALL",
        "whois -h 127.0.0.1:6379 FLUSHALL",
        "whois a b",
        "snmpget -Lf /etc/x -v 2c -c public switch 1",
        "snmpwalk -M /srv/shop -v 2c -c public switch",
        "snmpset -v 2c -c private switch 1 i 1",
        "ntpq",
        "ntpq -i",
        "ntpq -c ':config server evil'",
        "ntpq -c 'saveconfig /etc/x'",
        "ntpq -p -c passwd",
        "chronyc",
        "chronyc makestep",
        "chronyc -m tracking makestep",
        "chronyc -f /srv/shop/x sources",
        "getent -s ../evil passwd",
        "nmap localhost",
    ],
)
def test_what_could_do_more_is_not_understood(command):
    assert_not_understood(command)


@each_row(
    "command",
    [
        "openssl x509 -noout -dates -subject -issuer",
        "openssl x509 -in site.crt -noout -enddate -checkend 86400",
        "openssl x509 -text",
        "openssl verify -CAfile ca.crt site.crt",
        "openssl ciphers -v",
        "openssl version",
    ],
)
def test_openssl_reads_certificates_without_a_grant(command):
    found = judge(command)

    assert (found.verdict, found.grant, found.changes) == (Verdict.ALLOW, "", ())


def test_s_client_gets_no_input_because_it_would_send_it():
    found = understood("openssl s_client -connect db:6380 -servername db -showcerts")

    assert (found.action, found.level, found.grant) == ("openssl s_client", LOOK, "network")
    assert found.no_input
    assert judge("openssl s_client -connect db:6380").no_input
    assert not judge("ping -c 1 db").no_input


@each_row(
    "command",
    [
        "openssl enc -in /etc/shadow",
        "openssl s_client -connect x:443 -keylogfile /etc/x",
        "openssl s_client -connect x:443 -proxy y:1",
        "openssl s_client -connect x:443 -engine evil",
        "openssl s_client -connect x:443 -cert c -key k",
        "openssl s_client -connect x:443 -sess_out /etc/x",
        "openssl req -engine evil",
        "openssl x509 -in a -out /etc/x",
        "openssl x509 -req -signkey k",
        "openssl x509 -engine evil -noout",
        "openssl verify -engine evil x",
        "openssl",
    ],
)
def test_other_commands_of_openssl_need_no_grant(command):
    assert_not_understood(command)


FORGE = [
    ("gh pr list -R a/b", "gh pr list", LOOK),
    ("gh -R a/b pr view 5", "gh pr view", LOOK),
    ("gh --version", "gh version", LOOK),
    ("gh pr create --title x --body y", "gh pr create", SAFE),
    ("glab mr create --title x", "glab mr create", SAFE),
    ("gh -R r pr merge 5", "gh pr merge", FULL),
    ("gh pr -R r merge 5", "gh pr merge", FULL),
    ("gh repo delete a/b", "gh repo delete", NEVER),
    ("gh api repos/a/b", "gh api", LOOK),
    ("gh api -X get repos/a/b", "gh api", LOOK),
    ("gh api -X DELETE repos/a/b", "gh api", FULL),
    ("gh api -X DELETE -X GET repos/a/b", "gh api", FULL),
    ("gh api repos/a/b/issues -f title=x", "gh api", FULL),
    ("gh api graphql -X GET", "gh api", FULL),
    ("gh api -H 'X-HTTP-Method-Override: DELETE' repos/a/b", "gh api", FULL),
]


@each_row(("command", "action", "level"), FORGE)
def test_a_verb_of_a_forge_has_its_level(command, action, level):
    assert_is(Row(command, action, level, "network"))


@each_row(
    "command",
    [
        "gh",
        "gh extension exec evil",
        "gh alias set x '!evil'",
        "gh pr view --web",
        "gh pr view -w",
        "gh api repos/a -X GET -F x=@/etc/passwd",
        "gh api repos/a -H @/etc/passwd",
        "gh auth token",
        "gh api https://elsewhere/x",
        "gh api --hostname elsewhere x",
        "gh api --input file x",
        "gh api --verbose x",
        "gh api x --jq '$ENV.GH_TOKEN'",
        "gh pr list --json title -q env",
        "gh -R elsewhere/a/b pr list",
        "gh pr list --repo elsewhere/a/b",
        "gh pr list --repo=elsewhere/a/b",
    ],
)
def test_what_runs_programs_or_leaves_the_forge_is_not_understood(command):
    assert_not_understood(command)
