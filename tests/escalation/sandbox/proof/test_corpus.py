from __future__ import annotations

import json
import re

from escalation.sandbox.proof import corpus
from escalation.sandbox.proof.corpus import Row, parse
from tests.escalation.sandbox.proof.test_attacks import KNOWN_WORDS
from tests.tables import each_row

JUDGED = ("ssh ", "sudo ", "scp ")
RUINOUS = re.compile(
    r"(?<!: >)> ?/(?:etc|usr|proc/sys)|tee (?:-a )?/etc|cp \S+ /(?:usr|etc)"
    r"|(?:\A|[;&|(]\s*)rm -\w*r\w* (?:--\S+ )*/(?:\w+)?(?:\s|\Z)"
    r"|(?:\A|[;&]\s*)(?:kill -9 -1|passwd|chsh|useradd|reboot|halt|poweroff)\b"
)

GOOD = {"tier": 1, "expect": "deny", "command": "docker restart web"}


def line(**changes) -> str:
    return json.dumps({**GOOD, **changes})


def test_a_row_says_tier_command_and_what_is_expected():
    assert parse(line(group="docker", why="plain")).rows == (
        Row(tier=1, expect="deny", command="docker restart web", group="docker", why="plain"),
    )


@each_row(
    ("wrong", "said"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ("[" * 100_000, "not JSON"),
        (line(tier=4), '"tier" is 4, not a number from 1 to 3'),
        (line(tier="1"), "\"tier\" is '1'"),
        (line(tier=True), '"tier" is True'),
        (line(expect="maybe"), "\"expect\" is 'maybe', not one of allow, isolate, deny"),
        (line(command=" "), "\"command\" is ' ', not a text"),
        (line(command=7), '"command" is 7, not a text'),
        (line(needs=7), '"needs" is 7, not the name of a program'),
        (line(permits="x"), "\"permits\" is 'x', not a list of texts"),
        (line(need="jq"), "unknown: need"),
        (line(Command="x"), "unknown: Command"),
    ],
)
def test_a_wrong_line_is_named_and_the_others_still_count(wrong, said):
    found = parse(f"{line()}\n\n# a remark\n{wrong}\n{line(tier=2)}\n")

    assert [row.tier for row in found.rows] == [1, 2]
    [problem] = found.wrong
    assert problem.startswith("line 4: ")
    assert said in problem


def test_unknown_fields_are_ignored():
    found = parse(f"{line(id=7, colour='red')}\r\n{line(note='x', severity=3)}\r\n")

    assert (len(found.rows), found.wrong) == (2, ())


def test_a_file_from_another_system_is_read(tmp_path):
    (tmp_path / "corpus.jsonl").write_bytes(b"\xef\xbb\xbf" + line().encode() + b"\r\n")

    assert corpus.read(tmp_path / "corpus.jsonl").wrong == ()


def test_rows_with_missing_programs_are_skipped_and_named():
    text = f"{line(needs='jq')}\n{line(needs=['jq', 'rg'], command='rg x')}"

    found = parse(text, find=lambda name: "/usr/bin/jq" if name == "jq" else None)

    assert [row.command for row in found.rows] == ["docker restart web"]
    assert found.left_out == ("rg x (there is no rg here)",)


def test_the_rows_of_one_tier_can_be_taken_alone():
    found = parse(f"{line()}\n{line(tier=2)}\nbad").of_tier(2)

    assert [row.tier for row in found.rows] == [2]
    assert found.wrong


def test_the_shipped_corpus_is_whole_and_large_enough():
    shipped = corpus.read()

    hostile = [row for row in shipped.rows if row.expect != "allow"]
    harmless = [row for row in shipped.rows if row.expect == "allow"]
    programs = {row.command.split()[0] for row in hostile}
    assert shipped.wrong == ()
    assert len(hostile) >= 1400
    assert len(harmless) >= 600
    assert len(programs) >= 100


@each_row("row", corpus.read(find=str).rows, ids=lambda row: row.command[:60])
def test_no_shipped_command_would_ruin_a_host_without_a_sandbox(row):
    """A text really runs in its sandbox, which may have a hole; only programs of shims do not."""
    assert row.command.startswith(JUDGED) or not RUINOUS.search(row.command)


def test_every_placeholder_of_a_shipped_command_is_known():
    used = {
        word
        for row in corpus.read(find=str).rows
        for word in re.findall(r"@([a-z-]+)@", row.command)
    }

    assert used <= KNOWN_WORDS | {"programs"}


def test_reads_the_expectation_of_version_0_2():
    assert parse(line(expect="contain")).rows[0].expect == "isolate"
