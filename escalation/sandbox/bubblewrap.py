"""Detects whether bubblewrap sandboxes work on this host and, if not, what to install or set."""

from __future__ import annotations

import os
import re
import socket
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

BWRAP = "/usr/bin/bwrap"
NSENTER = "/usr/bin/nsenter"
OLDEST = (0, 8)
"""The first version with `--disable-userns`."""
TIMEOUT_SECONDS = 20

# A process in its own user namespace cannot read the environment or the descriptors of a process
# outside, not even as root.
NAMESPACES = ("--unshare-ipc", "--unshare-uts", "--die-with-parent", "--new-session")
ISOLATION = (
    *("--unshare-user", "--disable-userns", "--unshare-pid", *NAMESPACES, "--cap-drop", "ALL"),
)
SMALLEST_SANDBOX = (
    *ISOLATION,
    *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--remount-ro", "/proc"),
    *("--size", "4096", "--tmpfs", "/tmp", "--unshare-net", "--", "/bin/true"),  # noqa: S108
)

# The mounts that are made once, and those of a command that enters them. A new /proc can be mounted
# only where one that can be written is seen. Root can write /proc/sys even without any capability.
FILE_SYSTEM = ("--ro-bind", "/", "/", "--dev", "/dev", "--dev-bind", "/proc", "/proc")
ENTERED = ("--dev-bind", "/", "/", "--proc", "/proc", "--remount-ro", "/proc")
ENTERED_WITH_PROCESSES = ("--dev-bind", "/", "/", "--remount-ro", "/proc")

MISSING = "bubblewrap is not installed. Install it: apt-get install bubblewrap"
TOO_OLD = "bubblewrap {version} is too old: sandboxes need 0.8 or newer (Debian 12, Ubuntu 24.04)"
NO_NAMESPACES = (
    "the kernel forbids user namespaces. Set: sysctl -w user.max_user_namespaces=15000 "
    "kernel.unprivileged_userns_clone=1 (in /etc/sysctl.d to keep it)"
)
APPARMOR = (
    "AppArmor forbids unprivileged user namespaces. Allow them to /usr/bin/bwrap by a profile with "
    "`userns,` in /etc/apparmor.d/bwrap, or set: "
    "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
)
CONTAINER = (
    "the container's seccomp profile forbids namespaces. Start it with: --security-opt "
    "seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined"
)
OTHER = "bubblewrap does not work here: {error}"
SWITCHED_OFF = "switched off (CLAUDEOPS_SANDBOX=off)"


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxState:
    in_force: bool
    why: str
    """The reason why there is no sandbox, and what to set; empty if it is in force."""
    version: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelFacts:
    """Tell causes apart for which bubblewrap prints the same error."""

    namespaces_off: bool = False
    apparmor_restricts: bool = False
    in_container: bool = False


def sandbox_state(mode: str) -> SandboxState:
    """Detect the state for `required`; the caller refuses to run without a sandbox."""
    if mode == "off":
        return SandboxState(in_force=False, why=SWITCHED_OFF)
    return _detected(BWRAP)


def forget_sandbox_state() -> None:
    _detected.cache_clear()


@lru_cache(maxsize=4)
def _detected(program: str) -> SandboxState:
    try:
        version = _output_of([program, "--version"]).stdout.removeprefix("bubblewrap ").strip()
        if _numbers(version) < OLDEST:
            why = TOO_OLD.format(version=version)
            return SandboxState(in_force=False, why=why, version=version)
        problem = _problem_of([program, *SMALLEST_SANDBOX]) or _problem_of_entered()
    except FileNotFoundError as error:
        missing = OTHER.format(error=error) if error.filename == NSENTER else MISSING
        return SandboxState(in_force=False, why=missing)
    except (OSError, subprocess.TimeoutExpired) as error:
        return SandboxState(in_force=False, why=OTHER.format(error=error))
    if not problem:
        return SandboxState(in_force=True, why="", version=version)
    return SandboxState(in_force=False, why=explain(problem, kernel_facts()), version=version)


