"""Finding the `claude` binary and its flags."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from escalation.agent import binary
from escalation.agent.binary import find_binary, locate_binary
from escalation.errors import CliMissing


def make_cli(path: Path, *, version: str = "2.1.0", help: str = "--fork-session --resume") -> Path:
    """A `claude` that counts how often it is asked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'#!/bin/sh\necho "$1" >> {path}.asked\n'
        f'case "$1" in --version) echo "{version}"; echo more;; --help) echo "{help}";; esac\n'
    )
    path.chmod(0o755)
    return path


def times_asked(path: Path) -> int:
    asked = Path(f"{path}.asked")
    return len(asked.read_text().splitlines()) if asked.exists() else 0


@pytest.fixture
def chosen(settings, tmp_path) -> Path:
    path = make_cli(tmp_path / "chosen" / "claude")
    settings.CLAUDEOPS_CLAUDE_BIN = str(path)
    return path


@pytest.fixture
def on_path(monkeypatch, tmp_path) -> Path:
    path = make_cli(tmp_path / "path" / "claude")
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
    return path


def test_the_setting_comes_first(settings, chosen, on_path):
    settings.CLAUDEOPS_CLAUDE_FROM_PATH = True

    assert locate_binary() == (chosen, "CLAUDEOPS_CLAUDE_BIN")


def test_the_binary_on_the_path_is_used_when_it_is_requested(settings, on_path):
    settings.CLAUDEOPS_CLAUDE_BIN = ""
    settings.CLAUDEOPS_CLAUDE_FROM_PATH = True

    assert locate_binary() == (on_path, "PATH")


def test_the_bundled_binary_is_used_otherwise(settings, on_path):
    settings.CLAUDEOPS_CLAUDE_BIN = ""
    settings.CLAUDEOPS_CLAUDE_FROM_PATH = False

    path, source = locate_binary()

    assert source == "bundled"
    assert path.parts[-3:] == ("claude_agent_sdk", "_bundled", "claude")


def test_a_home_directory_in_the_setting_is_expanded(settings, monkeypatch, tmp_path):
    path = make_cli(tmp_path / "claude")
    monkeypatch.setenv("HOME", str(tmp_path))
    settings.CLAUDEOPS_CLAUDE_BIN = "~/claude"

    assert locate_binary()[0] == path


def test_no_binary_on_the_path_is_reported_with_advice(settings, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    settings.CLAUDEOPS_CLAUDE_BIN = ""
    settings.CLAUDEOPS_CLAUDE_FROM_PATH = True

    with pytest.raises(CliMissing, match="CLAUDEOPS_CLAUDE_FROM_PATH .* unset the variable"):
        locate_binary()


def test_a_missing_binary_of_the_setting_is_not_replaced(settings, on_path, tmp_path):
    settings.CLAUDEOPS_CLAUDE_BIN = str(tmp_path / "nowhere")

    with pytest.raises(CliMissing, match="nowhere .*CLAUDEOPS_CLAUDE_BIN.*make install"):
        locate_binary()


def test_a_directory_is_refused(settings, tmp_path):
    settings.CLAUDEOPS_CLAUDE_BIN = str(tmp_path)

    with pytest.raises(CliMissing, match="There is no `claude`"):
        locate_binary()


def test_a_file_that_is_not_executable_is_reported_with_advice(chosen):
    chosen.chmod(0o644)

    with pytest.raises(CliMissing, match=f"chmod \\+x {chosen}"):
        locate_binary()


def test_version_flags_and_source_are_found(chosen):
    found = find_binary()

    assert (found.path, found.source) == (str(chosen), "CLAUDEOPS_CLAUDE_BIN")
    assert (found.version, found.flags) == ("2.1.0", ("--fork-session", "--resume"))
    assert found.can_fork


def test_a_cli_that_cannot_fork_is_recognised(settings, tmp_path):
    settings.CLAUDEOPS_CLAUDE_BIN = str(make_cli(tmp_path / "old", help="--resume"))

    assert not find_binary().can_fork


def test_the_binary_is_asked_once_per_process(chosen):
    find_binary()
    find_binary()

    assert times_asked(chosen) == 2


def test_the_answers_are_kept_for_the_next_process(chosen):
    before = find_binary()
    binary._described.cache_clear()

    assert find_binary() == before
    assert times_asked(chosen) == 2


def test_a_replaced_binary_is_asked_again(chosen):
    find_binary()
    make_cli(chosen, version="2.2.0-longer")

    assert find_binary().version == "2.2.0-longer"


def test_a_binary_of_the_same_size_but_another_time_is_asked_again(chosen):
    find_binary()
    make_cli(chosen, version="2.1.9")
    os.utime(chosen, ns=(1, 1))

    assert find_binary().version == "2.1.9"


@pytest.mark.parametrize(
    "damage",
    ["", "not json", "[]", "null", "3", "{}", '{"version": "x"}', '{"version": "2'],
)
def test_damaged_answers_are_asked_for_again(chosen, settings, damage):
    find_binary()
    binary._described.cache_clear()
    (kept,) = (settings.CLAUDEOPS_STATE_DIR / "cli").glob("*.json")
    kept.write_text(damage)

    assert find_binary().version == "2.1.0"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("#!/bin/sh\necho broken pipe >&2\nexit 4\n", "code 4: broken pipe"),
        ("#!/no/such/interpreter\n", "does not answer"),
        ("no program at all\n", "does not answer"),
    ],
)
def test_a_cli_that_fails_is_reported(chosen, script, message):
    chosen.write_text(script)

    with pytest.raises(CliMissing, match=message):
        find_binary()


def test_a_cli_that_hangs_is_reported(chosen, monkeypatch):
    monkeypatch.setattr(binary, "QUESTION_TIMEOUT_SECONDS", 0.2)
    chosen.write_text("#!/bin/sh\nexec sleep 60\n")

    with pytest.raises(CliMissing, match="does not answer: .*timed out"):
        find_binary()


def test_a_failed_answer_is_not_kept(chosen):
    chosen.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(CliMissing):
        find_binary()

    make_cli(chosen)

    assert find_binary().version == "2.1.0"


def test_an_answer_that_is_not_utf_8_is_read(settings, tmp_path):
    path = tmp_path / "claude"
    path.write_text('#!/bin/sh\nprintf "2.1.0 \\377\\n--fork-session\\n"\n')
    path.chmod(0o755)
    settings.CLAUDEOPS_CLAUDE_BIN = str(path)

    assert find_binary().version.startswith("2.1.0")
