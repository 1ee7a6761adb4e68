from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escalation.command_policy.shell import read
from tests.escalation.command_policy.overheard import ran_by_bash
from tests.tables import each_row


def words_of(text: str) -> list[tuple[str | None, ...]]:
    script = read(text)
    assert script.problems == ()
    return [command.words for command in script.commands if command.words]


RESTART = ("docker", "restart", "web")


@each_row(
    "text",
    [
        "docker restart web",
        "  docker   restart\tweb  ",
        "docker restart web # a comment",
        "\"docker\" 're'start web",
        "do\"ck\"er re'st'art w\\eb",
        "$'docker' $'re\\x73tart' $'\\167eb'",
        "docker {restart,web}",
        "docker 2>/dev/null restart web",
        "2>/dev/null docker restart >/dev/null web",
        "docker restart \\\n  web",
        "D=docker; $D restart web",
        'D="docker restart"; $D web',
        "D=docker && ${D} restart web",
        "A=docker; B=$A; $B restart web",
        "export c=web; docker restart $c",
        "for c in web; do docker restart $c; done",
        "! docker restart web",
        "(docker restart web)",
        "{ docker restart web; }",
        "docker restart web &",
        "if docker restart web; then :; fi > /dev/null",
        "while docker restart web; do :; done",
        "until docker restart web; do :; done",
        "case $x in a|b) docker restart web;; esac",
        "f() { docker restart web; }",
        "function f { docker restart web; }",
        "echo $(docker restart web)",
        'echo "a $(docker restart web) b"',
        "echo `docker restart web`",
        "cat <(docker restart web)",
        "x=$(docker restart web)",
        '[ -n "$(docker restart web)" ]',
        "[[ -n $(docker restart web) ]]",
        "cat <<EOF\n$(docker restart web)\nEOF",
        'cat <<<"$(docker restart web)"',
        "cat > /tmp/x <<'EOF' && docker restart web\ntext\nEOF",
        "true || docker restart web | cat",
        "for ((i=0; i<3; i++)); do docker restart web; done",
    ],
)
def test_a_command_is_found_wherever_and_however_it_is_written(text):
    assert RESTART in words_of(text)


@each_row(
    ("text", "words"),
    [
        ("for c in a b; do docker inspect $c; done", [("a",), ("b",)]),
        ("for c in a 'b c'; do docker inspect $c; done", [("a",), ("b", "c")]),
        ("for c in a 'b c'; do docker inspect \"$c\"; done", [("a",), ("b c",)]),
        ("for i in {1..3}; do docker inspect w$i; done", [("w1",), ("w2",), ("w3",)]),
        ("c=a; docker inspect $c; c=b", [("a",), ("b",)]),
        ("docker inspect a*b", [("a*b",)]),
        ("docker inspect *b", [(None,)]),
        ("docker inspect '*b'", [("*b",)]),
        ("docker inspect {{.Names}}", [("{{.Names}}",)]),
        ("docker inspect é 'ü x'", [("é", "ü x")]),
        ('docker inspect "a\\"b\\$c\\d"', [('a"b$c\\d',)]),
        ("docker inspect ''", [("",)]),
    ],
)
def test_words_are_what_bash_makes_of_them(text, words):
    assert words_of(text) == [("docker", "inspect", *some) for some in words]


@each_row(
    "text",
    [
        "docker inspect $c",
        "docker inspect $(docker ps -q)",
        "[ -f /x ] && c=a; docker inspect $c",
        "(c=a); docker inspect $c",
        "c=a & docker inspect $c",
        "c=a docker inspect $c",
        "read c; docker inspect $c",
        "c=a; read c; docker inspect $c",
        "c=a; eval c=b; docker inspect $c",
        "c=a; printf -v c b; docker inspect $c",
        "c=a; c+=b; docker inspect $c",
        "c=(a b); docker inspect $c",
        "for c in *; do docker inspect $c; done",
        "select c in a b; do docker inspect $c; done",
        "docker inspect $1",
        'docker inspect "$@"',
        "docker inspect ${c:-a}",
        "docker inspect $((1+1))",
        "c=a; unset c; docker inspect $c",
        "for c in {1..99}; do docker inspect $c; done",
        "docker inspect $HOME",
    ],
)
def test_a_word_that_only_the_running_shell_knows_is_none(text):
    assert ("docker", "inspect", None) in [command.words for command in read(text).commands]


def test_a_value_that_comes_round_in_a_loop_is_followed():
    text = "B=ps; D=ps; for i in 1 2; do docker $B web; B=$D; D=restart; done"

    assert RESTART in words_of(text)


