"""Where a command's program and its files lie: whose they are, and who may write there."""

from __future__ import annotations

import posixpath
import re
from enum import Enum, auto

from escalation.gate.policy import GatePolicy
from escalation.gate.understanding import Word

_SYSTEM = ("/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/usr/local/sbin")
_PRIVATE = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - each room has its own
_GLOB = re.compile(r"[*?\[]")


class Where(Enum):
    """What a written path is."""

    OURS = auto()
    """The working directory, or what a `write:` door names."""
    PRIVATE = auto()
    """The room's own, gone with the command."""
    OUTSIDE = auto()
    UNKNOWN = auto()


def program_name(word: str, policy: GatePolicy) -> str | None:
    """The name by which a program is known; None for one that may be anything."""
    if "/" not in word:
        return word or None
    directory, name = posixpath.split(word)
    trusted = (*_SYSTEM, *policy.programs_in)
    return name if directory in trusted and name else None


def where(path: Word, policy: GatePolicy, directories: tuple[Word, ...]) -> Where:
    """`directories` are those that the command may be in when it writes a relative path."""
    if path is None or None in directories:
        absolute = path is not None and path.startswith("/")
        if not absolute:
            return Where.UNKNOWN
    assert path is not None
    if path.startswith("~") or (_GLOB.search(path) and ".." in path):
        return Where.UNKNOWN
    known = [directory for directory in directories if directory is not None]
    if path.startswith("/"):
        return _where_absolute(path, policy)
    if len(known) > 1 and ".." in path.split("/"):
        return Where.UNKNOWN
    found = {_where_absolute(posixpath.join(directory, path), policy) for directory in known}
    return next((one for one in reversed(Where) if one in found), Where.UNKNOWN)


def _where_absolute(path: str, policy: GatePolicy) -> Where:
    plain = "/" + posixpath.normpath(path).lstrip("/")
    if any(_inside(plain, root) for root in (policy.workdir, *policy.doors.writable)):
        return Where.OURS
    if policy.rooms and any(_inside(plain, root) for root in _PRIVATE):
        return Where.PRIVATE
    return Where.OUTSIDE


def _inside(path: str, root: str) -> bool:
    plain = posixpath.normpath(root)
    return plain != "/" and (path == plain or path.startswith(f"{plain}/"))


def directories_after(
    commands: list[tuple[Word, ...]], directories: tuple[Word, ...]
) -> tuple[Word, ...]:
    """Where a text may be once its `cd`s are done, in whatever order."""
    found = list(directories)
    for words in commands:
        if not words or words[0] not in {"cd", "pushd", "popd"}:
            continue
        target = next(
            (word for word in words[1:] if word is None or word not in {"-P", "-L"}), None
        )
        if target is None or target == "-" or ".." in target or target.startswith(("~", "+")):
            found.append(None)
        elif target.startswith("/"):
            found.append(target)
    return tuple(dict.fromkeys(found))
