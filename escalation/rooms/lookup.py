"""Finds on this host what the layout names: links resolved, missing paths left out.

In its own user namespace root is an owner like any other: what lies in a private directory of
somebody else neither needs to be hidden from a room nor can be shown in one.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from escalation.rooms.layout import Hidden, Linked, Mount, Private, Shown, is_hidden, is_inside
from escalation.rooms.place import RunPlace
from escalation.rooms.secrets import HOME_SECRETS, HOMES, SECRETS, SOCKET_DIRECTORIES, SOCKETS

TEMPORARY = "/tmp"  # noqa: S108 (the room's own, never the host's)
ALSO_TEMPORARY = ("/var/tmp", "/dev/shm")  # noqa: S108
RESOLVER = "/etc/resolv.conf"
SEARCH, WRITE = stat.S_IXOTH, stat.S_IWOTH
UNIX_SOCKETS = Path("/proc/net/unix")


def room_mounts(place: RunPlace, *, temporary_bytes: int) -> list[Mount]:
    """What both rooms of a run have in common."""
    hidden: list[Mount] = [
        *hiding((*HOMES, *SOCKET_DIRECTORIES, str(place.operator.home))),
        *hiding([path for pattern in (*SECRETS, *SOCKETS) for path in glob.glob(pattern)]),
        *hiding(_secrets_of_homes(place.operator.home)),
        *hiding(map(str, place.hidden), sealed=True),
        *_temporary_directories(temporary_bytes),
    ]
    named = [place.workdir, *map(Path, (*place.doors.readable, *place.doors.writable))]
    writable = {place.workdir, *map(Path, place.doors.writable)} if place.writable else set()
    shown = [mount for path in named for mount in showing(path, hidden, writable=path in writable)]
    others = [
        mount
        for mount in hiding(map(str, place.other_watches))
        if not any(is_inside(mount.path, other.path) for other in shown)
    ]
    return [*hidden, *others, *shown, *showing(Path(RESOLVER), hidden)]


def room_home(place: RunPlace) -> str:
    """The HOME of both rooms, empty. Where programs look for it: ssh asks the user database."""
    home = os.path.realpath(place.operator.home)
    return home if home != "/" and os.path.isdir(home) else TEMPORARY


def why_unreachable(path: Path) -> str:
    """Why no room of ours can show this path; empty where one can."""
    closed = next(
        (place for place in _way_to(os.path.realpath(path)) if not _may(place, SEARCH)), ""
    )
    return (
        f"{path} cannot be shown in a room: {closed} belongs to somebody else, who has closed it. "
        "Run Claude Ops as that user, or open the directory (chmod o+x)."
        if closed
        else ""
    )


def hiding(paths: Iterable[str], *, sealed: bool = False) -> list[Hidden]:
    real = {os.path.realpath(path) for path in paths}
    return [
        Hidden(path=path, is_directory=os.path.isdir(path), sealed=sealed)
        for path in sorted(real)
        if path != "/" and os.path.lexists(path) and is_reachable(path)
    ]


def showing(path: Path, hidden: Iterable[Mount], *, writable: bool = False) -> list[Shown | Linked]:
    """Shows a path where it really lies and, if the way there is hidden, as it was written."""
    real = os.path.realpath(path)
    if not os.path.exists(real) or not is_reachable(real):
        return []
    shown: list[Shown | Linked] = [Shown(path=real, writable=writable)]
    written = _as_written(path, list(hidden))
    if written and written != real:
        shown.append(Linked(path=written, target=real))
    return shown


def hidden_sockets() -> list[Hidden]:
    """Every socket that somebody listens on now. A read-only mount would not stop a connection."""
    try:
        lines = UNIX_SOCKETS.read_text(errors="surrogateescape").splitlines()[1:]
    except OSError:
        return []
    columns = (line.split(None, 7) for line in lines)
    paths = {words[7] for words in columns if len(words) > 7 and words[7].startswith("/")}
    # Bound by a descriptor of a process that need not be ours.
    paths = {path for path in paths if not path.startswith("/proc/")}
    return hiding(path for path in paths if _may(path, WRITE))


def is_reachable(path: str) -> bool:
    return all(_may(place, SEARCH) for place in _way_to(path))


def _way_to(path: str) -> list[str]:
    return [str(place) for place in reversed(Path(path).parents)]


def _may(path: str, permission: int) -> bool:
    """By the permission bits alone: a room has no capability that goes past them."""
    try:
        found = os.stat(path)
    except OSError:
        return False
    if found.st_uid == os.getuid():
        return bool(found.st_mode & permission << 6)
    if found.st_gid in {os.getgid(), *os.getgroups()}:
        return bool(found.st_mode & permission << 3)
    return bool(found.st_mode & permission)


def _as_written(path: Path, hidden: list[Mount]) -> str:
    """The path with its links resolved as far as a room can follow them."""
    reached = "/"
    parts = Path(os.path.abspath(path)).parts[1:]
    for index, part in enumerate(parts):
        reached = os.path.realpath(os.path.join(reached, part))
        if is_hidden(reached, hidden):
            return os.path.join(reached, *parts[index + 1 :])
    return ""


def _temporary_directories(size: int) -> list[Private]:
    """Empty: in those of the host everybody's files and short-lived sockets come and go."""
    real = {os.path.realpath(path) for path in (TEMPORARY, *ALSO_TEMPORARY)}
    return [
        Private(path=path, size=size, mode="1777") for path in sorted(real) if os.path.isdir(path)
    ]


def _secrets_of_homes(own: Path) -> list[str]:
    homes = {str(own), "/root", *glob.glob("/home/*")}
    return [os.path.join(home, name) for home in homes for name in HOME_SECRETS]