def _problem_of(argv: Sequence[str], descriptors: Sequence[int] = ()) -> str:
    """Return what a sandbox complains about; empty if it works."""
    tried = _output_of(argv, descriptors)
    if tried.returncode == 0:
        return ""
    return tried.stderr.strip() or f"it ended with code {tried.returncode}"


def _problem_of_entered() -> str:
    """Try the sandbox of a command, whose mounts are made before."""
    try:
        mounts = mount_namespace(FILE_SYSTEM)
    except SandboxNotMade as error:
        return str(error)
    options, descriptors = isolation()
    inside = [*entering(mounts), BWRAP, *options, *ENTERED, "--", "/bin/true"]
    return _problem_of(inside, descriptors)


def explain(error: str, facts: KernelFacts) -> str:
    """Turn bubblewrap's error into its cause and what to set."""
    is_refusal = re.search(
        r"new namespace|uid map|userns|user namespace|NEWADDR|mount proc|Operation not permitted",
        error,
    )
    if not is_refusal:
        return OTHER.format(error=error[:300])
    if facts.namespaces_off or "ENOSPC" in error:
        reason = NO_NAMESPACES
    elif facts.in_container:
        reason = CONTAINER
    elif facts.apparmor_restricts:
        reason = APPARMOR
    else:
        return OTHER.format(error=error[:300])
    return f"{reason} ({error[:200]})"


def kernel_facts(root: Path = Path("/")) -> KernelFacts:
    system = root / "proc/sys"
    off = (
        _read(system / "user/max_user_namespaces") == "0"
        or _read(system / "kernel/unprivileged_userns_clone") == "0"
    )
    return KernelFacts(
        namespaces_off=off,
        apparmor_restricts=_read(system / "kernel/apparmor_restrict_unprivileged_userns") == "1",
        in_container=any((root / name).exists() for name in (".dockerenv", "run/.containerenv")),
    )


def _output_of(
    argv: Sequence[str], descriptors: Sequence[int] = ()
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        env={},
        pass_fds=descriptors,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


# Namespaces that are made once. To mount a file takes longer than to start a program, and a sandbox
# has about a hundred mounts. So the mounts and the network of a sandbox are set up once for a run,
# by a process that ends at once; descriptors keep them. Each command enters them and gets a process
# table, a user namespace and few mounts of its own.

# Prints its number when all is mounted, and waits until its namespaces are held.
HOLD = 'echo $$; read -r _line; exec "$@"'
HOLD_SECONDS = 20.0
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


class SandboxNotMade(Exception):
    """Bubblewrap could not make a namespace or a mount; the message is its own."""


class Namespace:
    """A namespace without processes, which exists as long as this object."""

    def __init__(self, kind: str, path: Path) -> None:
        self._kind = kind
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self.descriptor)

    @property
    def option(self) -> str:
        """The option of nsenter; the descriptor is not passed on to the program."""
        kind = {"mnt": "mount"}.get(self._kind, self._kind)
        return f"--{kind}=/proc/{os.getpid()}/fd/{self.descriptor}"


def entering(*namespaces: Namespace) -> list[str]:
    """Return the beginning of a command line that runs in these and in our user namespace."""
    options = (one.option for one in (user_namespace(), *namespaces))
    return [NSENTER, *options, "--preserve-credentials", "--"]


def mount_namespace(arguments: Sequence[str]) -> Namespace:
    """Make the mounts of a sandbox."""
    return _held("mnt", [*entering(), BWRAP, *arguments, "--die-with-parent", "--"])


# Lets the ports of brokers listen, and passes the sockets on.
LISTEN = """
import socket, sys
outside = socket.socket(fileno=int(sys.argv[1]))
listeners = [socket.create_server(("127.0.0.1", int(port)), backlog=64) for port in sys.argv[2:]]
socket.send_fds(outside, [b"x"], [listener.fileno() for listener in listeners])
"""


