"""Properties of every decision, for generated commands."""

from __future__ import annotations

import shlex

from hypothesis import given, settings
from hypothesis import strategies as st

from sessions_app.models.session import Verdict
from tests.escalation.command_policy.overheard import ran_by_bash
from tests.escalation.command_policy.small_programs import judged

PARTS = st.sampled_from(
    ["ls", "docker ps", "docker restart web", "docker rm web", "sudo systemctl restart web"]
    + ["./x", "$x", "python3 -c 1", "curl http://x", "echo x > y", "ssh host docker rm web"]
    + ["git status", "cat <<EOF\nx\nEOF", "x=1", "docker $y", "tee /etc/x"]
)
WRAPPERS = st.sampled_from(
    ["timeout 5 {}", "env {}", "nice {}", "sh -c {quoted}", "bash -c {quoted}", "eval {quoted}"]
    + ["( {} )", "{{ {}\n}}", "{} | cat", "true && {}", "echo $( {} )", "if true; then {}\nfi"]
    + ["bash <<< {quoted}", "find . -exec sh -c {quoted} \\;", "xargs {}", "f() {{ {}\n}}; f"]
    + ["echo {quoted} | sh", "watch {quoted}", "command {}", "trap {quoted} EXIT"]
)


@settings(max_examples=300, deadline=None)
@given(part=PARTS, wrappers=st.lists(WRAPPERS, max_size=3), tier=st.sampled_from([1, 2, 3]))
def test_no_wrapper_makes_a_denied_command_allowed(part, wrappers, tier):
    wrapped = part
    for wrapper in wrappers:
        wrapped = wrapper.format(wrapped, quoted=shlex.quote(wrapped))

    plain, decision = judged(part, tier), judged(wrapped, tier)

    assert not (plain.verdict is Verdict.DENY and decision.verdict is Verdict.ALLOW)
    assert decision.grants <= plain.grants or plain.verdict is not Verdict.ALLOW


@settings(max_examples=300, deadline=None)
@given(
    parts=st.lists(PARTS, min_size=1, max_size=4),
    place=st.integers(min_value=0, max_value=4),
    joined=st.sampled_from(["\n", "; ", " && "]),
    tier=st.sampled_from([1, 2, 3]),
)
def test_adding_what_is_not_understood_never_opens_a_grant(parts, place, joined, tier):
    more = [*parts[:place], "./unknown", *parts[place:]]
    text = "\n".join(more) if any("EOF" in part for part in parts) else joined.join(more)

    decision = judged(text, tier)

    assert decision.verdict is not Verdict.ALLOW
    assert decision.grants == frozenset()


@settings(max_examples=300, deadline=None)
@given(parts=st.lists(PARTS, min_size=1, max_size=3), wrapper=WRAPPERS)
def test_what_a_tier_allows_the_next_one_allows(parts, wrapper):
    text = "\n".join(parts)
    wrapped = wrapper.format(text, quoted=shlex.quote(text))
    verdicts = [judged(wrapped, tier, denied=()).verdict for tier in (1, 2, 3)]

    allowed = [verdict is Verdict.ALLOW for verdict in verdicts]
    assert allowed == sorted(allowed)


@settings(max_examples=300, deadline=None)
@given(command=st.text(max_size=80), tier=st.sampled_from([1, 2, 3]), sandboxed=st.booleans())
def test_decides_on_every_text(command, tier, sandboxed):
    decision = judged(command, tier, sandboxed=sandboxed)

    assert decision.rule
    assert decision.verdict is Verdict.ALLOW or decision.reason


PIECES = st.sampled_from(
    [
        "docker ps",
        "docker restart web",
        "ls",
        "bash",
        "bash -s",
        "bash -c ",
        "eval ",
        "exec ",
        "cat",
    ]
    + ["head -n 1", "read x", "x=restart", "x=ps", "docker $x web", '"$x"', "'docker restart web'"]
    + [
        "'docker ps'",
        "echo 'docker restart web'",
        " | bash",
        "; ",
        "\n",
        "&& ",
        "(",
        ")",
        "{ ",
        "; }",
    ]
    + ["<<EOF\n", "\nEOF\n", "<<'Z'\n", "\nZ\n", "<<< ", "< f", "3<<EOF\n", "xargs ", "timeout 5 "]
    + [
        "env A=1 ",
        "find . -exec ",
        " \\;",
        "f() { ",
        "f",
        "for x in restart ps; do ",
        "; done",
        "$(",
    ]
    + [
        "while read x; do ",
        "if true; then ",
        "; fi",
        "trap ",
        " EXIT",
        "coproc ",
        '"$@"',
        "$((",
        "))",
    ]
    + ["x='a[$(docker restart web)]'", "[[ ", " ]]", " -eq 1", "[ -v ", " ]", "${x:-restart}"]
    + [
        "command ",
        "time ",
        "> /dev/null",
        "&> /dev/null ",
        "|& bash",
        "docker() { ",
        "export ",
        "'",
        '"',
    ]
)
PROGRAMS = "bash cat head xargs env timeout find"


@settings(max_examples=600, deadline=None)
@given(pieces=st.lists(PIECES, min_size=1, max_size=7))
def test_bash_restarts_nothing_out_of_what_tier_1_allows(tmp_path_factory, pieces):
    text = " ".join(pieces)
    directory = tmp_path_factory.mktemp("work")
    (directory / "f").write_text("docker restart web\n")
    allowed = judged(text, denied=()).verdict is Verdict.ALLOW

    log = directory.parent / "log"
    ran = ran_by_bash(text, log, directory, PROGRAMS) if allowed else []

    assert [argv for argv in ran if argv[:2] == ("docker", "restart")] == []


def test_a_restart_inside_would_be_overheard(tmp_path):
    text = "echo docker restart web | timeout 5 bash -c bash"

    ran = ran_by_bash(text, tmp_path / "log", tmp_path, PROGRAMS)

    assert ran == [("docker", "restart", "web")]