@each_row(
    "text",
    [
        "dock\\\ner restart web",
        "docker ps\rdocker restart web",
        "docker\vps",
        "\\ docker ps",
        "docker ps \\ ",
        'docker $"ps"',
        "docker -a<<-EOF\nEOF\n",
        "docker -a1>do ps",
        "!{docker,ps}",
        "docker\n\\\nps",
        "docker # x\n\\\nps",
        "x=a${x}\\docker ps",
        "ls >/dev/null${x}\\docker",
        "docker ps 0<&1",
        "ls (",
        "ls; ;",
        "echo 'unfinished",
        "echo !(a)",
        "cat <<EOF\n`docker ps`\nEOF",
        "cat <<A <<B\nx\nA\ny\nB\n",
        "cat <<EOF\nno end",
        "PATH=/tmp:$PATH",
        "export PATH=/tmp",
        "PATH=/tmp docker ps",
        "LD_PRELOAD=/tmp/x.so ls",
        "DOCKER_HOST=tcp://x docker ps",
        "DOCKER_CONTEXT=x; docker ps",
        "KUBECONFIG=x kubectl get pods",
        "GIT_SSH_COMMAND=x git fetch",
        "BASH_ENV=x bash -c ls",
        "PAGER=x git log",
        "https_proxy=x curl x",
        "HTTPS_PROXY=x curl x",
        "HOME=/tmp ls",
        "IFS=x; ls",
        "unset PATH",
        "for PATH in a; do ls; done",
        "declare -n x=PATH",
        "declare -i x=1",
        "x[$(ls)]=1",
        "echo ${!x}",
        "echo ${x@P}",
        "echo ${PATH:=x}",
        "x='a[$(reboot)]'; echo $((x))",
        "echo $(($*))",
        "n=$(cat f); [[ $n -gt 3 ]]",
        "[ $(cat f) ]",
        "[ -v x ]",
        "exec 3<>/dev/tcp/host/80",
        "echo x > /dev/tcp/host/80",
        "cat < /dev/udp/host/80",
        "f; f() { ls; }",
        "f() { ls; }; f() { pwd; }",
        "if true; then f() { ls; }; fi; f",
        "coproc X { ls; }",
        "}",
        "{docker,restart}",
        "a" * 70_000,
        "(" * 5000 + ")" * 5000,
        "$(" * 300 + ")" * 300,
        "{ " * 300 + "; }" * 300,
        "if ls; then " * 300,
    ],
)
def test_what_bash_may_read_differently_is_a_problem(text):
    assert read(text).problems


@each_row(
    "text",
    [
        "LC_ALL=C sort x",
        "TZ=UTC date",
        "name=web; URL=http://x; ls",
        "set -e; cd /srv && ls",
        "i=0; while [ $i -lt 3 ]; do i=$((i+1)); done",
        'n=$(ls | wc -l); [ "$n" -gt 3 ]',
        "[ $(ls | wc -l) -gt 3 ]",
        "[[ -f x && $y == z* ]]",
        "echo ${#x} ${x%.*} ${x:0:12} ${x/a/b}",
        "((i++)); ls",
        'f() { ls "$1"; }; f a | cat',
        "docker ps --format '{{.Names}}' | while read -r n; do echo \"$n\"; done",
        "ls\n\n# a comment\npwd",
        "awk '{print $1}' x",
    ],
)
def test_ordinary_texts_have_no_problem(text):
    assert read(text).problems == ()


@each_row(
    ("text", "stdin"),
    [
        ("bash", ""),
        ("bash <<< 'docker ps'", "docker ps\n"),
        ('bash <<< "docker $x"', None),
        ('x=ps; bash <<< "docker $x"', "docker ps\n"),
        ("bash <<EOF\ndocker ps\nEOF", "docker ps\n"),
        ("bash <<'EOF'\ndocker $x\nEOF", "docker $x\n"),
        ("bash <<-EOF\n\tdocker ps\n\tEOF", "docker ps\n"),
        ("bash <<EOF\ndocker $x\nEOF", None),
        ("true && bash <<EOF\ndocker ps\nEOF", "docker ps\n"),
        ("echo docker ps | bash", "docker ps\n"),
        ("printf 'docker ps' | bash", "docker ps"),
        ("printf '%s\\n' 'docker ps' | bash", "docker ps\n"),
        ("cat <<EOF | bash\ndocker ps\nEOF", "docker ps\n"),
        ("docker ps | bash", None),
        ("docker ps |& bash", None),
        ("echo -e 'docker ps' | bash", None),
        ("echo $x | bash", None),
        ("bash < file", None),
        ("{ read x; bash; } <<EOF\ndocker ps\nEOF", None),
        ("f() { bash; }", None),
    ],
)
def test_what_a_command_reads_is_known_or_computed(text, stdin):
    shells = [command for command in read(text).commands if command.words == ("bash",)]

    assert [shell.stdin for shell in shells] == [stdin]


