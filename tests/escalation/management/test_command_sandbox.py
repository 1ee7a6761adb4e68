"""`claudeops walls`: what it prints, what it refuses, and with which code it ends."""

from __future__ import annotations

import io
import json

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError

from escalation.errors import CannotRun
from escalation.management.commands import walls
from sessions_app.models import WallsProof
from tests.escalation.fake_cli import FakeCli

pytestmark = pytest.mark.django_db
HOSTILE = '{"tier": 1, "expect": "deny", "command": "docker restart web"}'
HARMLESS = '{"tier": 2, "expect": "allow", "command": "ls"}'
CONTAINED = '{"tier": 1, "expect": "contain", "command": "python3 -c 1"}'
MISJUDGED = '{"tier": 1, "expect": "deny", "command": "ls \\u001b[2J"}'


@pytest.fixture(autouse=True)
def rooms_where_they_can_be(settings) -> None:
    settings.CLAUDEOPS_ROOMS = "auto"


def walls_say(*arguments: str) -> tuple[int, str]:
    out = io.StringIO()
    code = 0
    try:
        call_command("walls", *arguments, stdout=out)
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    return code, out.getvalue()


@pytest.fixture
def corpus(tmp_path):
    def write(*lines: str) -> str:
        path = tmp_path / "corpus.jsonl"
        path.write_text("\n".join(lines))
        return str(path)

    return write


def test_dry_prints_the_decision_on_each_row(corpus):
    code, said = walls_say("--dry", "--corpus", corpus(HOSTILE, HARMLESS))

    assert code == 0
    assert "ok     Tier 1 deny     docker restart web" in said
    assert "ok     Tier 2 allow    ls" in said
    assert "2 tried, 0 failed" in said


def test_dry_ends_with_1_where_a_row_is_judged_otherwise(corpus):
    code, said = walls_say("--dry", "--corpus", corpus(HARMLESS, MISJUDGED))

    assert code == 1
    assert said.startswith("FAILED Tier 1 deny     ls  [2J")
    assert "\x1b" not in said


def test_dry_judges_what_this_machine_could_not_run(corpus):
    row = json.dumps({"tier": 1, "expect": "allow", "command": "docker ps", "needs": "nowhere"})

    code, said = walls_say("--dry", "--json", "--corpus", corpus(row))

    assert code == 0
    assert [one["decision"] for one in json.loads(said)["rows"]] == ["allow"]


def test_dry_says_that_there_are_no_rooms_where_more_is_denied(corpus, settings):
    settings.CLAUDEOPS_ROOMS = "off"

    code, said = walls_say("--dry", "--corpus", corpus(CONTAINED))

    assert code == 1
    assert "deny (not understood)" in said
    assert "No rooms: switched off" in said


def test_dry_as_json_is_pure_and_complete(corpus):
    code, said = walls_say("--dry", "--json", "--corpus", corpus(HOSTILE, "nonsense"))

    data = json.loads(said)
    assert code == 1
    assert (data["tried"], data["failed"], data["left_out"]) == (1, 0, [])
    assert data["wrong"][0].startswith("line 2: not JSON")
    assert data["rows"][0]["decision"] == "deny"


def test_a_tier_can_be_asked_alone(corpus):
    _code, said = walls_say("--dry", "--tier", "2", "--corpus", corpus(HOSTILE, HARMLESS))

    assert "Tier 1" not in said
    assert "1 tried, 0 failed" in said


def test_the_corpus_can_come_from_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(HOSTILE))

    assert "1 tried, 0 failed" in walls_say("--dry", "--corpus", "-")[1]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--dry", "--corpus", "/nowhere"), "The corpus cannot be read: .*/nowhere"),
        (("--attacks", "--corpus", "x"), "give --attacks or --corpus, not both"),
        (("--attacks", "--tier", "3"), "At Tier 3 nothing is attacked"),
    ],
)
def test_what_cannot_be_tried_is_refused_with_code_2(arguments, why):
    with pytest.raises(CommandError, match=why) as refused:
        walls_say(*arguments)

    assert refused.value.returncode == 2


def test_without_rooms_it_refuses_and_says_what_to_do(monkeypatch, fake_cli: FakeCli):
    def refuse() -> None:
        raise CannotRun("no rooms: install bubblewrap")

    monkeypatch.setattr(walls, "require_rooms", refuse)
    with pytest.raises(CommandError, match="install bubblewrap"):
        walls_say()


def test_without_a_cli_it_refuses(settings):
    settings.CLAUDEOPS_CLAUDE_BIN = "/nowhere/claude"
    with pytest.raises(CommandError, match="There is no `claude` at /nowhere/claude"):
        walls_say()


@pytest.fixture
def played(monkeypatch, fake_cli: FakeCli):
    """A trial that has been played apart, with so many failures."""
    asked: list[list[str]] = []

    def install(failed: int = 0) -> list[list[str]]:
        def play(arguments, *, corpus_text="", progress=False):
            asked.append(list(arguments))
            row = {
                **{"tier": 1, "command": "x", "expect": "deny", "decision": "deny"},
                **{"rule": "", "happened": "nothing", "ok": not failed, "milliseconds": 1.0},
            }
            return {
                **{"host": "h", "kernel": "k", "rooms": "r", "cli_version": "2.1.325"},
                **{"cli_fingerprint": "f", "rows": [row], "tried": 1, "failed": failed},
                "seconds": 2.0,
            }

        monkeypatch.setattr(walls, "play_apart", play)
        return asked

    return install


def test_a_whole_trial_is_stored_as_a_proof(played):
    asked = played()

    code, said = walls_say("--json")

    data = json.loads(said)
    assert (code, asked) == (0, [[]])
    assert data["proof"] == WallsProof.objects.get().pk
    assert data["is_worse"] is False


def test_attacks_are_a_proof_of_their_own(played):
    asked = played()

    walls_say("--attacks")

    assert asked == [["--attacks"]]
    assert WallsProof.objects.get().kind == "attacks"


def test_a_trial_that_got_worse_says_that_higher_tiers_wait(played):
    played(failed=1)

    code, said = walls_say()

    assert code == 1
    assert said.startswith("FAILED")
    assert "Tier 2 and 3 wait until an operator accepts it" in said


def test_a_part_of_a_trial_is_no_proof(played, corpus):
    asked = played()

    _code, said = walls_say("--tier", "1")
    walls_say("--corpus", corpus(HOSTILE))

    assert asked == [["--tier", "1"], ["--corpus", "-"]]
    assert "Not stored: only a whole trial is a proof." in said
    assert not WallsProof.objects.exists()


def test_a_database_without_tables_is_told_before_the_trial(played, monkeypatch):
    asked = played()

    def fail(kind):
        raise DatabaseError("no such table")

    monkeypatch.setattr(walls, "failed_so_far", fail)

    with pytest.raises(CommandError, match="no such table. Run `claudeops upgrade`"):
        walls_say()
    assert asked == []


def test_what_was_found_is_printed_where_it_cannot_be_stored(played, monkeypatch):
    played()

    def fail(kind, found):
        raise DatabaseError("locked")

    monkeypatch.setattr(walls, "store", fail)

    code, said = walls_say()

    assert code == 0
    assert "1 tried, 0 failed" in said
    assert "Not stored: the database failed (locked)." in said
