"""What this supervisor is on its host: processes, units, user, container. Read from /proc.

Other parts of it (the web server, another worker) are known by where their programs lie, and
whatever one of them started belongs to it, too.
"""

from __future__ import annotations

import os
import pwd
import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from escalation.gate.supervisor import UNIT_TYPES, Alive, OwnProcess

PROC = Path("/proc")
FIRST_WORDS = 4
"""Interpreter, its options and the program: what is only named further on is somebody else's."""
MADE_BY_AN_ENGINE = re.compile(r"/([0-9a-f]{64})/\S* /etc/(?:hostname|hosts|resolv\.conf) ")
CONTAINER_ID = re.compile(r"[0-9a-f]{64}")
CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")


@dataclass(frozen=True, slots=True)
class _Seen:
    pid: int
    parent: int
    group: int
    name: str
    words: tuple[str, ...]


def alive(places: Iterable[Path], proc: Path = PROC, own: int | None = None) -> Alive:
    """`places` hold the programs of this installation."""
    seen = {one.pid: one for one in _processes(proc)}
    roots = tuple(f"{place}/" for place in {*map(str, places), *map(os.path.realpath, places)})
    me = os.getpid() if own is None else own
    ours = {me} | {one.pid for one in seen.values() if _is_of(one, roots, proc)}
    ours |= {pid for pid in seen if ours.intersection(_ancestors(pid, seen))}
    around = ours | set(_ancestors(me, seen))
    return Alive(
        processes=tuple(
            OwnProcess(
                pid=one.pid,
                name=one.name,
                command=" ".join(one.words),
                numbers=frozenset({one.group, *_threads(proc / str(one.pid) / "task")}),
            )
            for one in seen.values()
            if one.pid in around and one.pid > 1
        ),
        units=frozenset(unit for pid in ours for unit in _units(_text(proc / str(pid) / "cgroup"))),
    )


def own_user() -> frozenset[str]:
    number = os.getuid()
    with suppress(KeyError):
        return frozenset({str(number), pwd.getpwuid(number).pw_name})
    return frozenset({str(number)})


def own_container(proc: Path = PROC, marks: Iterable[str] = CONTAINER_MARKS) -> str:
    """Its id, or the beginning of it; empty where we run in none."""
    if found := MADE_BY_AN_ENGINE.search(_text(proc / "self" / "mountinfo")):
        return found[1]
    if in_group := CONTAINER_ID.search(_text(proc / "self" / "cgroup")):
        return in_group[0]
    return socket.gethostname() if any(map(os.path.exists, marks)) else ""


def _processes(proc: Path) -> Iterator[_Seen]:
    for entry in os.scandir(proc):
        if entry.name.isdecimal() and (found := _process(Path(entry.path))):
            yield found


def _process(directory: Path) -> _Seen | None:
    head, _bracket, rest = _text(directory / "stat").rpartition(")")
    fields = rest.split()
    if len(fields) < 3:
        return None
    words = tuple(word for word in _text(directory / "cmdline").split("\0") if word)
    name = head.partition("(")[2]
    return _Seen(int(directory.name), int(fields[1]), int(fields[2]), name, words)


def _threads(directory: Path) -> list[int]:
    try:
        return [int(name) for name in os.listdir(directory) if name.isdecimal()]
    except OSError:
        return []


def _is_of(process: _Seen, roots: tuple[str, ...], proc: Path) -> bool:
    """`python manage.py` names its program from the directory that it is in."""
    words = [word for word in process.words[:FIRST_WORDS] if not word.startswith("-")]
    if any(word.startswith(roots) for word in words):
        return True
    try:
        directory = os.readlink(proc / str(process.pid) / "cwd")
    except OSError:
        return False
    named = [os.path.normpath(os.path.join(directory, word)) for word in words]
    return any(path.startswith(roots) and os.path.isfile(path) for path in named)


def _ancestors(pid: int, seen: dict[int, _Seen]) -> list[int]:
    found: list[int] = []
    while (one := seen.get(pid)) and one.parent > 0 and one.parent not in found:
        found.append(one.parent)
        pid = one.parent
    return found


def _units(groups: str) -> set[str]:
    parts = (part for line in groups.splitlines() for part in line.split("/")[1:])
    return {part for part in parts if UNIT_TYPES.search(part)}


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""
