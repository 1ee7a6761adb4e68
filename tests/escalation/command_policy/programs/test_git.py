"""git: reading and changing without grants, and use of the network."""

from __future__ import annotations

import subprocess

import pytest

from escalation.command_policy.programs.environment import understood_environment
from escalation.command_policy.understanding import FULL, LOOK, NEVER, SAFE
from tests.escalation.command_policy.programs.tables import Row, assert_is, understood
from tests.tables import each_row

ROWS = [
    Row("git log --oneline -5", "git log", LOOK),
    Row("git -C /srv/app --no-pager diff HEAD~1", "git diff", LOOK),
    Row("git -c core.quotepath=off -c color.ui=never status", "git status", LOOK),
    Row("git branch -a", "git branch", LOOK),
    Row("git branch", "git branch", LOOK),
    Row("git tag -l 'v*'", "git tag", LOOK),
    Row("git remote -v", "git remote", LOOK),
    Row("git stash list", "git stash", LOOK),
    Row("git config --get user.name", "git config", LOOK),
    Row("git config --list", "git config", LOOK),
    Row("git ls-remote https://example.org/r.git", "git ls-remote", LOOK, "network"),
    Row("git log -1 --output=README.md", "git log", SAFE, "", (None,)),
    Row("git archive -o x.tar HEAD", "git archive", SAFE, "", (None,)),
    Row("git fsck --lost-found", "git fsck", SAFE, "", (None,)),
    Row("git commit -m x", "git commit", SAFE, "", (".",)),
    Row("git -C /srv/app commit -m x", "git commit", SAFE, "", ("/srv/app",)),
    Row("git branch new", "git branch", SAFE, "", (".",)),
    Row("git branch -D main", "git branch", SAFE, "", (".",)),
    Row("git tag v1", "git tag", SAFE, "", (".",)),
    Row("git stash", "git stash", SAFE, "", (".",)),
    Row("git config core.fsmonitor evil", "git config", SAFE, "", (".",)),
    Row("git symbolic-ref HEAD refs/heads/x", "git symbolic-ref", SAFE, "", (".",)),
    Row("git reset --hard", "git reset", SAFE, "", (".",)),
    Row("git fetch origin", "git fetch", SAFE, "network", (".",)),
    Row("git push origin main", "git push", SAFE, "network"),
    Row("git push https://example.org/r.git main", "git push", SAFE, "network"),
    Row("git push git@example.org:a/b main", "git push", FULL, "network ssh"),
    Row("git push --delete origin old", "git push", FULL, "network"),
    Row("git push origin :old", "git push", FULL, "network"),
    Row("git push --force-with-lease", "git push", FULL, "network"),
    Row("git push --force", "git push", NEVER, "network"),
    Row("git push origin main -f", "git push", NEVER, "network"),
    Row("git push origin +main", "git push", NEVER, "network"),
    Row("git pull --ff-only", "git pull", FULL, "network", (".",)),
    Row("git clone https://example.org/r.git /tmp/r", "git clone", SAFE, "network", ("/tmp/r",)),
]


@each_row("row", ROWS, ids=lambda row: row.command)
def test_a_command_has_its_level(row):
    assert_is(row)


@each_row(
    "command",
    [
        "git -c core.pager=evil log",
        "git -c core.fsmonitor=evil status",
        "git -c alias.x=!evil x",
        "git -c $computed log",
        "git --exec-path=/tmp log",
        "git --config-env=core.pager=X log",
        "git $computed",
        "git deploy",
        "git fetch --upload-pack=evil origin",
        "git fetch --upload-p=evil origin",
        "git fetch ext::evil",
        "git fetch $computed",
        "git ls-remote --upload-pack=evil .",
        "git clone --config core.fsmonitor=evil https://example.org/r",
        "git clone ../other",
        "git push --receive-pack=evil origin",
        "git push --exec=evil origin",
        "git --git-dir=/tmp/evil ls-remote origin",
        "git -C /tmp/evil fetch",
        "git remote update",
        "git submodule foreach evil",
        "git bisect run evil",
        "git grep -Oevil x",
        "git grep --open-files-in-pager=evil x",
        "git difftool",
        "git filter-branch --tree-filter evil",
    ],
)
def test_what_may_run_a_program_is_not_understood(command):
    assert understood(command) is None


@pytest.mark.parametrize("command", ["git status", "git diff", "git commit -m x", "git log"])
def test_what_a_repository_can_make_run_is_marked(command):
    found = understood(command)

    assert found is not None
    assert found.runs_unseen


def test_a_push_is_not_marked_since_its_environment_stops_hooks():
    found = understood("git push origin main")

    assert found is not None
    assert not found.runs_unseen


def test_the_environment_switches_a_repositorys_own_programs_off(tmp_path):
    trace = tmp_path / "ran"
    repository = tmp_path / "repository"
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {trace}\n")
    evil.chmod(0o755)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    for words in (
        ["init", "-q", str(repository)],
        ["-C", str(repository), "config", "core.fsmonitor", str(evil)],
        ["-C", str(repository), "config", "core.pager", str(evil)],
        ["-C", str(repository), "config", "core.hooksPath", str(tmp_path)],
    ):
        subprocess.run(["git", *words], env=environment, check=True)

    def status(**further: str) -> bool:
        command = ["git", "-C", str(repository), "status"]
        subprocess.run(command, env={**environment, **further}, check=True, capture_output=True)
        return trace.exists()

    assert not status(**understood_environment())
    assert status()