@each_row(
    ("text", "writes"),
    [
        ("ls > a", ("a",)),
        ("ls >> a 2> b", ("a", "b")),
        ("ls &> a", ("a",)),
        ("ls >& a", ("a",)),
        ("ls >| a", ("a",)),
        ('ls > "$x"', (None,)),
        ("x=a; ls > $x", ("a",)),
        ("{ ls; } > a", ("a",)),
        ("> a", ("a",)),
        ("for x in 1; do ls; done > a", ("a",)),
        ("ls > /dev/null 2>&1 < b", ()),
        ("ls >&2 1>&-", ()),
    ],
)
def test_files_that_redirections_write_are_named(text, writes):
    found = [path for command in read(text).commands for path in command.writes]

    assert tuple(found) == writes
    assert read(text).problems == ()


@each_row(
    ("text", "one"),
    [
        ("sudo systemctl restart web", True),
        ("sudo systemctl restart web 2>&1", True),
        ("sudo systemctl restart web | cat", False),
        ("sudo systemctl restart web; ls", False),
        ("sudo systemctl restart $x", False),
        ("sudo systemctl restart $(ls)", False),
        ("A=1 sudo systemctl restart web", False),
        ("sudo tee x <<< y", False),
        ("sudo systemctl restart web > x", False),
        ("(sudo systemctl restart web)", False),
        ("sudo systemctl restart web &", False),
        ("for x in 1; do sudo systemctl restart web; done", False),
    ],
)
def test_one_plain_command_is_told_from_more(text, one):
    assert read(text).is_one_command is one


PIECES = st.sampled_from(
    [
        *("docker", "ps", "restart", "web", "-a", "$x", "${x}", '"$x"', "'", '"', "\\", "\n", "\t"),
        *(" ", " ", " ", ";", " && ", " || ", " | ", " & ", "(", ")", "{ ", "; }", "{", "}", ","),
        *("{a,b}", "{1..3}", "$'", '$"', "$(", "`", "<<EOF\n", "\nEOF\n", "<<'EOF'\n", "<<-EOF\n"),
        *("<<<", "#", " #", "x=ps", "x=restart; ", 'y="$x web"; ', "$y", "for x in a b; do "),
        *("; done", "if ", "; then ", "; fi", "\\\n", " \\\n", "\\ ", "=", "! ", "!", "[ ", " ]"),
        *("[[ ", " ]]", "$((1+1))", "((", "))", "case $x in a) ", ";; esac", "f() { ", "f", "\r"),
        *("2>/dev/null", "2>&1", ">/dev/null", "&>/dev/null ", "<(", "|&", "\v", "\u00a0", "é"),
        *("x+=a;", "x=1 ", "${x:-a}", "echo ", "true ", "$1", '"$@"', "$", "\\n", "'a b'", "1>"),
        *("0<&1", "export x=a; ", "unset x; ", "read x; ", "while ", "do ", "else ", "function g "),
    ]
)


def stands_for(words: tuple[str | None, ...], argv: tuple[str, ...]) -> bool:
    if not words:
        return not argv
    if words[0] is None:
        return any(stands_for(words[1:], argv[index:]) for index in range(len(argv) + 1))
    return argv[:1] == words[:1] and stands_for(words[1:], argv[1:])


def test_bash_is_overheard(tmp_path):
    text = "docker 'p s'; x=restart; (docker $x)"

    ran = ran_by_bash(text, tmp_path / "log", tmp_path)

    assert ran == [("docker", "p s"), ("docker", "restart")]


@settings(max_examples=400, deadline=None)
@given(pieces=st.lists(PIECES, min_size=1, max_size=10))
def test_bash_starts_nothing_that_was_not_read(tmp_path_factory, pieces):
    text = "docker " + "".join(pieces)
    script = read(text)
    directory = tmp_path_factory.mktemp("empty")

    ran = [] if script.problems else ran_by_bash(text, directory.parent / "log", directory)

    assert [
        argv
        for argv in ran
        if argv and not any(stands_for(command.words, argv) for command in script.commands)
    ] == []


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=200))
def test_reading_never_raises(text):
    assert read(text) is not None


@each_row("character", ["\U0010ffff", "\U000e0001", "\U0001f600", "é"])
@each_row("text", ["echo {@}", "{@", "echo a{1@..2}", "echo ${@}", "cat <<@\nx\n@"])
def test_no_character_ends_the_process_that_reads_it(text, character):
    asked = "import sys; from escalation.command_policy.shell import read; read(sys.argv[1])"

    ended = subprocess.run([sys.executable, "-c", asked, text.replace("@", character)], check=False)

    assert ended.returncode == 0


@pytest.mark.parametrize("blank", ["\u00a0", "\u2003", "\u3000", "\u0085"])
def test_what_only_looks_like_a_blank_divides_nothing(blank):
    [command] = read(f"docker{blank}restart web").commands

    assert command.words == (f"docker{blank}restart", "web")
