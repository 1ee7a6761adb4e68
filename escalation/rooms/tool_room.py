"""The room for one command: bubblewrap's arguments, by the doors that were opened for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from escalation.gate import doors
from escalation.rooms import bubblewrap
from escalation.rooms.doors_mounts import opened
from escalation.rooms.layout import Hidden, Mount, Private, Shown, is_inside, mount_arguments
from escalation.rooms.limits import Limits, shell_limits
from escalation.rooms.lookup import TEMPORARY, hidden_sockets, hiding, room_home, room_mounts
from escalation.rooms.place import RunPlace

BASH = ("/bin/bash", "--noprofile", "--norc", "-c")
NEED_NETWORK = {doors.NETWORK, doors.SSH, doors.AGENT, doors.KUBE}
ENTERED = b"entered\n"

# The command is read from a descriptor, so it is exactly the text that was judged, whatever its
# length, and stands in no process list. It does not have the descriptor on which the shell around
# it reports: first that it came to life, last the directory in which it ended.
LAUNCHER = """\
echo entered >&{report} && {limits} || exit 126
. /dev/fd/{command} {report}>&-
status=$?
[ $status -eq 0 ] && pwd -P >&{report}
exit $status
"""


def launcher(limits: Limits | None, *, command: int, report: int) -> list[str]:
    """The shell that runs a command, given the numbers of its two descriptors."""
    words = shell_limits(limits) if limits else "true"
    return [*BASH, LAUNCHER.format(limits=words, command=command, report=report)]


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolRoom:
    argv: list[str]
    """To be followed by the command line that is to run inside."""
    environment: Mapping[str, str]
    """Also bubblewrap's own: the room's first process shows it to the others."""


class ToolRooms:
    """The rooms of one run. What they share is looked up once."""

    def __init__(self, place: RunPlace, limits: Limits) -> None:
        self._place = place
        self._limits = limits
        self._home = room_home(place)
        own = (place.config_directory, place.temp_directory, place.run_directory)
        self._mounts: list[Mount] = [
            *room_mounts(place, temporary_bytes=limits.temporary_bytes),
            *hiding(map(str, own), sealed=True),
            Private(path=self._home, size=limits.home_bytes),
        ]

    def room_for(self, opening: Collection[str], cwd: str) -> ToolRoom:
        behind = opened(opening, self._place, self._mounts)
        mounts = [*self._mounts, *behind.mounts, *_sockets_outside(behind.mounts)]
        environment = {
            **self._place.tool_environment,
            "HOME": self._home,
            "TMPDIR": TEMPORARY,
            **dict(behind.environment),
        }
        process_table = (
            ["--ro-bind", "/proc", "/proc"] if doors.PROCESSES in opening else ["--proc", "/proc"]
        )
        network = [] if NEED_NETWORK & set(opening) else ["--unshare-net"]
        return ToolRoom(
            argv=[
                bubblewrap.BWRAP,
                *bubblewrap.ISOLATION,
                *network,
                *("--ro-bind", "/", "/", "--dev", "/dev"),
                *process_table,
                *mount_arguments(mounts),
                # As root /proc/sys is writable even without any capability.
                *("--remount-ro", "/dev", "--remount-ro", "/proc"),
                *("--chdir", cwd, "--"),
            ],
            environment=environment,
        )


def _sockets_outside(behind: Sequence[Mount]) -> list[Hidden]:
    """All sockets but those that a door has let in."""
    shown = [mount.path for mount in behind if isinstance(mount, Shown)]
    return [
        socket
        for socket in hidden_sockets()
        if not any(is_inside(socket.path, path) for path in shown)
    ]
