"""git, which can run programs that files of the repository name: filters, drivers, hooks.

So it gets no grants for work in a working directory (`runs_unseen`). Commands that need the network
are understood if they run no such programs with the variables of `environment.py`. Settings of a
remote can name a command, so they get the operator's ssh keys at Tier 3 only.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from escalation.command_policy.grants import NETWORK, SSH
from escalation.command_policy.programs.options import (
    Grammar,
    Line,
    is_scratch,
    literal,
    names,
    read,
)
from escalation.command_policy.understanding import FULL, LOOK, NEVER, SAFE, Understanding, Word

# Left out: --exec-path and --config-env.
GLOBAL = """
    -C= -c= -P --no-pager -p --paginate --git-dir= --work-tree= --namespace= --bare
    --no-optional-locks --literal-pathspecs --glob-pathspecs --no-replace-objects
    --icase-pathspecs --version --help -h -v
"""
SETTING = re.compile(
    r"(?:color\.[\w.]+|core\.(?:quotepath|abbrev|autocrlf|filemode|ignorecase|precomposeunicode)"
    r"|log\.(?:date|decorate|abbrevcommit)|user\.(?:name|email)|safe\.directory"
    r"|advice\.\w+|diff\.(?:renames|algorithm|context|noprefix|mnemonicprefix|renamelimit)"
    r"|grep\.\w+|status\.\w+|column\.\w+|init\.defaultbranch|pull\.(?:rebase|ff)|merge\.ff"
    r"|gc\.auto|http\.(?:version|postbuffer|lowspeed\w+|timeout))(?:=|\Z)"
    r"|core\.pager=(?:cat)?\Z|commit\.gpgsign=false\Z",
    re.IGNORECASE,
)
LOOKS = names("""
    log show diff status blame annotate shortlog describe rev-parse ls-files ls-tree cat-file
    rev-list name-rev grep whatchanged diff-tree diff-index diff-files for-each-ref show-ref
    show-branch merge-base count-objects check-ignore check-attr check-mailmap
    check-ref-format cherry range-diff fsck verify-commit verify-tag verify-pack archive version
    help stripspace column fmt-merge-msg patch-id var get-tar-commit-id
""")
CHANGES = names("""
    add commit checkout switch restore reset clean merge rebase cherry-pick revert rm mv apply
    am init gc prune repack pack-refs update-ref update-index write-tree read-tree
    checkout-index hash-object mktree commit-tree sparse-checkout format-patch rerere replace
    bundle pack-objects unpack-objects index-pack mailinfo mailsplit init-db citool
""")
LISTS: dict[str, tuple[str, str]] = {
    # command: its forms that only look, as a first word; options with which it only looks
    "branch": (
        "",
        "-a -r -v -vv -l --all --remotes --list --show-current --verbose --contains? --no-contains?"
        " --merged? --no-merged? --sort= --format= --points-at= --column? --no-column --color?"
        " --no-color --abbrev? -i --ignore-case",
    ),
    "tag": (
        "",
        "-l --list -n? --contains? --no-contains? --merged? --no-merged? --sort= --format="
        " --points-at= --column? --no-column --color? -i --ignore-case -v --verify",
    ),
    "stash": ("list show", ""),
    "reflog": ("show exists", "-n= --all --date= --oneline"),
    "worktree": ("list", ""),
    "notes": ("list show", ""),
    "submodule": ("status summary", ""),
    "bisect": ("log view", ""),
    "remote": ("get-url", "-v --verbose"),
    "symbolic-ref": ("HEAD", "-q --short --quiet"),
    "config": (
        "get list",
        "--get= --get-all= --get-regexp= --get-urlmatch= -l --list --local --global --system"
        " --worktree --show-origin --show-scope --name-only -z --null --bool --int --type=",
    ),
}
ALTERS = frozenset({"submodule foreach", "bisect run", "submodule update", "submodule add"})
"""They run any command, or fetch."""
FETCH = """
    -a -p -P -t -n -q -v -f -k --all --prune --prune-tags --tags --no-tags --depth= --deepen=
    --unshallow --dry-run --force --quiet --verbose --progress --no-progress --atomic --jobs= -j=
    --shallow-since= --append --keep --no-recurse-submodules -4 -6
"""
PUSH = """
    -u -q -v -n -f -d --set-upstream --quiet --verbose --dry-run --all --branches --tags
    --follow-tags --no-verify --progress --no-progress --atomic --porcelain --force
    --force-with-lease? --force-if-includes --mirror --delete --prune --no-recurse-submodules -4
    -6
"""
CLONE = """
    -q -v -n -s -l -b= -o= --quiet --verbose --no-checkout --bare --mirror --depth= --branch=
    --origin= --single-branch --no-single-branch --no-tags --progress --shallow-since= --sparse
    --filter=
