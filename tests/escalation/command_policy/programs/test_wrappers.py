from __future__ import annotations

import shlex

from escalation.command_policy.programs.wrappers import GRAMMARS
from escalation.command_policy.understanding import Inner, Understanding
from tests.tables import each_row

RUN = ("docker", "ps")


def understood(text: str, *more: str | None) -> Understanding | None:
    words = shlex.split(text)
    return GRAMMARS[words[0]]((*words, *more))


@each_row(
    "text",
    [
        "env docker ps",
        "env -v A=1 TZ=UTC docker ps",
        "env -u X docker ps",
        "env -- docker ps",
        "timeout 5 docker ps",
        "timeout -k 2 --signal=KILL 5s docker ps",
        "timeout --preserve-status -s 9 5 docker ps",
        "nice docker ps",
        "nice -n 5 docker ps",
        "nice -5 docker ps",
        "nice --adjustment=5 docker ps",
        "ionice -c 2 -n 7 docker ps",
        "ionice -c3 docker ps",
        "nohup docker ps",
        "stdbuf -oL -e 0 docker ps",
        "stdbuf --output=L docker ps",
        "setsid -w docker ps",
        "chrt -f 10 docker ps",
        "time docker ps",
        "time -p docker ps",
        "command docker ps",
        "command -- docker ps",
        "builtin docker ps",
        "exec docker ps",
        "coproc docker ps",
        "watch -x docker ps",
        "flock -n /tmp/lock docker ps",
        "find . -name x -exec docker ps ;",
        "find . -execdir docker ps ;",
        "find . -ok docker ps ;",
        "xargs -I% docker ps",
    ],
)
def test_a_wrapper_starts_the_command_behind_it(text):
    found = understood(text)

    assert found is not None
    assert found.inner == (Inner(argv=RUN),)


@each_row(
    ("text", "inner"),
    [
        ("xargs docker inspect", ("docker", "inspect", None)),
        ("xargs -0 -r -n 1 -P4 docker inspect", ("docker", "inspect", None)),
        ("xargs --max-args=1 docker inspect", ("docker", "inspect", None)),
        ("xargs -I{} docker inspect {}", ("docker", "inspect", None)),
        ("xargs -I {} docker inspect x{}y", ("docker", "inspect", None)),
        ("xargs", ("echo", None)),
        ("find . -exec docker inspect {} +", ("docker", "inspect", None)),
        ("find . -exec docker inspect a{} ;", ("docker", "inspect", None)),
        ("fd -x docker inspect", ("docker", "inspect", None)),
        ("fd x --exec docker inspect {/}", ("docker", "inspect", None)),
        ("fdfind -X docker inspect {}", ("docker", "inspect", None)),
    ],
)
def test_what_a_wrapper_puts_in_is_computed(text, inner):
    found = understood(text)

    assert found is not None
    assert found.inner == (Inner(argv=inner),)


@each_row(
    ("text", "inner"),
    [
        ("sh -c 'docker ps'", Inner(text="docker ps", posix=True)),
        ("dash -ec 'docker ps' name x", Inner(text="docker ps", posix=True)),
        ("bash -c 'docker ps'", Inner(text="docker ps")),
        ("bash -lc 'docker ps'", Inner(text="docker ps")),
        ("bash --norc -e -c 'docker ps'", Inner(text="docker ps")),
        ("bash -euo pipefail -c 'docker ps'", Inner(text="docker ps")),
        ("bash -c -l 'docker ps'", Inner(text="docker ps")),
        ("bash", Inner(from_stdin=True)),
        ("bash -s", Inner(from_stdin=True)),
        ("bash -s -- a b", Inner(from_stdin=True)),
        ("sh -", Inner(from_stdin=True, posix=True)),
        ("eval docker 'ps -a'", Inner(text="docker ps -a", same_shell=True)),
        ("trap 'docker ps' EXIT", Inner(text="docker ps", same_shell=True)),
        ("watch -n 2 docker ps", Inner(text="docker ps", posix=True)),
        ("watch 'docker ps | cat'", Inner(text="docker ps | cat", posix=True)),
        ("flock /tmp/lock -c 'docker ps'", Inner(text="docker ps", posix=True)),
        ("parallel -j4 docker ps ::: a", Inner(text='docker ps "$argument"', posix=True)),
        ("parallel docker ps {} ::: a", Inner(text='docker ps "$argument"', posix=True)),
        ("parallel ::: 'docker ps'", Inner(text="docker ps", posix=True)),
        ("sudo -n docker ps", Inner(argv=RUN, on_host=True)),
        ("sudo -u root -- docker ps", Inner(argv=RUN, on_host=True)),
        ("sudo --user=root docker ps", Inner(argv=RUN, on_host=True)),
        ("doas docker ps", Inner(argv=RUN, on_host=True)),
        ("su -c 'docker ps'", Inner(text="docker ps", posix=True, on_host=True)),
        ("su - me -c 'docker ps'", Inner(text="docker ps", posix=True, on_host=True)),
        ("su -c 'docker ps' me", Inner(text="docker ps", posix=True, on_host=True)),
    ],
)
def test_texts_and_other_users_are_handed_on(text, inner):
    found = understood(text)

    assert found is not None
    assert found.inner == (inner,)


