"""What a room shows and what it hides, as mounts in the right order. Pure.

A room begins with the whole file system, read-only. Over it come mounts, from the root downwards,
so that for every path the nearest one above it counts: a working directory inside a hidden place
is shown, a state directory inside a working directory is hidden. Paths must be resolved already
(`lookup`): a mount follows no symbolic link.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

NOTHING = "/dev/null"


class Strength(IntEnum):
    """Which of two mounts at the very same path wins."""

    HIDDEN = 0
    KEPT = 1
    SHOWN = 2
    WRITABLE = 3
    SEALED = 4
    """Hidden for good: state, code, keys. Only what lies deeper can be shown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hidden:
    path: str
    is_directory: bool = True
    sealed: bool = False
    is_kept: bool = False
    """It has to be there, empty, even in a place that is hidden as a whole."""

    @property
    def strength(self) -> Strength:
        if self.sealed:
            return Strength.SEALED
        return Strength.KEPT if self.is_kept else Strength.HIDDEN


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    path: str
    source: str = ""
    """Where it lies on the host; empty: at the same path."""
    writable: bool = False

    @property
    def strength(self) -> Strength:
        return Strength.WRITABLE if self.writable else Strength.SHOWN

    @property
    def origin(self) -> str:
        return self.source or self.path

    @property
    def is_plain(self) -> bool:
        """Only what a room begins with: the host's own, at its own path, read-only."""
        return not self.writable and not self.source


@dataclass(frozen=True, kw_only=True, slots=True)
class Linked:
    """A symbolic link of the host that lies in a hidden place."""

    path: str
    target: str

    @property
    def strength(self) -> Strength:
        return Strength.SHOWN


@dataclass(frozen=True, kw_only=True, slots=True)
class Private:
    """An empty directory of the room's own that may be written, up to a size."""

    path: str
    size: int
    mode: str = "0700"

    @property
    def strength(self) -> Strength:
        return Strength.KEPT


Mount = Hidden | Shown | Linked | Private


def mount_arguments(mounts: Iterable[Mount]) -> list[str]:
    """The mounts as bubblewrap's arguments, over the whole file system, /dev and /proc."""
    chosen = list(_needed(_one_for_each_path(mounts)))
    arguments = [word for mount in chosen for word in _arguments(mount)]
    # Empty directories are closed at the end: until then mount points are made in them.
    closed = [mount.path for mount in chosen if isinstance(mount, Hidden) and mount.is_directory]
    return arguments + [word for path in closed for word in ("--remount-ro", path)]


def is_hidden(path: str, mounts: Iterable[Mount]) -> bool:
    """Whether a room with these mounts would not show the host's file at this path."""
    above = [mount for mount in _one_for_each_path(mounts) if is_inside(path, mount.path)]
    return bool(above) and not isinstance(above[-1], Shown | Linked)


def is_inside(path: str, directory: str) -> bool:
    """By text: the paths are resolved, and every command asks this some thousand times."""
    return path == directory or path.startswith(f"{directory.rstrip('/')}/")


def _one_for_each_path(mounts: Iterable[Mount]) -> list[Mount]:
    """The strongest mount for each path, from the root downwards."""
    strongest: dict[str, Mount] = {}
    for mount in mounts:
        rival = strongest.get(mount.path)
        if rival is None or mount.strength > rival.strength:
            strongest[mount.path] = mount
    return sorted(strongest.values(), key=lambda mount: (_depth(mount.path), mount.path))


def _needed(mounts: list[Mount]) -> Iterator[Mount]:
    """Without those that change nothing, each of which would cost a moment: what lies in a hidden
    place is hidden already; what is shown in no hidden place is there already, links too."""
    kept: list[Mount] = []
    for mount in mounts:
        above = [other for other in kept if is_inside(mount.path, other.path)]
        lies_in_hidden = bool(above) and not isinstance(above[-1], Shown)
        if isinstance(mount, Hidden) and lies_in_hidden and not mount.is_kept:
            continue
        if isinstance(mount, Linked) and not lies_in_hidden:
            continue
        if isinstance(mount, Shown) and mount.is_plain and _is_as_at_first(above):
            continue
        kept.append(mount)
        yield mount


def _is_as_at_first(above: list[Mount]) -> bool:
    """Whether a place under these mounts is still as the room began."""
    return all(isinstance(mount, Shown) and mount.is_plain for mount in above)


def _arguments(mount: Mount) -> list[str]:
    match mount:
        case Hidden(path=path, is_directory=True):
            return ["--tmpfs", path]
        case Hidden(path=path):
            return ["--ro-bind", NOTHING, path]
        case Private(path=path, size=size, mode=mode):
            return ["--perms", mode, "--size", str(size), "--tmpfs", path]
        case Linked(path=path, target=target):
            return ["--symlink", target, path]
        case Shown(path=path, writable=writable):
            return ["--bind" if writable else "--ro-bind", mount.origin, path]


def _depth(path: str) -> int:
    return 0 if path == "/" else path.count("/")
