from __future__ import annotations

import time

import pytest

from escalation.command_policy.decision import decide
from sessions_app.models.session import Verdict
from tests.escalation.command_policy.small_programs import judged, policy, understand, with_grants
from tests.tables import each_row

SPELLINGS = [
    "docker restart web",
    "docker  restart   web",
    "ls && docker restart web",
    "ls; docker restart web",
    "false || docker restart web",
    "docker restart web & ls",
    "if true; then docker restart web; fi",
    "env A=1 docker restart web",
    "A=1 docker restart web",
    "command docker restart web",
    "timeout 5 docker restart web",
    "nohup docker restart web",
    "nice -n 5 docker restart web",
    "exec docker restart web",
    "echo web | xargs docker restart",
    '"docker" restart web',
    "/usr/bin/docker restart web",
    "(docker restart web)",
    "{ docker restart web; }",
    "f() { docker restart web; }; f",
    "for c in web; do docker restart $c; done",
    "dock'er' re\"start\" web",
    "sh -c 'docker restart web'",
    "bash -c 'docker restart web'",
    "bash -lc 'docker restart web'",
    "eval docker restart web",
    "eval 'docker restart web'",
    "bash <<< 'docker restart web'",
    "bash <<EOF\ndocker restart web\nEOF",
    "echo docker restart web | sh",
    "cat <<'EOF' | bash -s\ndocker restart web\nEOF",
    'D="docker restart"; $D web',
    "docker --context x restart web",
    "docker container restart web",
    "find . -exec docker restart web \\;",
    "find . -exec docker restart {} +",
    "echo web | xargs -I{} docker restart {}",
    "echo web | xargs -I{} sh -c 'docker restart web'",
    "coproc docker restart web",
    "watch docker restart web",
    "parallel docker restart ::: web",
    "parallel ::: 'docker restart web'",
    "flock /tmp/x docker restart web",
    "trap 'docker restart web' EXIT",
    "time docker restart web",
    "stdbuf -oL setsid ionice -c 3 docker restart web",
    "echo $(docker restart web)",
    "cat <(docker restart web)",
    "bash -c \"sh -c 'docker restart web'\"",
    "ssh host docker restart web",
    "ssh host 'ls; docker restart web'",
    "ssh host bash <<EOF\ndocker restart web\nEOF",
    "docker exec web docker restart web",
]


@each_row("command", SPELLINGS)
def test_every_spelling_of_a_restart_is_denied_at_tier_1(command):
    decision = judged(command)

    assert decision.verdict is Verdict.DENY
    assert decision.grants == frozenset()
    assert "docker restart" in decision.reason


@each_row("command", SPELLINGS)
def test_and_by_its_level_where_no_rule_names_it(command):
    decision = judged(command, denied=())

    assert (decision.verdict, decision.rule) == (Verdict.DENY, "needs Tier 2")


@each_row(
    "command",
    [
        "$(echo docker) restart web",
        "docker $(echo restart) web",
        "docker $verb web",
        "echo ZG9ja2VyIHJlc3RhcnQgd2Vi | base64 -d | sh",
        "python3 -c 'import os'",
        "perl -e 1",
        "bash /tmp/script.sh",
        "./script.sh",
        "scripts/deploy",
        "/home/me/bin/docker ps",
        "source x.sh",
        ". x.sh",
        'sh -c "$x"',
        "echo docker | xargs sh",
        "echo 'restart web' | xargs docker",
        "zsh -c 'docker ps'",
        "strace docker ps",
        "dock*r ps",
        "cat x | sh",
        "cat x | sh -c bash",
        "exec < x; bash",
        "eval 'exec < x'; bash",
        "trap 'exec < x' DEBUG; bash",
        "f() { exec < x; }; f; bash",
        "coproc bash",
        "cat x | bash 3<<EOF\nls\nEOF",
        "cat x | bash 3<<< ls",
        "bash <<< ls < x",
        "cat x | ( cat <<EOF && bash\ny\nEOF\n)",
        "while true; do echo ls; done | bash",
        "echo ls > >(bash)",
        "cat x | { bash; }",
        "bash <<'EOF'\nread x\ncat <<Z\ndocker ps\nZ\nEOF",
        "printf '%s' 'head -c 5; echo docker ps' | bash",
        "cat x | eval bash",
        "cat x | timeout 5 sh",
        "sh -c 'cat; bash' <<< ls",
        "find . -exec bash \\; <<< ls",
        "sh -c 'ls &>/dev/null docker ps'",
        "alias d=docker",
        "docker() { ls; }; docker ps",
    ],
)
def test_isolates_without_grants_what_is_not_understood(command):
    decision = judged(command, 3, denied=())

    assert (decision.verdict, decision.rule) == (Verdict.ISOLATE, "not understood")
    assert decision.grants == frozenset()
    assert "sandbox without grants" in decision.reason


