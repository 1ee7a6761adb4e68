"""The room for the CLI itself: it may write its own configuration and what its tier may write.

Sockets outside the hidden places are left as they are here: no tool of the CLI's own connects to
one, and one that vanishes while the room is built would keep the whole run from starting.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from escalation.rooms import bubblewrap
from escalation.rooms.layout import Hidden, Mount, Shown, is_hidden, mount_arguments
from escalation.rooms.limits import Limits
from escalation.rooms.lookup import room_home, room_mounts, showing
from escalation.rooms.place import RunPlace

# A repository's configuration can make git run programs, inside the CLI's own room.
COVER = "/bin/false"
MORE_OF_GIT = ("/usr/lib/git-core/git", "/usr/libexec/git-core/git")
SCRIPT = b"#!"


def cli_room_argv(argv: Sequence[str], place: RunPlace) -> list[str]:
    """The CLI's command line, inside its room.

    Start it with the CLI's environment, which must hold no key (every process in the room can read
    it), and in it HOME as `room_home` says and TMPDIR as the place says.
    """
    path = place.tool_environment.get("PATH", os.defpath)
    mounts: list[Mount] = [
        *room_mounts(place, temporary_bytes=Limits().temporary_bytes),
        Hidden(path=room_home(place), is_kept=True),
    ]
    mounts += [
        *showing(place.config_directory, mounts, writable=True),
        *showing(place.temp_directory, mounts, writable=True),
        *showing(place.run_directory, mounts),
        *_programs(argv[0], path, mounts),
    ]
    return [
        bubblewrap.BWRAP,
        *bubblewrap.ISOLATION,
        *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
        *mount_arguments([*mounts, *_covers(path, mounts)]),
        # As root /proc/sys is writable even without any capability.
        *("--remount-ro", "/dev", "--remount-ro", "/proc"),
        *("--chdir", os.path.realpath(place.workdir), "--", *argv),
    ]


def _programs(cli: str, path: str, mounts: list[Mount]) -> list[Mount]:
    """The CLI, what interprets it, and the Python of the tool client, where they are hidden."""
    needed = [Path(cli), Path(sys.base_prefix)]
    real = Path(os.path.realpath(cli))
    if interpreter := _interpreter_of(real, path):
        needed += [real.parent, interpreter, interpreter.parent.parent]
    hidden = [path for path in needed if is_hidden(os.path.realpath(path), mounts)]
    written = [path for path in needed if is_hidden(os.path.abspath(path), mounts)]
    return [mount for path in {*hidden, *written} for mount in showing(path, mounts)]


def _interpreter_of(program: Path, path: str) -> Path | None:
    """What a script's first line names; None for a program that needs none."""
    try:
        with program.open("rb") as file:
            first = file.read(256).split(b"\n")[0]
    except OSError:
        return None
    words = first.removeprefix(SCRIPT).decode(errors="replace").split()
    if not first.startswith(SCRIPT) or not words:
        return None
    named = words[1] if Path(words[0]).name == "env" and len(words) > 1 else words[0]
    found = shutil.which(named, path=path)
    return Path(os.path.realpath(found)) if found else None


def _covers(path: str, mounts: list[Mount]) -> list[Shown]:
    """Every git that the CLI could find does nothing."""
    on_path = [os.path.join(place, "git") for place in path.split(":") if place]
    real = {os.path.realpath(git) for git in (*on_path, *MORE_OF_GIT) if os.path.exists(git)}
    cover = os.path.realpath(COVER)
    return [Shown(path=git, source=cover) for git in sorted(real) if not is_hidden(git, mounts)]
