"""Grammars as a whole: pure, one for each program, and quick."""

from __future__ import annotations

import ast
import time
from contextlib import suppress
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from escalation import command_policy
from escalation.command_policy import programs
from escalation.command_policy.grants import NAMES, PART_OF
from escalation.command_policy.programs import ELSEWHERE, GRAMMARS, SHIMS, understand
from escalation.command_policy.understanding import NEVER, NotUnderstood, Understanding
from tests.escalation.command_policy.vectors import assert_not_understood
from tests.tables import each_row

ODD_WORDS = """
    -c -e -f -o -v -X -i --all -- - = @x :x x: /tmp/x .. ps get run exec push status rm show
    --5 -1 0 list api -n -s SELECT s/a/b/ {print} -xzf +main http://x compose container -u root
    restart web nas 'a -t -l --server --sender . --signal=9 4711 -H -M
"""
WORDS = st.one_of(st.text(max_size=12), st.sampled_from(ODD_WORDS.split()))


UNKNOWN = "aws gcloud mongosh make perl node vim systemd-run sftp telnet"


@each_row("program", UNKNOWN.split())
def test_what_cannot_be_held_by_reading_its_words_is_not_known(program):
    assert_not_understood(f"{program} x", elsewhere=True)


def test_no_program_has_two_grammars():
    """A later module would silently take an earlier one's place."""
    folder = Path(programs.__file__).parent
    named = [
        name
        for module in folder.glob("*.py")
        if module.name != "__init__.py"
        for table in ("GRAMMARS", "ELSEWHERE")
        for name in getattr(
            __import__(f"escalation.command_policy.programs.{module.stem}", fromlist=["x"]),
            table,
            {},
        )
    ]

    assert sorted(named) == sorted({*GRAMMARS, *ELSEWHERE})


def test_the_command_policy_does_nothing_but_read():
    """No module of it opens files, starts processes or uses the network."""
    forbidden = {"os", "subprocess", "pathlib", "socket", "io", "shutil", "tempfile", "time"}
    modules = list(Path(command_policy.__file__).parent.rglob("*.py"))
    for module in modules:
        tree = ast.parse(module.read_text())
        imported = {
            alias.name.partition(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in (*node.names, ast.alias(getattr(node, "module", "") or ""))
        }
        assert not imported & forbidden, module.name
    assert len(modules) > 10


LONG = 99_000
SLOW_TO_READ = {
    "sed": ("sed", "s/a/b/;" * (LONG // 7)),
    "sed, open": ("sed", "s/" + "[" * (LONG - 9)),
    "sed, addresses": ("sed", "/a" * (LONG // 2)),
    "psql, names": ("psql", "-h", "d", "-c", "select " + "a" * (LONG - 99)),
    "psql, words": ("psql", "-h", "d", "-c", "copy " * (LONG // 6)),
    "psql, blanks": ("psql", "-h", "d", "-c", "select a" + " " * (LONG - 99)),
    "curl": ("curl", "http://" + "a@" * (LONG // 2 - 99)),
    "curl, header": ("curl", "-H", "a" * LONG, "http://x"),
    "kill": ("kill", "9" * LONG),
    "pkill": ("pkill", "a " * (LONG // 2 - 9) + "!"),
    "pkill, file": ("pkill", "-F", "/run/" + "./" * (LONG // 2 - 99)),
    "chmod": ("chmod", "u+r," * (LONG // 4 - 9) + "!", "x"),
    "ssh": ("ssh", "-J", "a." * (LONG // 2 - 99) + "!", "h", "x"),
    "ssh, text": ("ssh", "h", "'a'" * 5000),
    "systemctl": ("systemctl", "restart", *["-q", "a"] * 8000),
    "docker": ("docker", "rm", *["-a"] * (LONG // 2 - 99)),
}


@each_row("argv", SLOW_TO_READ.values(), ids=SLOW_TO_READ)
def test_long_words_are_read_in_time(argv):
    """Linear takes some milliseconds here, quadratic takes seconds."""
    started = time.process_time()
    with suppress(NotUnderstood):
        understand(argv)

    assert time.process_time() - started < 0.75


@given(st.sampled_from(sorted({*GRAMMARS, *ELSEWHERE})), st.lists(WORDS, max_size=7), st.booleans())
def test_no_words_bring_a_grammar_down(program, words, elsewhere):
    with suppress(NotUnderstood):
        found = understand((program, *words), elsewhere=elsewhere)

        assert is_sound(found)
        assert found.grant or program not in SHIMS or found.action.startswith("openssl")


def is_sound(found: Understanding) -> bool:
    return (
        1 <= found.level <= NEVER
        and found.grant in {"", *NAMES, *PART_OF}
        and bool(found.action)
        and (found.level == 1 or bool(found.why))
    )
