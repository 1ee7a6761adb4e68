"""Whether a tree of files stayed as it was, read from the disk alone.

Nothing here asks the walls: a check that shares code with what it checks agrees with its mistakes.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

LARGEST_HASHED_BYTES = 256 * 1024
Fingerprint = tuple[int | str, ...]


@dataclass(slots=True)
class WatchedTree:
    """Says what changed below a directory since the last look."""

    name: str
    root: Path
    without: tuple[Path, ...] = ()
    """What changes by right, and all below it."""
    by_content: bool = True
    """Small files are read. Where a tree is large, times and sizes must do: a change of the
    content changes the inode's own time, which no program can set."""
    _known: dict[Path, Fingerprint] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """From now on, as it is now."""
        self._known = dict(self._look())

    def changes(self) -> list[str]:
        before, self._known = self._known, dict(self._look())
        found = {
            **{path: "removed" for path in before.keys() - self._known.keys()},
            **{path: "made" for path in self._known.keys() - before.keys()},
            **{
                path: "changed"
                for path in before.keys() & self._known.keys()
                if before[path] != self._known[path]
            },
        }
        return [f"{found[path]} {self._shown(path)}" for path in sorted(found)]

    def _shown(self, path: Path) -> str:
        inside = path.relative_to(self.root)
        return f"{self.name}/{inside}" if inside.parts else self.name

    def _look(self) -> Iterator[tuple[Path, Fingerprint]]:
        waiting = [self.root]
        while waiting:
            path = waiting.pop()
            if path in self.without:
                continue
            try:
                found = path.lstat()
                if stat.S_ISDIR(found.st_mode):
                    waiting.extend(Path(entry.path) for entry in os.scandir(path))
                yield path, self._fingerprint(path, found)
            except OSError:
                continue  # gone between two looks, or never there: its absence is what is seen

    def _fingerprint(self, path: Path, found: os.stat_result) -> Fingerprint:
        own = (found.st_mode, found.st_uid, found.st_gid)
        if stat.S_ISDIR(found.st_mode):
            return own
        return (*own, found.st_size, found.st_mtime_ns, *self._content(path, found))

    def _content(self, path: Path, found: os.stat_result) -> Fingerprint:
        if stat.S_ISLNK(found.st_mode):
            return (os.readlink(path),)
        if not self.by_content:
            return (found.st_ctime_ns,)
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST_HASHED_BYTES:
            return ()
        return (hashlib.sha256(path.read_bytes()).hexdigest(),)
