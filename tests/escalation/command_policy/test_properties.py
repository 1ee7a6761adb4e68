"""What holds for every vector."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from escalation.command_policy.decision import BROKERED, ExecRequest, decide
from escalation.command_policy.grants import DOCKER, FILES, HOST, KUBE, NAMES, PART_OF, Grants
from escalation.command_policy.programs import ELSEWHERE, GRAMMARS, SHIMS
from sessions_app.models.session import Verdict
from tests.escalation.command_policy.vectors import policy, request
from tests.tables import each_row

VECTORS = [
    "curl -s -o page http://shop/",
    "curl -d a=1 http://shop/",
    "wget -qO- http://shop/",
    "ping -c 1 db",
    "dig +short db",
    "nc -zv db 5432",
    "psql -h db -c 'SELECT 1'",
    "redis-cli -h cache info",
    "ps aux",
    "ss -tlnp",
    "ip -br addr",
    "systemctl status nginx",
    "systemctl restart nginx",
    "journalctl -u nginx -n 5",
    "service nginx restart",
    "dmesg -T",
    "kill -9 4711",
    "zpool status tank",
    "apt-get install -y jq",
    "sysctl -w vm.swappiness=1",
    "sudo systemctl restart nginx",
    "sudo rm -rf build",
    "sudo dmesg",
    "ssh nas uptime",
    "ssh -p 22 nas 'docker restart web; df -h'",
    "ssh nas sudo systemctl restart nginx",
    "ssh nas tee /etc/motd",
]
PROGRAMS = sorted({*GRAMMARS, *ELSEWHERE, "python3", "./x", "/usr/bin/curl"})
ODD = """
    -c -e -f -o -v -X POST -T -G -i --all -- - -n -s -9 -0 restart status list show web nginx
    http://x /etc/shadow ../x /srv/shop/x --unix-socket -K --sender --server . ; | && sudo ssh nas
    docker rm
