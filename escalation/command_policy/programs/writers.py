"""Programs that write, move and remove files."""

from __future__ import annotations

import posixpath
from dataclasses import replace

from escalation.command_policy.programs.options import Grammar, looks, read, writes
from escalation.command_policy.understanding import NEVER, Understanding, Word

REMOVE = """
    -r -R -f -i -I -d -v --recursive --force --dir --verbose --interactive? --one-file-system
    --preserve-root? --no-preserve-root
"""
COPY = """
    -a -b -d -f -i -H -l -L -n -P -p -r -R -s -S= -t= -T -u -v -x -Z --archive --backup? --force
    --interactive --link --dereference --no-clobber --no-dereference --preserve? --no-preserve=
    --parents --recursive --reflink? --remove-destination --sparse= --symbolic-link --suffix=
    --target-directory= --no-target-directory --update? --verbose --one-file-system
"""
LINK = """
    -s -f -n -r -v -b -i -L -P -T -t= -S= --symbolic --force --no-dereference --relative --verbose
    --backup? --target-directory= --no-target-directory --logical --physical
"""
INSTALL = """
    -b -c -C -d -D -g= -m= -o= -p -S= -t= -T -v --directory --mode= --owner= --group=
    --target-directory= --preserve-timestamps --verbose --compare
"""
CHANGE = """
    -R -v -c -f -h -H -L -P --recursive --verbose --changes --silent --quiet --dereference
    --no-dereference --from= --reference= --preserve-root --no-preserve-root
"""
PATCH = """
    -p= -R -N -d= -E -b -s -u -f -t -i= -l --dry-run --reverse --forward --directory= --backup
    --silent --strip= --input= --batch --force --unified
"""
ROOTS = frozenset({"/", "/*", "~", "/etc", "/usr", "/var", "/boot", "/home", "/root", "/lib"})
"""Paths that must not be removed or changed as a whole."""


def every_operand(options: str) -> Grammar:
    return lambda argv: _operands(argv, options, 0)


def after_the_first(options: str) -> Grammar:
    """Read `chmod MODE path …`."""
    return lambda argv: _operands(argv, options, 1)


def _operands(argv: tuple[Word, ...], options: str, start: int) -> Understanding | None:
    """Return the written paths; None for a computed path."""
    line = read(argv[1:], options)
    if line is None:
        return None
    places = line.operands[0 if line.has("--reference") else start :]
    found = writes(str(argv[0]), argv[1:], places)
    sweeping = line.has("-r", "-R", "--recursive", "--no-preserve-root")
    return _never(found) if sweeping and any(map(_is_root, places)) else found


def _is_root(place: Word) -> bool:
    return place is not None and posixpath.normpath(place).replace("//", "/") in ROOTS


def _never(found: Understanding) -> Understanding:
    return Understanding(
        action=found.action,
        arguments=found.arguments,
        level=NEVER,
        writes=found.writes,
        why="would destroy a whole system",
    )


def to_the_last(options: str, *, sources_too: bool = False) -> Grammar:
    """Read `cp a b dir` and `cp -t dir a b`; `mv` removes what it moves."""

    def grammar(argv: tuple[Word, ...]) -> Understanding | None:
        line = read(argv[1:], options)
        if line is None:
            return None
        target = line.values("-t", "--target-directory")
        places = target or line.operands[-1:]
        if line.unsure:
            places = (*places, None)
        return writes(str(argv[0]), argv[1:], (*line.operands, *target) if sources_too else places)

    return grammar


def tee(argv: tuple[Word, ...]) -> Understanding | None:
    line = read(argv[1:], "-a -i -p --append --ignore-interrupts --output-error?")
    return writes("tee", argv[1:], line.operands) if line else None


def dd(argv: tuple[Word, ...]) -> Understanding | None:
    if None in argv:
        return None
    targets = [word[3:] for word in argv[1:] if word and word.startswith("of=")]
    found = writes("dd", argv[1:], targets)
    devices = any(path.startswith("/dev/") for path in targets if path in found.writes)
    return _never(found) if devices else found


def patches(argv: tuple[Word, ...]) -> Understanding | None:
    """Read patch; a patch names files below the directory, and one for ed runs ed."""
    line = read(argv[1:], PATCH)
    if line is None or line.unsure:
        return None
    if line.has("--dry-run"):
        return looks(argv)
    found = writes("patch", argv[1:], line.values("-d", "--directory") or (".",))
    return replace(found, runs_unseen=True)


def splits(argv: tuple[Word, ...]) -> Understanding | None:
    """Read split without `--filter`, which runs a command."""
    line = read(argv[1:], "-l= -b= -C= -n= -a= -d -x --lines= --bytes= --number= --suffix-length=")
    if line is None or line.unsure:
        return None
    return writes("split", argv[1:], line.operands[1:] or (".",))


def makes_temporary(argv: tuple[Word, ...]) -> Understanding | None:
    """Read mktemp, which writes to /tmp of the sandbox by default."""
    line = read(argv[1:], "-d -u -q -t -p= --directory --dry-run --quiet --suffix= --tmpdir?")
    if line is None or line.unsure:
        return None
    named = (*line.operands, *line.values("-p", "--tmpdir"))
    return writes("mktemp", argv[1:], tuple(word for word in named if word))


GRAMMARS: dict[str, Grammar] = {
    "rm": every_operand(REMOVE),
    "rmdir": every_operand("-p -v --parents --verbose --ignore-fail-on-non-empty"),
    "unlink": every_operand(""),
    "shred": every_operand(
        "-u -z -f -v -x -n= -s= --remove? --zero --force --verbose --iterations="
    ),
    "touch": every_operand("-a -c -m -h -d= -r= -t= --date= --reference= --no-create --time="),
    "mkdir": every_operand("-p -v -m= -Z --parents --verbose --mode="),
    "mkfifo": every_operand("-m= --mode="),
    "truncate": every_operand("-c -o -r= -s= --no-create --size= --reference= --io-blocks"),
    "chmod": after_the_first(CHANGE),
    "chown": after_the_first(CHANGE),
    "chgrp": after_the_first(CHANGE),
    "cp": to_the_last(COPY),
    "mv": to_the_last(COPY, sources_too=True),
    "ln": to_the_last(LINK),
    "install": to_the_last(INSTALL),
    "tee": tee,
    "dd": dd,
    "patch": patches,
    "split": splits,
    "mktemp": makes_temporary,
}
