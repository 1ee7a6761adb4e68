"""Files that a run edits: their contents before each edit, and what its commands wrote.

The API proxy sees a call of Write or Edit before the CLI does. `BeforeEdits` copies the file then,
while the answer is held back, so that the copy is what the edit replaces. Copies are encrypted, in
the directory of the run, where they survive the worker.

An agent can write in the directories that are read here, also while they are read. So files are
opened one directory after the other, without following links: nothing outside of the directories
that the run may write can get into a copy, or be overwritten when an edit is undone.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from escalation.agent.stream import EDITING_TOOLS
from sessions_app.models import Change
from sessions_app.redaction.encryption import EncryptedWithAnotherKey, decrypt, encrypt
from sessions_app.text import as_text, mapping

logger = logging.getLogger(__name__)

COPIES_NAME = "edits"
FILES_NAME = "files.json"
MOST_COPIES = 500
LARGEST_COPY = 4 * 1024 * 1024
MOST_FILES = 20_000
"""Directories with more files are not compared."""
NOT_COMPARED = frozenset({".git"})
ABSENT = "absent"
"""Takes the place of the digest of a file that does not exist."""

Before = Change.Before


class OutsideOfRun(OSError):
    """Raised for a file outside of the directories that the run may write, or a special file."""


@contextmanager
def parent_of(path: Path, roots: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Open the directory of a file below one of the roots. Yield its descriptor and the name.

    Links are resolved once; a link that appears after that is not followed.
    """
    real = Path(os.path.realpath(path))
    root = next((own for own in map(Path, map(os.path.realpath, roots)) if _is_in(real, own)), None)
    if root is None:
        raise OutsideOfRun(f"{path} is not in a directory that the session may write")
    start = real.parent if real == root else root
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(start, flags)
    try:
        for part in real.relative_to(start).parts[:-1]:
            deeper = os.open(part, flags, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = deeper
        yield descriptor, real.name
    finally:
        os.close(descriptor)


def _is_in(path: Path, root: Path) -> bool:
    return path.is_relative_to(root)


def content_at(directory: int, name: str, *, most: int = LARGEST_COPY) -> bytes:
    """Read a regular file. Raise FileNotFoundError, OutsideOfRun or ValueError if it is larger."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(name, flags, dir_fd=directory), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OutsideOfRun(f"{name} is not a regular file")
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{name} has more than {most} bytes")
    return content


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def digest_at(path: Path, roots: Sequence[str]) -> str:
    """Return the digest of a file, ABSENT, or an empty text if it cannot be read."""
    try:
        with parent_of(path, roots) as (directory, name):
            return digest_of(content_at(directory, name))
    except FileNotFoundError:
        return ABSENT
    except (OSError, ValueError):
        return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileCopy:
    """A file before one edit."""

    call: str
    path: str
    before: Change.Before
    content: bytes = b""


class BeforeEdits:
    """Copies the files of calls that edit one, before the CLI runs them."""

    def __init__(self, run_directory: Path, workdir: Path, roots: Sequence[str]) -> None:
        self._directory = run_directory / COPIES_NAME
        self._workdir = workdir
        self._roots = tuple(roots)

    def __call__(self, call: str, tool: str, given: Any) -> None:
        """Copy the file of a call. An error is logged: the edit itself must not fail by it."""
        named = mapping(given)
        path = as_text(named.get("file_path")) or as_text(named.get("notebook_path"))
        if tool not in EDITING_TOOLS or not self._roots or not path or not call:
            return
        try:
            self._write(self._copied(call, self._workdir / path))
        except (OSError, ValueError):
            logger.warning("Could not keep the content of a file before its edit", exc_info=True)

    def _copied(self, call: str, path: Path) -> FileCopy:
        before, content = Before.KEPT, b""
        try:
            with parent_of(path, self._roots) as (directory, name):
                content = content_at(directory, name)
        except FileNotFoundError:
            before = Before.ABSENT
        except ValueError:
            before = Before.TOO_LARGE
        except OSError:
            before = Before.NOT_KEPT
        return FileCopy(call=call, path=str(path), before=before, content=content)

    def _write(self, copy: FileCopy) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = len(os.listdir(self._directory))
        if number >= MOST_COPIES:
            return
        head = {"call": copy.call, "path": copy.path, "before": copy.before}
        text = json.dumps(head).encode() + b"\n" + copy.content
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(self._directory / f"{number:04d}", flags, 0o600), "wb") as file:
            file.write(encrypt(text))


def read_copies(run_directory: Path) -> list[FileCopy]:
    """Return the copies of a run in the order of its edits, without those that are damaged."""
    found = []
    with suppress(FileNotFoundError):
        for file in sorted((run_directory / COPIES_NAME).iterdir()):
            with suppress(OSError, ValueError, KeyError, EncryptedWithAnotherKey):
                head, _line, content = decrypt(file.read_bytes(), file.name).partition(b"\n")
                data = json.loads(head)
                before = Change.Before(data["before"])
                found.append(
                    FileCopy(call=data["call"], path=data["path"], before=before, content=content)
                )
    return found


# Files that commands wrote: the writable directories before and after the run.

Files = Mapping[str, list[int]]
"""Size, time of modification, inode and mode of each file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenFile:
    path: str
    verb: str
    """create, write or delete."""


def note_files(run_directory: Path, roots: Sequence[str]) -> None:
    """Store what the writable directories contain before the run."""
    data = {"roots": list(roots), "files": files_in(roots)}
    with suppress(OSError):
        (run_directory / FILES_NAME).write_text(json.dumps(data))


def noted_roots(run_directory: Path) -> tuple[str, ...]:
    """Return the directories that a run could write; empty if it could write none."""
    return tuple(_noted(run_directory).get("roots") or ())


def written_files(run_directory: Path) -> list[WrittenFile]:
    """Compare the writable directories with what they contained before the run."""
    noted = _noted(run_directory)
    before, now = noted.get("files"), files_in(noted.get("roots") or ())
    if before is None or now is None:
        return []
    verbs = {
        path: "create" if path not in before else "delete" if path not in now else "write"
        for path in {**before, **now}
        if before.get(path) != now.get(path)
    }
    return [WrittenFile(path=path, verb=verb) for path, verb in sorted(verbs.items())]


def _noted(run_directory: Path) -> Mapping[str, Any]:
    try:
        return mapping(json.loads((run_directory / FILES_NAME).read_text()))
    except (OSError, ValueError):
        return {}


def files_in(roots: Sequence[str]) -> Files | None:
    """Return the regular files below the roots, or None if there are too many to compare."""
    found: dict[str, list[int]] = {}
    waiting = [os.path.realpath(root) for root in roots]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        waiting += [entry.path] if entry.name not in NOT_COMPARED else []
                    elif entry.is_file(follow_symlinks=False):
                        seen = entry.stat(follow_symlinks=False)
                        found[entry.path] = [
                            *(seen.st_size, seen.st_mtime_ns, seen.st_ino, seen.st_mode)
                        ]
                if len(found) + len(waiting) > MOST_FILES:
                    return None
    return found
