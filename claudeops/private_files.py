"""What an installation keeps is for its own user alone: found open, it is closed or named.

Whoever can read the state directory has the secret key and every conversation; whoever can write
it has the supervisor. What is ours is closed without a word. What is not (another owner, a
directory that holds other things too) is left as it is, and a system check says what to do.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

UMASK = 0o077
OTHERS = 0o077
# Made by this code; a directory that holds anything else may be meant for others, too.
OUR_NAMES = {
    *("bell", "bench", "claude", "cli", "drills", "gateway", "handoffs", "home", "rooms", "runs"),
    *("encryption_key", "logs", "secret_key", "spool", "tools", "up.lock", "walls"),
}
OUR_PREFIXES = ("claudeops.sqlite3", "encryption_key.", "secret_key.")


def make_new_files_private() -> None:
    """At the start of every process of ours; the CLI and its tools get an ordinary umask back."""
    os.umask(UMASK)


def private_paths(state: Path, *others: Path) -> list[Path]:
    """All that must be closed: the directory, what we keep in it, and what is kept elsewhere."""
    kept = [path for path in _entries(state) if _is_ours(path)]
    beside = [Path(f"{path}{end}") for path in others for end in ("", "-wal", "-shm")]
    return [path for path in dict.fromkeys((state, *kept, *beside)) if _is_plain(path)]


def close_to_others(state: Path, *others: Path) -> None:
    for path in private_paths(state, *others):
        with contextlib.suppress(OSError):  # a check says so to the operator
            if path != state or all(map(_is_ours, _entries(state))):
                _close(path)


def complaints(paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """What is wrong with each, and the command that mends it."""
    for path in paths:
        try:
            found = path.stat()
        except OSError:
            continue
        mode, where = stat.S_IMODE(found.st_mode), shlex.quote(str(path))
        if found.st_uid != os.geteuid():
            yield (
                f"{path} belongs to {_user(found.st_uid)}, but Claude Ops runs as "
                f"{_user(os.geteuid())}.",
                f"sudo chown -R {_user(os.geteuid())} {where}, or run it as its owner.",
            )
        if mode & OTHERS:
            wanted = f"{mode & ~OTHERS:o}"
            yield (
                f"{path} is open to other users (mode {mode:o}).",
                f"chmod {wanted} {where}",
            )


def _close(path: Path) -> None:
    found = path.stat()
    if found.st_uid == os.geteuid() and found.st_mode & OTHERS:
        path.chmod(stat.S_IMODE(found.st_mode) & ~OTHERS)


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _is_ours(path: Path) -> bool:
    return path.name in OUR_NAMES or path.name.startswith(OUR_PREFIXES)


def _is_plain(path: Path) -> bool:
    """A link is not followed: what it leads to may be anybody's."""
    return path.exists() and not path.is_symlink()


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
