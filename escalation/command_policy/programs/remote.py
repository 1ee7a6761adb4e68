"""Programs that read files, and git: for other hosts, and where there is no sandbox.

In the command sandbox they run unjudged, because they need no grant.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace
from itertools import dropwhile, takewhile

from escalation.command_policy.plain_shell import read_commands
from escalation.command_policy.programs import ssh
from escalation.command_policy.programs.host import is_root
from escalation.command_policy.programs.options import (
    Grammar,
    acts,
    by_level,
    looking,
    looks,
    read,
    reader,
    require,
)
from escalation.command_policy.understanding import (
    FULL,
    LOOK,
    NEVER,
    SAFE,
    Argv,
    NotUnderstood,
    Understanding,
)

HARMLESS = """
    cat head tail wc cut tr nl tac rev paste comm md5sum sha1sum sha256sum sha512sum cksum
    basename dirname realpath readlink seq sleep base64 od hexdump strings column zcat bzcat xzcat
    jq uname whoami nproc arch getconf locale echo printf true false : pwd cd test which
    whereis lsusb lspci dpkg-query
"""
"""No option of theirs writes a file or starts a program."""
READERS = """
    cat head tail wc cut tr nl tac rev paste comm md5sum sha1sum sha256sum sha512sum cksum base64 od
    hexdump strings column zcat bzcat xzcat jq
"""
"""Those that print the content of files."""
DEVICE = re.compile(
    r"(?:/|(?:\.\./)*)(?:dev/(?!null\Z|std(?:in|out|err)\Z|shm/)|proc/(?:.*/)?(?:kcore|kmsg|mem|fd"
    r"|root|cwd|map_files|environ)(?:/|\Z))"
)
"""Disks, memory, watchdogs, files of other processes: to read one may reveal or end everything."""
DIFF = "-u -q -s -b -w -i -y -B --brief --unified? --ignore-all-space"
SORT = """
    -b -d -f -g -i -M -h -n -R -r -V -c -C -m -s -u -z -k= -t= -o= --ignore-case --reverse --unique
    --numeric-sort --human-numeric-sort --version-sort --key= --field-separator= --stable --output=
