from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from escalation.management.command_line import COMMANDS, GROUPS, OLD_NAMES, current_spelling, run

ROOT = Path(__file__).resolve().parents[3]


def claudeops(*words: str) -> int:
    return run(words, "claudeops", with_django=False)


@pytest.mark.parametrize("words", [[], ["help"], ["--help"], ["-h"]])
def test_help_lists_our_commands_by_group_and_nothing_else(capsys, words):
    assert claudeops(*words) == 0

    shown = capsys.readouterr().out
    listed = [line.split()[0] for line in shown.splitlines() if line.startswith("  ")]
    assert listed == [entry.name for group in GROUPS for entry in COMMANDS if entry.group == group]
    assert all(title in shown for title in GROUPS.values())
    assert "\x1b" not in shown


def test_prints_the_version(capsys, settings):
    assert claudeops("--version") == 0
    assert capsys.readouterr().out == f"Claude Ops {settings.CLAUDEOPS_VERSION}\n"


def test_a_misspelt_command_is_refused_with_a_suggestion(capsys):
    assert claudeops("wacth", "list") == 2
    assert "Did you mean watch?" in capsys.readouterr().err


def test_a_command_of_django_is_refused(capsys):
    assert claudeops("createsuperuser") == 2
    assert "claudeops help lists the commands" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["help", "run_cycle"], ["run-cycle", "--help"]])
def test_help_shows_one_command(capsys, words):
    with pytest.raises(SystemExit) as leaving:
        claudeops(*words)

    assert not leaving.value.code
    assert capsys.readouterr().out.startswith("usage: claudeops run_cycle")


@pytest.mark.parametrize(("old", "new"), OLD_NAMES.items())
def test_an_old_name_runs_the_command(capsys, old, new):
    with pytest.raises(SystemExit) as leaving:
        claudeops(*old.split(), "--help")

    assert not leaving.value.code
    assert capsys.readouterr().out.startswith(f"usage: claudeops {new}")


def test_help_accepts_an_old_name(capsys):
    with pytest.raises(SystemExit):
        claudeops("help", "target")

    assert capsys.readouterr().out.startswith("usage: claudeops channel")


def test_a_hyphen_in_a_command_is_read_as_an_underscore():
    assert current_spelling(["rate-limit", "--lift"]) == ["rate_limit", "--lift"]
    assert current_spelling(["watch", "show", "my-shop"]) == ["watch", "show", "my-shop"]


def test_manage_py_has_the_commands_of_django_too(capsys):
    assert run(["check", "--tag", "urls"], "manage.py", with_django=True) == 0
    assert run([], "manage.py", with_django=True) == 0

    assert "manage.py help --commands" in capsys.readouterr().out


def command(state: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "escalation.management", *words],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "CLAUDEOPS_STATE_DIR": str(state), **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_reports_all_errors_at_once_without_a_traceback(tmp_path):
    (tmp_path / "file").touch()

    refused = command(
        tmp_path / "file" / "state",
        *("watch", "list"),
        CLAUDEOPS_PORT="x",
        CLAUDEOPS_SANDBOXES="on",
        CLAUDEOPS_WORKDIR="/nonexistent/shop",
    )

    assert refused.returncode == 2
    for words in (
        "CLAUDEOPS_PORT is 'x', but must be a whole number",
        "Did you mean CLAUDEOPS_SANDBOX?",
        "CLAUDEOPS_STATE_DIR is",
        "There is no directory /nonexistent/shop",
    ):
        assert words in refused.stderr
    assert "Traceback" not in refused.stderr
    assert refused.stdout == ""


def test_warns_about_an_unknown_setting(tmp_path):
    said = command(tmp_path, "config", "--json", CLAUDEOPS_FROBNICATE="yes")
    warned = command(tmp_path, "open", CLAUDEOPS_FROBNICATE="yes")

    assert said.returncode == warned.returncode == 0
    assert "CLAUDEOPS_FROBNICATE" in warned.stderr


def test_names_the_upgrade_when_tables_are_missing(tmp_path):
    refused = command(tmp_path, "cycles")

    assert refused.returncode == 2
    assert "`claudeops upgrade`" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_names_an_unreachable_database_without_its_password(tmp_path):
    refused = command(
        tmp_path, "cycles", DATABASE_URL="postgresql://ops:hunter22@127.0.0.1:1/claudeops"
    )

    assert refused.returncode == 2
    assert "Is PostgreSQL running at 127.0.0.1:1" in refused.stderr
    assert "hunter22" not in refused.stderr


def test_prints_no_traceback_when_the_pipe_is_closed(tmp_path):
    command(tmp_path, "upgrade")

    ended = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m escalation.management config | true"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "CLAUDEOPS_STATE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert "Traceback" not in ended.stderr
