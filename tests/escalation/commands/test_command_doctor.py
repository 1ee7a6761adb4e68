"""`manage.py doctor`: what the installed CLI really does, for a person and for a script."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from escalation.agent.capabilities import Capabilities
from escalation.management.commands import doctor
from tests.escalation.fake_cli import PER_RUN, FakeCli


def doctor_says(*arguments: str) -> tuple[int, str]:
    out = io.StringIO()
    code = 0
    try:
        call_command("doctor", *arguments, stdout=out)
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    return code, out.getvalue()


@pytest.fixture
def found(fake_cli: FakeCli, settings, monkeypatch):
    """What the probe will find; the probe itself has tests of its own."""
    monkeypatch.setattr(doctor, "forget_capabilities", lambda binary: None)
    return lambda **facts: fake_cli.install(settings, **facts)


def test_it_prints_every_finding_and_the_verdict(found, fake_cli):
    found(accumulates_on_fork=True, accumulates_on_resume=None, states_own_share=True)

    code, said = doctor_says()

    lines = {line[:24].strip(): line[25:] for line in said.splitlines()}
    assert code == 0
    assert lines["path"] == str(fake_cli.path)
    assert lines["accumulates on fork"] == "yes"
    assert lines["accumulates on resume"] == "unknown"
    assert lines["appended prompt sticks"] == "no"
    assert lines["missing flags"] == "none"
    assert lines["verdict"].startswith("usable (not seen before, judged by the probe alone)")


def test_with_json_it_prints_data(found):
    found(version="2.1.325 (Claude Code)")

    code, said = doctor_says("--json")

    data = json.loads(said)
    assert code == 0
    assert {*PER_RUN, "path", "source", "verdict"} == set(data)
    assert data["verdict"] == "usable (studied); cost is reported per run"


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"works": False, "problem": "a fresh run printed no result"}, "printed no result"),
        ({"missing_flags": ["--resume", "--tools"]}, "it does not know --resume, --tools"),
    ],
)
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_cli_that_cannot_be_used_exits_with_1_and_says_why(found, facts, why, options):
    found(**facts)

    code, said = doctor_says(*options)

    assert code == 2
    assert "unusable" in said
    assert why in said


def test_it_forgets_what_was_found_before_and_looks_again(fake_cli, settings, monkeypatch):
    fake_cli.install(settings, works=False, problem="an old finding")
    asked: list[str] = []

    def probe(binary):
        asked.append(binary.path)
        facts: dict[str, Any] = {**PER_RUN, "missing_flags": ()}
        return Capabilities(**facts)

    monkeypatch.setattr("escalation.agent.capabilities.find_out", probe)

    code, said = doctor_says()

    assert (code, asked) == (0, [str(fake_cli.path)])
    assert "an old finding" not in said


def test_a_missing_cli_is_an_error_with_advice(settings, tmp_path):
    settings.CLAUDEOPS_CLAUDE_BIN = str(tmp_path / "nowhere")

    with pytest.raises(CommandError, match="CLAUDEOPS_CLAUDE_BIN"):
        doctor_says()


def test_a_cli_that_breaks_when_asked_is_an_error_that_quotes_it(settings, tmp_path):
    broken = tmp_path / "claude"
    broken.write_text("#!/bin/sh\necho missing library >&2\nexit 3\n")
    broken.chmod(0o755)
    settings.CLAUDEOPS_CLAUDE_BIN = str(broken)

    with pytest.raises(CommandError, match="missing library"):
        doctor_says("--json")