"""
UNIQ = "-c -d -D -i -u -z -f= -s= -w= --count --repeated --ignore-case --unique"
FIND_RUNS = re.compile(r"(?!-(?:exec|ok|delete|fprint|fls|files0)).*", re.DOTALL)
DATE = "-d= --date= -I? --iso-8601? -R --rfc-3339= -u --utc -r= --reference="


def is_device(path: str, end: str = "") -> bool:
    return bool(DEVICE.match(posixpath.normpath(path).replace("//", "/") + end))


def prints(argv: Argv) -> Understanding:
    if device := next(filter(is_device, argv[1:]), ""):
        return acts(argv[0], argv[1:], NEVER, f"reads {device}, which may hold everything")
    return looks(argv)


def enters(argv: Argv) -> Understanding:
    """Read cd: relative paths behind it lie in this directory."""
    if any(is_device(path, "/") for path in argv[1:]):
        return acts("cd", argv[1:], NEVER, "leads to devices, which may hold everything")
    return replace(looks(argv), arguments=tuple(f"./{path}" for path in argv[1:]))


def grep(argv: Argv) -> Understanding:
    paths = [word for word in argv[1:] if not word.startswith("-")][1:]
    recursive = any(re.match(r"-[a-zA-Z]*[rR]|--(?:r|dereference-r|dir)|-d", word) for word in argv)
    if recursive and ssh.reads_whole(paths or (".",)):
        return acts(argv[0], argv[1:], FULL, "reads a whole directory, which may hold keys")
    return looks(argv)


def sort(argv: Argv) -> Understanding:
    """Read sort without `--compress-program`."""
    return replace(looks(argv), writes=read(argv[1:], SORT).values("-o", "--output"))


def uniq(argv: Argv) -> Understanding:
    return replace(looks(argv), writes=read(argv[1:], UNIQ).operands[1:])


def find(argv: Argv) -> Understanding:
    require((word for word in argv[1:] if word != "-delete"), FIND_RUNS)
    if "-delete" not in argv:
        return looks(argv)
    begun = dropwhile(re.compile(r"-[HLP]\Z").match, argv[1:])
    paths = tuple(takewhile(re.compile(r"(?![-(!]).").match, begun))
    if any(map(is_root, paths)):
        return acts("find -delete", argv[1:], NEVER, "would destroy a whole system")
    found = acts("find -delete", argv[1:], SAFE, "deletes files")
    return replace(found, writes=paths or (".",))


def rpm(argv: Argv) -> Understanding:
    """Read queries of rpm; `--eval`, `--define` and `--pipe` can run programs."""
    require(argv[1:2] or ("",), re.compile(r"-q[aifldcRspV]*"))
    require(argv[2:], re.compile(r"--(?:last|scripts|changelog)|(?!-)[\w.+:~/-]+"))
    return looks(argv)


# git. Settings and options that name programs are left out.

GIT = "-C= -P --no-pager --git-dir= --work-tree= --no-optional-locks --version"
GIT_RUNS = re.compile(
    r"(?!-O|--(?:ou|op|ext|text|up|rec|exec|lost|config|server)|-c\Z|-o\Z).*", re.DOTALL
)
GIT_VERBS = by_level(
    {
        LOOK: """
            log show diff status blame shortlog describe rev-parse ls-files ls-tree cat-file
            rev-list name-rev grep for-each-ref show-ref merge-base count-objects cherry fsck
            verify-commit ls-remote version
        """,
        SAFE: "fetch",
        FULL: """
            pull push add commit checkout switch restore reset merge revert stash branch tag remote
            clone rm mv init gc clean
        """,
    }
)
GIT_LISTS = {
    ("branch",): "-a -r -v -vv --all --remotes --list --show-current --verbose",
    ("tag",): "-l --list --sort=",
    ("remote",): "-v --verbose",
    ("stash", "list"): "",
}
GIT_WHY = {LOOK: "", SAFE: "fetches from a remote", FULL: "changes the repository"}


def git(argv: Argv) -> Understanding:
    line = read(argv[1:], GIT, to_operand=True)
    verb, rest = (line.operands or ("version",))[0], line.operands[1:]
    if verb in ("upload-pack", "receive-pack", "upload-archive"):
        return ssh.pack((f"git-{verb}", *rest))
    level = GIT_VERBS.get(verb)
    if level is None:
        raise NotUnderstood(f"`{verb}`")
    require(rest, GIT_RUNS)
    if any("::" in word for word in rest):
        raise NotUnderstood("a remote that is a program")
    action = f"git {verb}"
    if verb == "push" and _is_forced(rest):
        return acts(action, rest, NEVER, "overwrites what others have pushed")
    level = LOOK if _only_lists((verb, *rest)) else level
    return acts(action, rest, level, GIT_WHY[level])


def _is_forced(rest: Argv) -> bool:
    return any(re.match(r"-[^-]*f|--force(?!-with)|--mirror|\+", word) for word in rest)


def _only_lists(words: Argv) -> bool:
    for verbs, options in GIT_LISTS.items():
        if words[: len(verbs)] == verbs:
            try:
                return not read(words[len(verbs) :], options).operands
            except NotUnderstood:
                return False
    return False


# Programs that run another one there.


def shell(argv: Argv) -> Understanding:
    if len(argv) != 3 or argv[1] != "-c":
        raise NotUnderstood("a shell: only with -c and one text")
    return Understanding(action=argv[0], arguments=argv[1:], inner=read_commands(argv[2]))


def timeout(argv: Argv) -> Understanding:
    line = read(argv[1:], "-k= -s= -v --kill-after= --signal= --foreground", to_operand=True)
    if len(line.operands) < 2:
        raise NotUnderstood("no command")
    return Understanding(action="timeout", arguments=argv[1:], inner=(line.operands[1:],))


GRAMMARS: dict[str, Grammar] = {
    **dict.fromkeys(HARMLESS.split(), reader()),
    **dict.fromkeys(READERS.split(), prints),
    "cd": enters,
    **dict.fromkeys(("grep", "egrep", "fgrep"), grep),
    "diff": looking(DIFF, "", ".*"),
    "sort": sort,
    "uniq": uniq,
    "find": find,
    # An operand without a plus would set the clock.
    "date": looking(DATE, "", r"\+.*"),
    "blkid": looking("-o= -s= -p -k -L= -U= -t= -l --output= --match-tag= --label=", ""),
    "rpm": rpm,
    "git": git,
}
ELSEWHERE: dict[str, Grammar] = {
    **dict.fromkeys(("sh", "bash"), shell),
    "timeout": timeout,
}