"""
WORDS = st.one_of(st.sampled_from(ODD.split()), st.text(max_size=8))
ARGVS = st.one_of(
    st.sampled_from([request(vector).argv for vector in VECTORS]),
    st.builds(
        lambda name, words: (name, *words), st.sampled_from(PROGRAMS), st.lists(WORDS, max_size=6)
    ),
    st.builds(
        lambda vector, word, place: (
            *vector[: place % len(vector) + 1],
            word,
            *vector[place % len(vector) + 1 :],
        ),
        st.sampled_from([request(vector).argv for vector in VECTORS]),
        WORDS,
        st.integers(0, 9),
    ),
)
TIERS = st.sampled_from([1, 2, 3])


def asked(argv: tuple[str, ...], cwd: str = "/srv/shop") -> ExecRequest:
    return ExecRequest(argv=argv, cwd=cwd)


@settings(max_examples=500, deadline=None)
@given(ARGVS, TIERS, st.booleans(), st.sampled_from(["/srv/shop", "/", "", "x"]))
def test_every_vector_is_decided_on(argv, tier, sandboxed, cwd):
    decision = decide(policy(tier, sandboxed=sandboxed), asked(argv, cwd))

    assert decision.rule not in ("", "could not be judged")
    assert bool(decision.reason) == (decision.verdict is Verdict.DENY)
    assert bool(decision.argv) == (decision.verdict is Verdict.ALLOW)


@settings(max_examples=500, deadline=None)
@given(ARGVS, TIERS)
@example(("sudo", "docker"), 1)
@example(("killall", "nginx"), 2)
def test_an_allowed_vector_is_executed_with_the_words_of_the_model(argv, tier):
    decision = decide(policy(tier), asked(argv))

    program = next((word for word in argv if word not in ("sudo", "doas", "-n", "--")), "")
    if decision.verdict is Verdict.ALLOW and program in ("pkill", "killall"):
        # The processes that they mean are signalled by their numbers; here there are none.
        assert decision.argv[-1] == "false"
    elif decision.verdict is Verdict.ALLOW:
        assert decision.argv[0] in {*SHIMS, *BROKERED}
        assert decision.grant in {*NAMES, *PART_OF}
        words = argv[1:]
        if argv[0] in ("ssh", "sudo", "doas"):
            words = words[-1:]
        assert decision.argv[len(decision.argv) - len(words) :] == words


@settings(max_examples=500, deadline=None)
@given(ARGVS)
def test_what_a_tier_allows_the_next_one_allows(argv):
    allowed = [decide(policy(tier), asked(argv)).verdict is Verdict.ALLOW for tier in (1, 2, 3)]

    assert allowed == sorted(allowed)


@settings(max_examples=300, deadline=None)
@given(ARGVS, TIERS, st.sets(st.sampled_from(NAMES)))
def test_no_vector_gets_a_grant_that_the_policy_lacks(argv, tier, names):
    decision = decide(policy(tier, grants=Grants(names=frozenset(names))), asked(argv))

    if decision.verdict is Verdict.ALLOW:
        assert PART_OF.get(decision.grant, decision.grant) in names


@settings(max_examples=300, deadline=None)
@given(ARGVS, TIERS)
def test_a_dry_run_allows_what_tier_1_allows(argv, tier):
    dry = decide(policy(tier, changes_nothing=True), asked(argv))

    assert (dry.verdict, dry.argv) == (
        (first := decide(policy(1), asked(argv))).verdict,
        first.argv,
    )
    assert dry.verdict is Verdict.DENY or not dry.changes


@settings(max_examples=300, deadline=None)
@given(ARGVS, TIERS, st.sampled_from(["Bash(curl:*)", "Bash(sudo:*)", "Bash(docker restart:*)"]))
def test_a_rule_never_allows_more(argv, tier, rule):
    plain = decide(policy(tier), asked(argv)).verdict

    assert not (plain is Verdict.DENY and decide(policy(tier, denied=(rule,)), asked(argv)).argv)
    assert not (plain is Verdict.DENY and decide(policy(tier, ask=(rule,)), asked(argv)).argv)


@settings(max_examples=300, deadline=None)
@given(ARGVS)
def test_root_writes_nothing_but_in_its_sandbox_of_files(argv):
    decision = decide(policy(3), asked(("sudo", *argv)))

    if decision.verdict is Verdict.ALLOW:
        is_brokered = decision.grant in (DOCKER, KUBE)
        assert is_brokered or decision.grant in (HOST, FILES)
        assert is_brokered == (decision.argv[:2] != ("sudo", "-n"))


HOSTILE = [
    ("curl -s http://shop/", ["-K/x", "--config=x", "--unix-socket=/x", "-xp", "--next", "-n"]),
    ("curl -G http://shop/", ["--upload-file=x", "-Tx", "-Fa=b", "--proxy=x"]),
    ("wget -q http://shop/", ["--post-data=x", "-ex", "--input-file=x", "-ix", "--config=x"]),
    ("ping -n db", ["-f", "-g"]),
    ("ss -t -l", ["-K", "--kill", "-D/x", "-F/x"]),
    ("fuser -v /srv", ["-k", "-KILL", "-i"]),
    ("systemctl restart nginx", ["-Hx", "--host=x", "-Mx", "--machine=x", "--root=/x"]),
    ("journalctl -f nginx", ["--cursor-file=/x", "-Mx", "--root=/x"]),
    ("dmesg -T", ["-C", "-c", "--clear", "-D", "-F/x"]),
    ("kill 4711", ["-0x", "-s", "%1", "-4711x"]),
    ("apt-get install jq", ["-ox", "-cx", "--option=x", "./x.deb"]),
    ("psql -l db", ["-fx", "-ox", "-Lx", "-vx=y", "--file=x"]),
    ("ssh nas uptime", ["-A", "-Lx", "-Rx", "-Dx", "-Fx", "-Sx", "-Ex", "-ix", "-oProxyCommand=x"]),
    ("sudo dmesg", ["-E", "-i", "-s", "A=b", "sh"]),
    ("nginx -t", ["-cx", "-gx", "-px"]),
    ("mdadm --detail /dev/md0", ["-S", "--stop", "-C", "--create"]),
]


@each_row(("command", "words"), HOSTILE)
def test_a_hostile_word_anywhere_denies(command, words):
    argv = request(command).argv
    assert decide(policy(3), asked(argv)).verdict is Verdict.ALLOW
    for word in words:
        # Behind its host ssh takes options, behind its command none.
        for place in range(1, len(argv) + (argv[0] != "ssh")):
            moved = (*argv[:place], word, *argv[place:])
            assert decide(policy(3), asked(moved)).verdict is Verdict.DENY, moved