"""
LS_REMOTE = (
    "-h -t -q --heads --tags --refs --quiet --exit-code --get-url --sort= --symref --branches"
)
BY_SSH = re.compile(r"ssh://|git\+ssh://|[\w.-]+@[\w.-]+:|[\w-]+(?:\.[\w-]+)*:(?!//)")
BY_HTTP = re.compile(r"https?://")


def git(argv: tuple[Word, ...]) -> Understanding | None:
    line = read(argv[1:], GLOBAL, to_operand=True)
    if line is None or line.unsure or not all(map(_is_harmless, line.values("-c"))):
        return None
    if not line.operands or line.has("--version", "--help", "-h", "-v"):
        return Understanding(action="git", arguments=argv[1:])
    command, rest = line.operands[0], line.operands[1:]
    if command is None:
        return None
    if command in REMOTE:
        if line.has("--git-dir", "--work-tree") or any(map(is_scratch, line.values("-C"))):
            return None
        return REMOTE[command](rest, _directory(line))
    return _local(command, rest, _directory(line))


def _is_harmless(setting: Word) -> bool:
    return bool(setting and SETTING.match(setting))


def _directory(line: Line) -> tuple[Word, ...]:
    return line.values("-C", "--git-dir", "--work-tree") or (".",)


def _local(command: str, rest: tuple[Word, ...], where: tuple[Word, ...]) -> Understanding | None:
    if command == "grep" and any(map(_opens_matches, rest)):
        return None
    if command in LOOKS and any(_writes_a_file(command, word) for word in rest):
        return _change(command, rest, (None,))
    if command in LOOKS:
        return _unseen(command, rest)
    if command in LISTS:
        looking = _only_lists(command, rest)
        if not looking and f"{command} {(*rest, '')[0]}" in ALTERS:
            return None
        return _unseen(command, rest) if looking else _change(command, rest, where)
    return _change(command, rest, where) if command in CHANGES else None


def _opens_matches(word: Word) -> bool:
    """Return whether `git grep -O…` would run a program."""
    return word is not None and word.startswith(("-O", "--op"))


def _writes_a_file(command: str, word: Word) -> bool:
    """Return whether an option writes a file; every form of `diff` has `--output`."""
    if word is None:
        return False
    if command == "archive":
        return word.startswith(("-o", "--o"))
    return word.startswith(("--output=", "--lost")) or word == "--output"


def _only_lists(command: str, rest: tuple[Word, ...]) -> bool:
    words, options = LISTS[command]
    if rest and rest[0] in words.split():
        return command != "symbolic-ref" or len(rest) == 1
    line = read(rest, options)
    if line is None or line.unsure:
        return False
    patterns = line.has(
        "-l", "--list", "--contains", "--merged", "--no-merged", "--points-at", "-v"
    )
    if line.operands and not (command in ("branch", "tag") and patterns):
        return False
    return bool(line.options) or command in ("branch", "tag", "remote", "reflog", "submodule")


def _unseen(command: str, rest: tuple[Word, ...]) -> Understanding:
    return Understanding(action=f"git {command}", arguments=rest, runs_unseen=True)


def _change(command: str, rest: tuple[Word, ...], where: tuple[Word, ...]) -> Understanding:
    return Understanding(
        action=f"git {command}",
        arguments=rest,
        level=SAFE,
        writes=where,
        runs_unseen=True,
        why="changes the repository",
    )


def _remote_grants(level: int, places: tuple[str, ...]) -> tuple[int, frozenset[str]] | None:
    """Return the grants for a URL, or for a remote of the repository."""
    for place in places:
        if "::" in place:
            return None
        if BY_HTTP.match(place):
            return level, frozenset({NETWORK})
        if BY_SSH.match(place):
            return max(level, FULL), frozenset({NETWORK, SSH})
        if "://" in place or place.startswith(("/", ".", "~")):
            return None
    return level, frozenset({NETWORK})


def _goes(
    command: str,
    options: str,
    level: int,
    why: str,
    rest: tuple[Word, ...],
    where: tuple[Word, ...],
) -> Understanding | None:
    line = read(rest, options)
    words = literal(line.operands) if line else None
    if line is None or words is None or line.unsure:
        return None
    found = _remote_grants(level, words[:1])
    if found is None:
        return None
    lowest = max(found[0], _force(command, line, words))
    return Understanding(
        action=f"git {command}",
        arguments=rest,
        level=lowest,
        grants=found[1],
        writes=_written(command, words, where),
        # Filters that the repository names are run with what it pulls.
        needs_agent=command == "pull" and SSH in found[1],
        why="overwrites what others have pushed" if lowest == NEVER else why,
    )


def _force(command: str, line: Line, words: tuple[str, ...]) -> int:
    if command != "push":
        return LOOK
    if line.has("-f", "--force", "--mirror") or any(word.startswith("+") for word in words[1:]):
        return NEVER
    removes = line.has("-d", "--delete", "--prune", "--force-with-lease", "--force-if-includes")
    return FULL if removes or any(word.startswith(":") for word in words[1:]) else LOOK


def _written(command: str, words: tuple[str, ...], where: tuple[Word, ...]) -> tuple[Word, ...]:
    match command:
        case "clone":
            return words[1:] or where
        case "fetch" | "pull":
            return where
    return ()


def _remote(rest: tuple[Word, ...], where: tuple[Word, ...]) -> Understanding | None:
    """Read `git remote`; `show NAME` and `update` use the network."""
    if rest and rest[0] in ("show", "update", "prune"):
        return None
    return _local("remote", rest, where)


PULL = f"{FETCH} --ff-only --rebase? --no-rebase --no-edit"
REMOTE: dict[str, Callable[[tuple[Word, ...], tuple[Word, ...]], Understanding | None]] = {
    "fetch": partial(_goes, "fetch", FETCH, SAFE, "fetches from a remote"),
    "push": partial(_goes, "push", PUSH, SAFE, "publishes commits"),
    "ls-remote": partial(_goes, "ls-remote", LS_REMOTE, LOOK, ""),
    # It checks files out too, through filters that the repository names.
    "pull": partial(_goes, "pull", PULL, FULL, "changes files to what a remote has"),
    "clone": partial(_goes, "clone", CLONE, SAFE, "clones a repository"),
    "remote": _remote,
}

GRAMMARS: dict[str, Grammar] = {"git": git}