@pytest.mark.parametrize("command", ["python3 -c 1; docker ps", "docker ps | ./x", "$x; docker ps"])
def test_gives_no_grants_when_one_part_is_not_understood(command):
    decision = judged(command)

    assert decision.verdict is Verdict.ISOLATE
    assert decision.grants == frozenset()
    assert "`docker ps`" in decision.reason


def test_denies_what_is_not_understood_without_sandbox():
    decision = judged("python3 -c 1", sandboxed=False)

    assert (decision.verdict, decision.rule) == (Verdict.DENY, "not understood")


@each_row(
    ("command", "grants"),
    [
        ("docker ps", {"docker"}),
        ("docker ps -a | grep web | wc -l", {"docker"}),
        ("curl -s http://x/; docker ps", {"docker", "network"}),
        ("ls -la /etc", set()),
        ("for c in a b; do docker inspect $c; done", {"docker"}),
        ("docker inspect $(docker ps -q)", {"docker"}),
        ("timeout 5 docker logs web 2>&1 | tail -n 5", {"docker"}),
        ("ssh host docker ps", {"ssh", "network"}),
        ("bash <<'EOF'\ncd /srv\ndocker ps\ncat x\nEOF", {"docker"}),
        ("systemctl status web > /tmp/out; cat /tmp/out", {"bus"}),
        ("echo x > /dev/null", set()),
        ("tee /tmp/x", set()),
        ("x=1", set()),
        ("git status", set()),
    ],
)
def test_what_is_understood_gets_the_grants_that_it_needs(command, grants):
    decision = judged(command)

    assert (decision.verdict, decision.reason) == (Verdict.ALLOW, "")
    assert decision.grants == grants


def test_gives_no_grants_beside_programs_that_files_name():
    assert judged("git status; docker ps").verdict is Verdict.ISOLATE


def test_lists_the_actions_in_plain_form():
    decision = judged("timeout 5 docker --context x restart web; ls -l", 2)

    assert decision.actions == ("docker restart web", "ls -l")


@each_row(
    ("command", "lowest"),
    [
        ("docker ps", 1),
        ("docker restart web", 2),
        ("systemctl restart web", 2),
        ("docker rm web", 3),
        ("docker prune", 4),
        ("echo x > /srv/app/file", 2),
        ("echo x > file", 2),
        ("tee file", 2),
        ("ssh host tee file", 3),
        ("ssh host 'echo x > /tmp/y'", 3),
        ("docker exec web ls", 1),
        ("ssh host sudo systemctl status web", 2),
    ],
)
def test_each_action_has_a_lowest_tier(command, lowest):
    allowed = [tier for tier in (1, 2, 3) if judged(command, tier).verdict is Verdict.ALLOW]

    assert allowed == [tier for tier in (1, 2, 3) if tier >= lowest]


def test_a_denial_says_what_to_do_instead():
    assert judged("docker restart web", denied=()).reason.endswith(
        "Ask for escalation and say why."
    )
    assert "Leave it to a person" in judged("docker prune", 3).reason


