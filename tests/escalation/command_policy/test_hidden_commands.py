"""Commands that hide from a reader and that bash still runs: really run, and never let through."""

from __future__ import annotations

from dataclasses import replace

import pytest

from escalation.command_policy.decision import CommandPolicy, decide
from escalation.command_policy.grants import default_grants
from sessions_app.models.session import Verdict
from tests.escalation.command_policy.overheard import ran_by_bash
from tests.tables import each_row

NO_SANDBOXES = CommandPolicy(tier=2, grants=default_grants(2), workdir="/srv/shop", sandboxed=False)
TIER_1 = CommandPolicy(tier=1, grants=default_grants(1), workdir="/srv/shop")
HIDDEN = "a[$(systemctl restart web)]"
BESIDE = "systemctl status web"

IN_ARITHMETIC = [
    f": '{HIDDEN}'; echo $((_))",
    f"read <<< '{HIDDEN}'; echo $((REPLY))",
    f"[[ '{HIDDEN}' =~ .* ]]; echo $((BASH_REMATCH))",
    f"mapfile <<< '{HIDDEN}'; echo $((MAPFILE))",
    f"x='{HIDDEN}'; eval 'echo $((x))'",
    f"trap 'echo $((y))' EXIT; y='{HIDDEN}'",
    f"x='{HIDDEN}'; eval '[[ $x -gt 1 ]]'",
    f"x='{HIDDEN}'; eval 'false && x=1; echo $((x))'",
]
IN_AN_INNER_BASH = [
    f"x='{HIDDEN}' bash -c 'echo $((x))'",
    f"export x='{HIDDEN}'; bash -c '((x > 1))'",
    f"env x='{HIDDEN}' bash -c 'for ((i = x; i < 1; i++)); do :; done'",
]
BEHIND_A_CONSTANT = [
    "readonly x=restart; trap 'x=status\nsystemctl $x web' EXIT",
    'readonly x=restart\neval "x=status\nsystemctl \\$x web"',
    "builtin declare -r x=restart; trap 'x=status\nsystemctl $x web' EXIT",
]
BY_A_TRAP = [
    "trap 'x=restart' DEBUG; eval 'x=status; systemctl $x web'",
    "trap 'x=restart' ERR; eval 'x=status; false; systemctl $x web'",
    "trap 'x=restart' DEBUG; trap 'x=status; systemctl $x web' EXIT",
]
IN_HISTORY = [
    "set -o history -o histexpand\necho '; systemctl restart web'\n"
    "systemctl status !e:$:s/'//:s/'//",
]


@pytest.mark.parametrize(
    "text", [*IN_ARITHMETIC, *IN_AN_INNER_BASH, *BEHIND_A_CONSTANT, *BY_A_TRAP, *IN_HISTORY]
)
def test_what_bash_would_run_unseen_is_let_through_with_no_grant(text, tmp_path):
    decision = decide(TIER_1, f"{text}\n{BESIDE}")

    ran = ran_by_bash(text, tmp_path / "log", tmp_path, "bash env")
    assert ("systemctl", "restart", "web") in ran
    assert (decision.verdict, decision.grants) == (Verdict.ISOLATE, frozenset())


@each_row(
    "text",
    [
        "set -o allexport; MTR_PACKET=/tmp/x; mtr -r web",
        "set +e -a; MTR_PACKET=/tmp/x; mtr -r web",
        "set -o keyword; mtr MTR_PACKET=/tmp/x -r web",
        "builtin export MTR_PACKET=/tmp/x; mtr -r web",
        "command declare -x MTR_PACKET=/tmp/x; mtr -r web",
        "env -u GIT_ALLOW_PROTOCOL git ls-remote origin",
        "env -i git ls-remote origin",
        "env - git ls-remote origin",
        "builtin export -n GIT_ALLOW_PROTOCOL; git ls-remote origin",
        "LC_ALL=zh_TW.BIG5; curl http://web",
        "LC_ALL=$x; curl http://web",
        "LANGUAGE=../../../tmp/x wget -qO- http://web",
        "env LANG=ja_JP.SJIS curl http://web",
    ],
)
def test_no_variable_steers_a_program_that_has_a_grant(text):
    assert decide(TIER_1, text).verdict is Verdict.ISOLATE


@pytest.mark.parametrize(
    "text",
    [
        "x=$(echo /dev/tcp/cache/6379); exec 3<$x; echo FLUSHALL >&3; getent hosts cache",
        "while read -r x; do exec 3<$x; echo quit >&3; done; ping -c 1 cache",
    ],
)
def test_a_computed_file_is_opened_beside_no_grant(text):
    assert decide(TIER_1, text).verdict is Verdict.ISOLATE


@each_row(
    "text",
    [
        'for log in *.log; do wc -l < "$log"; done',
        "n=0; while read -r line; do n=$((n + 1)); done; echo $n",
        "for i in 1 2 3; do echo $((i * 2)); done; docker ps",
        "bash -c 'n=1; echo $((n + 1))'; docker ps",
        "LC_ALL=C sort names; curl http://web",
        "LANG=en_US.UTF-8 date; docker ps",
        "set -euo pipefail; docker ps | head -3",
        "set +e; docker ps",
        "set +o pipefail; docker ps",
    ],
)
def test_honest_words_beside_them_are_still_understood(text):
    assert decide(TIER_1, text).verdict is Verdict.ALLOW


@each_row(
    "command",
    [
        "git config filter.x.clean 'docker rm -f db'",
        "git status",
        "git diff",
        "git add .",
        "git config --global core.sshCommand evil",
        "git init /etc",
        "git bundle create /etc/x HEAD",
        "git format-patch -o /etc HEAD~1",
    ],
)
def test_without_a_room_nothing_runs_what_files_of_the_models_own_name(command):
    assert decide(NO_SANDBOXES, command).verdict == Verdict.DENY


def test_without_a_room_the_first_tier_reads_a_repository_that_it_cannot_write():
    assert decide(replace(NO_SANDBOXES, tier=1), "git status").verdict == Verdict.ALLOW
