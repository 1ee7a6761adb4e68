"""`claudeops completion`: completions that bash finds with the script."""

from __future__ import annotations

import io
import subprocess

import pytest
from django.core.management import call_command

from escalation.management.command_line import COMMANDS


def script(shell: str) -> str:
    out = io.StringIO()
    call_command("completion", shell, stdout=out)
    return out.getvalue()


@pytest.fixture(scope="module")
def bash_script() -> str:
    return script("bash")


def completed(bash_script: str, *words: str) -> list[str]:
    typed = " ".join(f"'{word}'" for word in ("claudeops", *words))
    program = f"""{bash_script}
COMP_WORDS=({typed}); COMP_CWORD={len(words)}; _claudeops; printf '%s\n' "${{COMPREPLY[@]}}" """
    done = subprocess.run(
        ["bash", "-c", program], capture_output=True, text=True, check=True, cwd="/"
    )
    return done.stdout.split()


def test_bash_completes_the_name_of_a_command(bash_script):
    assert completed(bash_script, "sta") == ["status"]


def test_bash_offers_every_command(bash_script):
    assert {entry.name for entry in COMMANDS} <= set(completed(bash_script, ""))


def test_bash_completes_verbs_and_their_options(bash_script):
    assert completed(bash_script, "watch", "unp") == ["unpause"]
    assert completed(bash_script, "watch", "add", "shop", "/srv", "--cr") == ["--cron"]
    assert completed(bash_script, "session", "list", "--lim") == ["--limit"]


def test_bash_completes_file_names_otherwise(bash_script):
    assert "etc" in completed(bash_script, "backup", "et")


def test_commands_and_options_of_django_are_not_offered(bash_script):
    assert "--pythonpath" not in bash_script


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_scripts_of_other_shells_have_the_same_words(shell):
    text = script(shell)

    assert all(word in text for word in ("run_cycle", "unpause", "cron", "completion"))