def network_namespace(ports: Sequence[int]) -> tuple[Namespace, list[socket.socket]]:
    """Make a network without any way out, with sockets that listen on these ports."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        listen = [sys.executable, "-IS", "-c", LISTEN, str(theirs.fileno()), *map(str, ports)]
        namespace = _held(
            "net",
            [*entering(), *(BWRAP, "--unshare-net", "--dev-bind", "/", "/", "--die-with-parent")],
            listen,
            pass_fds=(theirs.fileno(),),
        )
        _data, descriptors, _flags, _address = socket.recv_fds(ours, 1, len(ports))
    return namespace, [socket.socket(fileno=descriptor) for descriptor in descriptors]


# Root in an ordinary user namespace owns the files of root alone: it could not even list the
# working directory of another user. In a namespace that maps every user, with the capabilities to
# override permissions, it reads and writes what the mounts permit, as it would by hand.

EVERY_USER = "0 0 4294967295"
OF_ROOT = ("CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_CHOWN")
MAP = f'echo "{EVERY_USER}" > "/proc/$1/uid_map" && echo "{EVERY_USER}" > "/proc/$1/gid_map"'


# A thread that made a second namespace would name its descriptor, which closes with it.
_making = threading.RLock()


def user_namespace() -> Namespace:
    """Return the user namespace in which this process sets up its sandboxes, made once.

    An ordinary user is user 0 there, and no other user exists.
    """
    with _making:
        return _user_namespace()


def _command_user_namespace() -> Namespace:
    """Return the user namespace of root's commands, in which they own no mount."""
    with _making:
        return _all_users_for_commands()


@lru_cache(maxsize=1)
def _user_namespace() -> Namespace:
    if os.getuid() == 0:
        return _namespace_of_all_users(())
    as_root = ("--unshare-user", "--uid", "0", "--gid", "0")
    return _held("user", [BWRAP, *as_root, "--dev-bind", "/", "/", "--die-with-parent", "--"])


@lru_cache(maxsize=1)
def _all_users_for_commands() -> Namespace:
    return _namespace_of_all_users(entering())


def forget_namespaces() -> None:
    """Make them again, in a process of another user."""
    with _making:
        _user_namespace.cache_clear()
        _all_users_for_commands.cache_clear()


def _namespace_of_all_users(inside: Sequence[str]) -> Namespace:
    def map_users(pid: int) -> None:
        subprocess.run([*inside, "/bin/sh", "-c", MAP, "sh", str(pid)], check=True)

    return _held("user", [*inside, "unshare", "--user"], when_ready=map_users)