@each_row(
    "text",
    [
        "env -S 'docker ps'",
        "env --split-string='docker ps'",
        "env -C /x docker ps",
        "env PATH=/tmp docker ps",
        "env LD_PRELOAD=x docker ps",
        "env 'BASH_FUNC_docker%%=() { ls; }' bash -c 'docker ps'",
        "timeout --unknown 5 docker ps",
        "timeout 5",
        "nice",
        "ionice -p 1",
        "chrt -p 1",
        "command -p docker ps",
        "exec -a x docker ps",
        "sudo -i",
        "sudo -s docker ps",
        "sudo -D / docker ps",
        "sudo A=1 docker ps",
        "sudo",
        "su",
        "su me",
        "su -s /bin/x -c ls me",
        "bash script.sh",
        "bash -x script.sh",
        "bash -i -c ls",
        "bash --rcfile x -c ls",
        "bash -O extglob -c ls",
        "bash -c",
        "xargs --unknown docker",
        "xargs -i docker {}",
        "find . -exec docker ps",
        "find . -exec ;",
        "find . -files0-from x",
        "fd -x",
        "fd --exec=ls",
        "fd -Hx ls",
        "watch",
        "watch --unknown ls",
        "parallel docker ps",
        "parallel --pipe docker ps ::: a",
        "parallel docker ps ::: a :::: f",
        "flock 9",
        "time -o x ls",
    ],
)
def test_what_may_be_something_else_is_not_understood(text):
    assert understood(text) is None


@each_row(
    "text",
    ["env", "timeout", "timeout 5", "sudo", "nice -n", "eval", "bash -c", "trap", "find", "fd"]
    + ["parallel", "flock", "sudo -u", "su -c", "command", "exec", "watch"],
)
def test_a_computed_word_in_front_is_not_understood(text):
    found = understood(text, None)

    assert found is None or all(None in inner.argv[:1] for inner in found.inner)


def test_names_that_are_not_here_are_nowhere_a_wrapper():
    assert not {"zsh", "strace", "source", ".", "nsenter", "chroot"} & set(GRAMMARS)


@each_row(
    ("text", "writes"),
    [
        ("find /srv -name x -delete", ("/srv",)),
        ("find -L a b -delete", ("a", "b")),
        ("find -delete", (".",)),
        ("find . -fprint /etc/x", ("/etc/x",)),
        ("find . -fprintf x '%p'", ("x",)),
        ("find . -fls", (None,)),
        ("find . -name x", ()),
        ("flock /tmp/lock ls", ("/tmp/lock",)),
    ],
)
def test_what_a_wrapper_writes_itself_is_named(text, writes):
    found = understood(text)

    assert found is not None
    assert found.writes == writes


@each_row("text", ["command -v docker", "env", "exec", "trap - EXIT", "trap '' INT"])
def test_some_start_nothing(text):
    found = understood(text)

    assert found is not None
    assert found.inner == ()
