"""`claudeops sandbox prove`: output, refusals and exit codes."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace

import pytest
from django.core.management import call_command
from django.db import DatabaseError

from escalation.errors import CannotRun, RefusalCode, WhyNot
from escalation.management.commands import sandbox
from sessions_app.models import SandboxProof
from tests.escalation.fake_cli import FakeCli
from tests.escalation.refusals import command_refused

pytestmark = pytest.mark.django_db
HOSTILE = '{"tier": 1, "expect": "deny", "command": "systemctl restart nginx"}'
HARMLESS = '{"tier": 2, "expect": "allow", "command": "echo x"}'
MISJUDGED = '{"tier": 1, "expect": "allow", "command": "ssh nas \'reboot \\u001b[2J\'"}'


@pytest.fixture(autouse=True)
def sandboxes_where_they_can_be(settings) -> None:
    settings.CLAUDEOPS_SANDBOX = "required"


def prove(*arguments: str) -> tuple[int, str]:
    out = io.StringIO()
    code = 0
    try:
        call_command("sandbox", "prove", *arguments, stdout=out)
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
    code, said = prove("--dry", "--corpus", corpus(HOSTILE, HARMLESS))

    assert code == 0
    assert "ok     Tier 1 deny     systemctl restart nginx" in said
    assert "ok     Tier 2 allow    echo x" in said
    assert "isolate (in the sandbox): runs in the sandbox" in said
    assert "2 tried, 0 failed" in said


def test_dry_exits_with_1_for_an_unexpected_decision(corpus):
    code, said = prove("--dry", "--corpus", corpus(HARMLESS, MISJUDGED))

    assert code == 1
    assert said.startswith("FAILED Tier 1 allow    ssh nas 'reboot  [2J'")
    assert "\x1b" not in said


def test_dry_decides_on_rows_with_missing_programs(corpus):
    row = json.dumps({"tier": 1, "expect": "allow", "command": "ps aux", "needs": "nowhere"})

    code, said = prove("--dry", "--json", "--corpus", corpus(row))

    assert code == 0
    assert [one["decision"] for one in json.loads(said)["rows"]] == ["allow"]


def test_dry_reports_that_no_sandbox_is_in_force(corpus, settings):
    settings.CLAUDEOPS_SANDBOX = "off"

    code, said = prove("--dry", "--corpus", corpus(HOSTILE))

    assert code == 0
    assert "CLAUDEOPS_SANDBOX=off" in said


def test_dry_as_json_is_pure_and_complete(corpus):
    code, said = prove("--dry", "--json", "--corpus", corpus(HOSTILE, "nonsense"))

    data = json.loads(said)
    assert code == 1
    assert (data["tried"], data["failed"], data["left_out"]) == (1, 0, [])
    assert data["wrong"][0].startswith("line 2: not JSON")
    assert data["rows"][0]["decision"] == "deny"


def test_one_tier_can_be_chosen(corpus):
    _code, said = prove("--dry", "--tier", "2", "--corpus", corpus(HOSTILE, HARMLESS))

    assert "Tier 1" not in said
    assert "1 tried, 0 failed" in said


def test_the_corpus_can_come_from_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(HOSTILE))

    assert "1 tried, 0 failed" in prove("--dry", "--corpus", "-")[1]


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (("--dry", "--corpus", "/nowhere"), WhyNot.SANDBOX, "/nowhere"),
        (("--attacks", "--corpus", "x"), RefusalCode.INVALID_ARGUMENTS, "--corpus"),
        (("--attacks", "--tier", "3"), RefusalCode.INVALID_ARGUMENTS, "Tier 3"),
        (("--differential", "--tier", "3"), RefusalCode.INVALID_ARGUMENTS, "--tier"),
    ],
)
def test_invalid_options_are_refused_with_code_2(arguments, code, named):
    with command_refused(code, match=named):
        prove(*arguments)


def test_without_sandboxes_it_refuses_and_says_what_to_do(monkeypatch, fake_cli: FakeCli):
    def refuse() -> None:
        raise CannotRun("no sandbox: install bubblewrap", WhyNot.SANDBOX)

    monkeypatch.setattr(sandbox, "require_sandbox", refuse)
    with command_refused(WhyNot.SANDBOX, match="install bubblewrap"):
        prove()


def test_without_a_cli_it_refuses(settings):
    settings.CLAUDEOPS_CLAUDE_BIN = "/nowhere/claude"
    with command_refused(WhyNot.CLI, match="/nowhere/claude"):
        prove()


@pytest.fixture
def played(monkeypatch, fake_cli: FakeCli):
    """A trial that has been played apart, with so many failures."""
    asked: list[list[str]] = []

    def install(failed: int = 0) -> list[list[str]]:
        def play(arguments, *, corpus_text="", progress=False, user=""):
            asked.append([*arguments, *filter(None, [user])])
            row = {
                **{"tier": 1, "command": "x", "expect": "deny", "decision": "deny"},
                **{"rule": "", "happened": "nothing", "ok": not failed, "milliseconds": 1.0},
            }
            return {
                **{"host": "h", "kernel": "k", "sandbox": "r", "cli_version": "2.1.325"},
                **{"cli_fingerprint": "f", "rows": [row], "tried": 1, "failed": failed},
                "seconds": 2.0,
            }

        monkeypatch.setattr(sandbox, "play_in_scratch", play)
        return asked

    return install


def test_a_whole_trial_is_stored_as_a_proof(played):
    asked = played()

    code, said = prove("--json")

    data = json.loads(said)
    assert (code, asked) == (0, [[]])
    assert data["proof"] == SandboxProof.objects.get().pk
    assert data["is_worse"] is False


def test_attacks_are_stored_as_their_own_proof(played):
    asked = played()

    prove("--attacks")

    assert asked == [["--attacks"]]
    assert SandboxProof.objects.get().kind == "attacks"


def test_a_worse_trial_reports_that_higher_tiers_wait(played):
    played(failed=1)

    code, said = prove()

    assert code == 1
    assert said.startswith("FAILED")
    assert "above Tier 1 wait" in said


def test_a_partial_trial_is_not_stored(played, corpus):
    asked = played()

    _code, said = prove("--tier", "1")
    prove("--corpus", corpus(HOSTILE))

    prove("--changes-nothing")
    prove("--user", "nobody")

    assert asked == [["--tier", "1"], ["--corpus", "-"], ["--changes-nothing"], ["nobody"]]
    assert "Not stored" in said
    assert not SandboxProof.objects.exists()


def test_a_failing_database_is_reported_before_the_trial(played, monkeypatch):
    asked = played()

    def fail(kind):
        raise DatabaseError("no such table")

    monkeypatch.setattr(sandbox, "accepted_failures", fail)

    with command_refused(WhyNot.SANDBOX, match="no such table"):
        prove()
    assert asked == []


def test_a_missing_database_is_created_before_the_trial(played, monkeypatch):
    asked = played()
    created = []
    monkeypatch.setattr(sandbox, "upgrade_ahead", lambda: SimpleNamespace(is_new=True))
    monkeypatch.setattr(sandbox, "carry_out", lambda: created.append(list(asked)))

    prove("--json")

    assert created == [[]]
    assert SandboxProof.objects.count() == 1


def test_the_result_is_printed_when_it_cannot_be_stored(played, monkeypatch):
    played()

    def fail(kind, found):
        raise DatabaseError("locked")

    monkeypatch.setattr(sandbox, "store", fail)

    code, said = prove()

    assert code == 0
    assert "1 tried, 0 failed" in said
    assert "(locked)" in said


def test_differences_are_printed_with_the_figures(monkeypatch, fake_cli: FakeCli):
    row = {"tier": 1, "command": "ssh nas reboot", "happened": "ran without a decision"}

    def play(arguments, **_options):
        assert arguments == ["--differential", "2000", "--seed", "7"]
        return {
            **{"host": "h", "kernel": "k", "sandbox": "r", "cli_version": "2.1.325"},
            **{"cli_fingerprint": "f", "rows": [row], "tried": 2000, "failed": 1, "seconds": 2.0},
            **{"asked": 900, "allowed": 300, "ran": 301, "unfinished": 0, "not_started": 0},
        }

    monkeypatch.setattr(sandbox, "play_in_scratch", play)

    code, said = prove("--differential", "2000", "--seed", "7")

    assert code == 1
    assert said.startswith("FAILED Tier 1 ssh nas reboot: ran without a decision")
    assert "2000 texts executed 900 vectors" in said
    assert "1 differences" in said
