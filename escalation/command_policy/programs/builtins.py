"""Builtin commands of the shell.

Several of them run code in a *name*: `read 'a[$(reboot)]'` computes the subscript. So names must be
plain and must not change other programs (`PATH`, `PS4`, `LD_PRELOAD` …).
"""

from __future__ import annotations

import re

from escalation.command_policy.programs.options import Grammar, literal, looks, names, read, readers
from escalation.command_policy.shell import may_have, may_reach_programs
from escalation.command_policy.understanding import Understanding, Word

PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
TELLING_NAME = re.compile(
    r"PATH\Z|CDPATH|IFS|ENV\Z|BASH|SHELL|PS[0-4]\Z|PROMPT_COMMAND|LD_|DYLD_|GIT_|SSH_|DOCKER_"
    r"|COMPOSE_|KUBE|HELM_|ANSIBLE_|TF_|GH_|GLAB_|PG|MYSQL|REDIS|SQLITE|MAN|LESS|MORE|PAGER|EDITOR"
    r"|VISUAL|BROWSER|SYSTEMD_|DBUS_|XDG_|HOME\Z|TMPDIR|RSYNC_|CURL_|WGETRC|TAR_|GZIP|XZ_|ZIP|UNZIP"
    r"|RIPGREP|GREP_|AWK|POSIXLY_CORRECT|GCONV|LOCPATH|NLSPATH|MAIL|HIST|TERM|OPENSSL|PERL|PYTHON"
    r"|RUBY|NODE_|JAVA_|http|HTTP|ALL_PROXY|all_proxy|NO_PROXY|no_proxy",
)
"""Variables by which programs and the shell find other programs, files or hosts."""
SET_OPTIONS = names("""
    errexit nounset pipefail xtrace noglob noclobber verbose errtrace functrace noexec
""")
SHELL_OPTIONS = names("""
    nullglob globstar dotglob failglob nocaseglob nocasematch lastpipe inherit_errexit
""")


def is_harmless_name(name: Word) -> bool:
    return bool(name and PLAIN_NAME.match(name) and not TELLING_NAME.match(name))


def declares(argv: tuple[Word, ...]) -> Understanding | None:
    """Read declarations without `-i` (computes), `-n` (another name) and `-r` (read-only)."""
    line = read(argv[1:], "-x -a -A -g -p -f -F -l -u")
    words = literal(line.operands) if line else None
    if line is None or words is None:
        return None
    harmless = _may_be_exported if line.has("-x") else _may_be_named
    return looks(argv) if all(map(harmless, words)) else None


def _may_be_named(word: str) -> bool:
    return is_harmless_name(word.split("=")[0])


def _may_be_exported(word: str) -> bool:
    name, _equals, value = word.partition("=")
    return may_reach_programs(name) and may_have(name, (value,))


def exports(argv: tuple[Word, ...]) -> Understanding | None:
    """Read export without -n, which would remove variables of `environment.py`."""
    line = read(argv[1:], "-p")
    words = literal(line.operands) if line else None
    return looks(argv) if words is not None and all(map(_may_be_exported, words)) else None


def reads(argv: tuple[Word, ...]) -> Understanding | None:
    line = read(argv[1:], "-r -s -e -a= -d= -i= -n= -N= -p= -t= -u=")
    if line is None or line.unsure:
        return None
    return looks(argv) if all(map(is_harmless_name, (*line.operands, *line.values("-a")))) else None


def reads_lines(argv: tuple[Word, ...]) -> Understanding | None:
    """Read mapfile without `-C`, which runs a command."""
    line = read(argv[1:], "-t -d= -n= -O= -s= -u=")
    if line is None or line.unsure:
        return None
    return looks(argv) if all(map(is_harmless_name, line.operands)) else None


def unsets(argv: tuple[Word, ...]) -> Understanding | None:
    line = read(argv[1:], "-v")
    return looks(argv) if line and all(map(is_harmless_name, line.operands)) else None


def prints(argv: tuple[Word, ...]) -> Understanding | None:
    match argv[1:]:
        case (None, *_):
            return None
        case (str() as first, *_) if first.startswith("-v"):
            return None
    return looks(argv)


def tests(argv: tuple[Word, ...]) -> Understanding | None:
    """Read a test; `-v` and `-R` take names, and a computed word may become one of them."""
    words = literal(argv[1:])
    return None if words is None or {"-v", "-R"} & set(words) else looks(argv)


def sets(argv: tuple[Word, ...]) -> Understanding | None:
    """Read set without `allexport`, `keyword` and `histexpand`, which change later commands."""
    plain = tuple(_switched_on(word) for word in argv[1:])
    line = read(plain, "-e -u -x -o= -f -v -n -E -T -b -h", to_operand=True)
    if line is None or line.unsure:
        return None
    return looks(argv) if {"", *SET_OPTIONS}.issuperset(line.values("-o")) else None


def _switched_on(word: Word) -> Word:
    """Read `+e` as `-e`."""
    return f"-{word[1:]}" if word is not None and word.startswith("+") else word


def sets_shell_options(argv: tuple[Word, ...]) -> Understanding | None:
    line = read(argv[1:], "-s -u -q -p")
    words = literal(line.operands) if line else None
    return looks(argv) if words is not None and SHELL_OPTIONS.issuperset(words) else None


def forgets(argv: tuple[Word, ...]) -> Understanding | None:
    """Read hash without `-p`, which gives a name to another program."""
    return looks(argv) if argv[1:] in ((), ("-r",)) else None


def without_options(argv: tuple[Word, ...]) -> Understanding | None:
    words = literal(argv[1:])
    return looks(argv) if words is not None and not any(w.startswith("-") for w in words) else None


GRAMMARS: dict[str, Grammar] = {
    **readers("cd pushd popd dirs echo true false : pwd type exit return break continue shift"),
    **readers("umask ulimit times caller help logout"),
    **dict.fromkeys(("declare", "typeset", "local"), declares),
    "export": exports,
    "read": reads,
    "mapfile": reads_lines,
    "readarray": reads_lines,
    "unset": unsets,
    "printf": prints,
    "test": tests,
    "[": tests,
    "set": sets,
    "shopt": sets_shell_options,
    "hash": forgets,
    # `wait -p` takes a name, `jobs -x` a command.
    **dict.fromkeys(("wait", "jobs"), without_options),
}
