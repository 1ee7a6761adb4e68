"""Text for a shell that nobody knows: plain words, or nothing."""

from __future__ import annotations

import shlex
import subprocess
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escalation.command_policy.decision import read_one_command
from escalation.command_policy.plain_shell import LONGEST, read_commands
from escalation.command_policy.understanding import NotUnderstood
from tests.tables import each_row


@each_row(
    ("text", "commands"),
    [
        ("uptime", [["uptime"]]),
        ("  df -h\t/ ", [["df", "-h", "/"]]),
        ("df | head -3 | wc -l", [["df"], ["head", "-3"], ["wc", "-l"]]),
        ("a && b || c; d;", [["a"], ["b"], ["c"], ["d"]]),
        ("a;b|c", [["a"], ["b"], ["c"]]),
        ("grep 'a b' \"c d\" e\\ f", [["grep", "a b", "c d", "e f"]]),
        ("ec'h'\"o\" ''", [["echo", ""]]),
        ("echo 'it'\\''s'", [["echo", "it's"]]),
        ("echo '$x * ? ~ #'", [["echo", "$x * ? ~ #"]]),
        ("echo \\$x \\* \\~", [["echo", "$x", "*", "~"]]),
        ("ls 2>&1 | cat >/dev/null 2>/dev/null </dev/null", [["ls"], ["cat"]]),
        ("ls > /dev/null; df 1>&2", [["ls"], ["df"]]),
        ("docker ps --format '{{.Names}}'", [["docker", "ps", "--format", "{{.Names}}"]]),
        ("cat ./größe", [["cat", "./größe"]]),
    ],
)
def test_plain_text_is_read_like_every_shell_reads_it(text, commands):
    assert [list(words) for words in read_commands(text)] == commands


UNCLEAR = [
    "",
    "   ",
    "echo $x",
    'echo "$x"',
    "echo `x`",
    'echo "`x`"',
    "echo $(x)",
    "ls *",
    "ls ?",
    "ls [a]",
    "ls ~",
    "ls ~/x",
    "echo {a,b}",
    "{ ls; }",
    "(ls)",
    "! ls",
    "ls # x",
    "ls & reboot",
    "ls &",
    "ls\nreboot",
    "ls\\\nreboot",
    "ls > x",
    "ls >> x",
    "ls >/dev/nullx",
    "ls >/dev/null/../x",
    "ls < x",
    "ls <<EOF",
    "ls <<<x",
    "ls &>/dev/null",
    "ls |& cat",
    "ls 3>&1",
    "ls >&-",
    "ls >(x)",
    "; ls",
    "ls ;; df",
    "ls &&",
    "| ls",
    "ls | | df",
    "echo 'open",
    'echo "open',
    "echo x\\",
    'echo "a\\b"',
    'echo "a!b"',
    "echo 'a\\' '; reboot; '",
    "echo =ls",
    "printf -v 'a[$(reboot)]' x",
    "test -v 'a[`reboot`]'",
    "echo '${x}'",
    "echo \\n",
    "echo x\0y",
    "echo '\n'",
    "x^y",
]


@each_row("text", UNCLEAR)
def test_what_a_shell_would_change_is_not_understood(text):
    with pytest.raises(NotUnderstood):
        read_commands(text)


def test_a_text_without_measure_is_not_read():
    with pytest.raises(NotUnderstood):
        read_commands("a " * LONGEST)


@each_row(
    ("text", "argv"),
    [
        ("docker ps -a\n", ("docker", "ps", "-a")),
        ("docker logs 'my web'", ("docker", "logs", "my web")),
        ("docker ps | cat", None),
        ("docker ps; ls", None),
        ("docker ps 2>&1", None),
        ("docker ps $x", None),
        ("", None),
    ],
)
def test_one_command_is_one_vector(text, argv):
    assert read_one_command(text) == argv


PIECES = st.sampled_from(
    ["a", "b c", "'", '"', "\\", " ", "|", "||", "&&", ";", "&", "2>&1", ">/dev/null", "$x", "*"]
    + ["~", "#", "!", "{a,b}", "(", ")", "\n", "=", "'x y'", '"x y"', "\\ ", "\\'", "</dev/null"]
)


PRINT = "print() { for word; do printf '%s\\0' \"$word\"; done; }"


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECES, max_size=8).map("".join))
def test_the_words_are_those_that_sh_sees(text):
    with suppress(NotUnderstood):
        commands = read_commands(f"print {text}", redirected=False)

        ran = subprocess.run(
            ["/bin/sh", "-c", f"{PRINT}; print {text}"], capture_output=True, check=False
        )
        printed = tuple(ran.stdout.decode().split("\0")[:-1])
        assert len(commands) > 1 or printed == commands[0][1:]


@given(st.lists(st.text(max_size=6), min_size=1, max_size=5))
def test_quoted_words_come_back_or_are_not_understood(words):
    with suppress(NotUnderstood):
        assert read_commands(shlex.join(words)) == (tuple(words),)