def test_decides_as_tier_1_in_a_dry_run():
    decision = judged("docker restart web", 3, denied=(), changes_nothing=True)

    assert (decision.verdict, decision.rule) == (Verdict.DENY, "needs Tier 2")
    assert "report what you would have done" in decision.reason
    assert judged("sudo systemctl restart web", 3, changes_nothing=True).verdict is Verdict.DENY
    assert judged("docker ps", 3, changes_nothing=True).verdict is Verdict.ALLOW


def test_names_the_missing_grant():
    decision = judged("docker ps", grants=with_grants("network"))

    assert (decision.verdict, decision.rule) == (Verdict.DENY, "grant docker is missing")
    assert "`docker`" in decision.reason


def test_grants_of_this_host_are_not_needed_elsewhere():
    assert judged("ssh host docker ps", grants=with_grants("ssh", "network")).grants == {
        "ssh",
        "network",
    }


@each_row(
    "command",
    [
        "ssh host ./x",
        "ssh host 'docker $x'",
        "ssh host 'ls; python3 -c 1'",
        "ssh host 'ls &>/dev/null docker ps'",
        "docker exec web python3 -c 1",
        "docker ps | ssh host bash",
        "docker ps | ssh host 'ls; bash'",
        "docker ps | ssh host \"sh -c 'bash'\"",
        "ssh host 'cat; bash' <<EOF\nls\nEOF",
        "ssh host < script",
    ],
)
def test_denies_on_other_hosts_what_is_not_understood(command):
    decision = judged(command, 3)

    assert (decision.verdict, decision.rule) == (Verdict.DENY, "not understood outside a sandbox")


@each_row(
    "command",
    ["", "  \n ", "x" * 1_000_001, "docker ps\0", "docker \ud800 ps"],
)
def test_denies_text_that_is_no_command(command):
    assert judged(command, 3).verdict is Verdict.DENY


@each_row(
    "command",
    [
        "(" * 5000 + "ls" + ")" * 5000,
        "$(" * 5000,
        "`" * 5000,
        '"' * 4999,
        "ls " + "a " * 10_000,
        "ls; " * 10_000,
        "x=$x" * 5000,
        "{a,b}" * 2000,
        "echo " + "{a,b}" * 30,
        "if ls; then " * 2000,
        "<<EOF " * 2000,
        "sh -c " * 2000,
        "eval " * 2000 + "ls",
        "a=1 " * 5000 + "ls",
        "ls | " * 5000 + "ls",
        "for x in a b c d; do " * 300 + "docker ps $x" + "; done" * 300,
        "'" + "\\" * 50_000 + "'",
        "[" * 5000,
        "docker $x" * 3000,
    ],
)
def test_decides_soon_on_a_huge_command_and_grants_nothing(command):
    started = time.monotonic()

    decision = judged(command, 3)

    assert time.monotonic() - started < 3
    assert decision.grants == frozenset()


def test_denies_when_the_decision_fails():
    def broken(argv):
        raise ZeroDivisionError

    decision = decide(policy(3), "ls", broken)

    assert (decision.verdict, decision.rule) == (Verdict.DENY, "could not be judged")


@pytest.mark.parametrize("directory", ["/bin", "/usr/local/sbin", "/drill/bin"])
def test_programs_of_trusted_directories_are_what_their_names_say(directory):
    decision = judged(f"{directory}/docker ps", programs_in=("/drill/bin",))

    assert decision.verdict is Verdict.ALLOW


def test_an_ordinary_decision_takes_less_than_five_milliseconds():
    commands = [
        "docker ps --format '{{.Names}}' | grep web",
        "for c in web db; do docker inspect --format '{{.State.Status}}' $c; done",
        "cd /srv/app && docker logs --tail 100 web 2>&1 | tail -n 20",
        "bash -c 'docker ps; curl -s http://localhost:8080/health'",
        "if [ -f /etc/passwd ]; then cat /etc/passwd | head -n 3; else echo none; fi",
    ]
    took = []
    for command in commands * 40:
        started = time.thread_time()
        decide(policy(1), command, understand)
        took.append(time.thread_time() - started)

    assert sorted(took)[int(len(took) * 0.99)] < 0.005