def _held(
    kind: str,
    argv: Sequence[str],
    program: Sequence[str] = ("true",),
    *,
    pass_fds: Sequence[int] = (),
    when_ready: Callable[[int], None] = lambda pid: None,
) -> Namespace:
    """Run a program in namespaces that `argv` makes, and keep one of them."""
    with subprocess.Popen(
        [*argv, "/bin/sh", "-c", HOLD, "sh", *program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": PATH},
        cwd="/",
        pass_fds=pass_fds,
        start_new_session=True,
    ) as holder:
        assert holder.stdout
        number = holder.stdout.readline().strip()
        found = None
        try:
            if number:
                when_ready(int(number))
                found = Namespace(kind, Path(f"/proc/{int(number)}/ns/{kind}"))
            _printed, errors = holder.communicate(b"\n", timeout=HOLD_SECONDS)
        except (OSError, subprocess.SubprocessError) as error:
            holder.kill()
            raise SandboxNotMade(f"{argv[0]}: {error}") from error
    if found is None or holder.returncode:
        problem = errors.decode(errors="replace").strip()
        raise SandboxNotMade(problem or f"{argv[0]} ended with code {holder.returncode}")
    return found


def isolation(*, own_processes: bool = True) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the options that isolate a command, and the descriptors that they name.

    They are for bubblewrap in our user namespace.
    """
    process_table = ("--unshare-pid",) if own_processes else ()
    if os.getuid() != 0:
        user = ("--uid", str(os.getuid()), "--gid", str(os.getgid()))
        users = ("--unshare-user", "--disable-userns", *user)
        return (*users, *process_table, *NAMESPACES, "--cap-drop", "ALL"), ()
    namespace = _command_user_namespace().descriptor
    capabilities = (word for name in OF_ROOT for word in ("--cap-add", name))
    options = ("--userns", str(namespace), *process_table, *NAMESPACES, "--cap-drop", "ALL")
    return (*options, *capabilities), (namespace,)


# System calls that no command needs and that have broken sandboxes before. A namespace of its own
# would let a process rearrange what the sandbox mounted.

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_FORBIDDEN_CALLS = {
    "x86_64": (
        *(101, 310, 311),  # ptrace, process_vm_readv, process_vm_writev
        *(155, 161, 165, 166),  # pivot_root, chroot, mount, umount2
        *(248, 249, 250),  # add_key, request_key, keyctl
        *(272, 308),  # unshare, setns
        *(298, 321, 323),  # perf_event_open, bpf, userfaultfd
        *(304, 425, 426, 427),  # open_by_handle_at, io_uring_setup, _enter, _register
        *(428, 429, 430, 431, 432, 433, 442),  # open_tree … fspick, mount_setattr
    ),
    "aarch64": (
        *(117, 270, 271, 41, 51, 40, 39),
        *(217, 218, 219, 97, 268, 241, 280, 282, 265),
        *(425, 426, 427, 428, 429, 430, 431, 432, 433, 442),
    ),
}
# kill, tkill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo, pidfd_send_signal
_SIGNALS = {
    "x86_64": (62, 200, 234, 129, 297, 424),
    "aarch64": (129, 130, 131, 138, 240, 424),
}
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE3 = 435
_NEW_USER_NAMESPACE = 0x10000000
_X32_BIT = 0x40000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _REFUSE, _ABSENT, _KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16


@lru_cache
def seccomp_program(machine: str = "", *, signals: bool = True) -> bytes:
    """Return the filter of system calls for bubblewrap; empty for an unknown machine.

    Without `signals` a process cannot signal others: for a sandbox with the host's processes.
    A refused call fails with EPERM. `clone3`, whose flags a filter cannot see, fails with ENOSYS,
    and libraries then use `clone`.
    """
    machine = machine or os.uname().machine
    if machine not in _ARCHITECTURES:
        return b""
    calls = (*_FORBIDDEN_CALLS[machine], *(() if signals else _SIGNALS[machine]))
    # Each row: the instruction, where to jump if it holds and if not, and its value. The endings
    # come last; an empty name goes on with the next row.
    rows: list[tuple[int, str, str, int]] = [
        (_LOAD, "", "", _ARCHITECTURE),
        (_EQUAL, "", "kill", _ARCHITECTURES[machine]),
        (_LOAD, "", "", _NUMBER),
        (_AT_LEAST, "kill", "", _X32_BIT),
        *((_EQUAL, "refuse", "", call) for call in calls),
        (_EQUAL, "absent", "", _CLONE3),
        (_EQUAL, "", "allow", _CLONE[machine]),
        (_LOAD, "", "", _FIRST_ARGUMENT),
        (_ANY_BIT, "refuse", "allow", _NEW_USER_NAMESPACE),
    ]
    endings = {"allow": _ALLOW, "refuse": _REFUSE, "absent": _ABSENT, "kill": _KILL}
    places = {name: len(rows) + index for index, name in enumerate(endings)}
    program = b""
    for index, (code, if_true, if_false, value) in enumerate(rows):
        jumps = [places[name] - index - 1 if name else 0 for name in (if_true, if_false)]
        program += struct.pack("=HBBI", code, *jumps, value)
    return program + b"".join(struct.pack("=HBBI", _RETURN, 0, 0, end) for end in endings.values())
