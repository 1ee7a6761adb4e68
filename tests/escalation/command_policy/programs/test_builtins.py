"""The shell's own commands: a name may hide a command, and some names steer other programs."""

from __future__ import annotations

import subprocess

import pytest

from escalation.command_policy.understanding import LOOK, Inner
from tests.escalation.command_policy.programs.tables import Row, assert_is, understood
from tests.tables import each_row

UNDERSTOOD = """
cd /srv
echo $computed
export name=value
export LC_ALL=C.UTF-8
declare -g NAME=value
local -a LIST
read -r -p prompt line
read -ra words
mapfile -t lines
unset NAME
printf '%s\\n' $computed
test -f x
[ 1 -lt 2 ]
set -euo pipefail
set +e
set -- $computed
shopt -s nullglob globstar
hash -r
wait
trap - EXIT
"""


@each_row("command", UNDERSTOOD.strip().splitlines())
def test_ordinary_use_looks(command):
    assert_is(Row(command, command.split()[0], LOOK))


@each_row(
    "command",
    [
        "declare -i x='a[$(evil)]'",
        "declare 'a[$(evil)]=1'",
        "declare $computed",
        "export PATH=/tmp",
        "export LD_PRELOAD=/tmp/evil.so",
        "export GIT_SSH_COMMAND=evil",
        "export DOCKER_HOST=tcp://elsewhere",
        "export PS4='$(evil)'",
        "read PS4",
        "read 'a[$(evil)]'",
        "read -a 'a[$(evil)]'",
        "mapfile -C evil -c 1 lines",
        "unset 'a[$(evil)]'",
        "printf -v 'a[$(evil)]' x",
        "printf $computed",
        "test -v 'a[$(evil)]'",
        "[ $computed ]",
        "hash -p /tmp/evil docker",
        "shopt -s expand_aliases",
        "alias docker=evil",
        "enable -f /tmp/evil.so evil",
        "wait -p 'a[$(evil)]' -n",
        "wait -np 'a[$(evil)]'",
        "jobs -x evil",
        "trap $computed EXIT",
        "let 'a[$(evil)]'",
    ],
)
def test_a_name_that_hides_or_steers_something_is_not_understood(command):
    assert understood(command) is None


def test_what_a_trap_runs_is_a_command_inside():
    found = understood("trap 'docker restart web' EXIT")

    assert found is not None
    assert found.inner == (Inner(text="docker restart web", same_shell=True),)


@pytest.mark.parametrize(
    "text",
    [
        "test -v 'a[$(echo ran >&2)]'",
        "read 'a[$(echo ran >&2)]' <<< 1",
        "declare 'a[$(echo ran >&2)]=1'",
        "printf -v 'a[$(echo ran >&2)]' x",
    ],
)
def test_bash_really_runs_what_a_name_hides(text):
    """The danger that the grammar is made for: if this ends one day, it may become milder."""
    ran = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False)

    assert "ran" in ran.stderr
