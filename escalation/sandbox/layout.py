"""Computes which paths a sandbox shows and hides, as bubblewrap mounts.

A sandbox starts with the whole file system, read-only. Mounts are placed over it from the root
downwards, so the nearest mount above a path decides: a working directory inside a hidden directory
is shown, a state directory inside a working directory is hidden. Mounted paths are resolved,
because a mount follows no symbolic link.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import logging
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from django.conf import settings

from escalation.command_policy.grants import Grants
from sessions_app.models.watch import CONFIGURATION_FILES, our_places

NOTHING = "/dev/null"
logger = logging.getLogger(__name__)


class Strength(IntEnum):
    """Decides which of two mounts at the same path is used."""

    HIDDEN = 0
    KEPT = 1
    SHOWN = 2
    WRITABLE = 3
    ALWAYS_HIDDEN = 4
    """State, code and keys: only a path below can be shown again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hidden:
    path: str
    is_directory: bool = True
    always: bool = False
    is_kept: bool = False
    """Mounted, empty, even inside a directory that is hidden."""

    @property
    def strength(self) -> Strength:
        if self.always:
            return Strength.ALWAYS_HIDDEN
        return Strength.KEPT if self.is_kept else Strength.HIDDEN


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    path: str
    source: str = ""
    """The path on the host; empty if it is the same."""
    writable: bool = False

    @property
    def strength(self) -> Strength:
        return Strength.WRITABLE if self.writable else Strength.SHOWN

    @property
    def origin(self) -> str:
        return self.source or self.path

    @property
    def is_plain(self) -> bool:
        """Return whether it shows what the sandbox starts with: the same path, read-only."""
        return not self.writable and not self.source


@dataclass(frozen=True, kw_only=True, slots=True)
class Linked:
    """A symbolic link of the host in a hidden directory."""

    path: str
    target: str

    @property
    def strength(self) -> Strength:
        return Strength.SHOWN


@dataclass(frozen=True, kw_only=True, slots=True)
class Private:
    """A writable directory that shows nothing of the host's: empty, or that of the run."""

    path: str
    size: int
    mode: str = "0700"
    source: str = ""
    """The directory of the run that is mounted; empty for a directory of the sandbox's own."""

    @property
    def strength(self) -> Strength:
        return Strength.KEPT


@dataclass(frozen=True, kw_only=True, slots=True)
class Closed:
    """A directory of which only the name is shown."""

    path: str

    @property
    def strength(self) -> Strength:
        return Strength.KEPT


Mount = Hidden | Shown | Linked | Private | Closed


def mount_arguments(mounts: Iterable[Mount]) -> list[str]:
    """Return the mounts as arguments that follow those for the file system, /dev and /proc."""
    chosen = list(_needed(_one_for_each_path(mounts)))
    arguments = [word for mount in chosen for word in _arguments(mount)]
    # Empty directories become read-only last: until then mount points are created in them.
    closed = [mount.path for mount in chosen if isinstance(mount, Hidden) and mount.is_directory]
    return arguments + [word for path in closed for word in ("--remount-ro", path)]


def own_arguments(mounts: Iterable[Mount]) -> list[str]:
    """Return the mounts that each command has for itself, where all others are in place.

    These are the temporary directories, and again the mounts that lie in them.
    """
    chosen = list(_needed(_one_for_each_path(mounts)))
    own = [mount for mount in chosen if isinstance(mount, Private) and not mount.source]
    arguments: list[str] = []
    for mount in chosen:
        if mount in own or isinstance(mount, Linked) and _lies_in(mount, own):
            arguments += _arguments(mount)
        elif _lies_in(mount, own):
            arguments += ["--bind", mount.path, mount.path]
    return arguments


def _lies_in(mount: Mount, others: Iterable[Mount]) -> bool:
    return any(is_inside(mount.path, other.path) for other in others)


def is_hidden(path: str, mounts: Iterable[Mount]) -> bool:
    """Return whether a sandbox with these mounts hides the host's file at this path."""
    return hidden_by(mounts)(path)


def hidden_by(mounts: Iterable[Mount]) -> Callable[[str], bool]:
    """Return a function that tells whether a sandbox with these mounts hides a path."""
    places = {mount.path: mount for mount in _one_for_each_path(mounts)}

    def hides(path: str) -> bool:
        while path not in places and path != "/":
            path = os.path.dirname(path)
        nearest = places.get(path)
        return nearest is not None and not isinstance(nearest, Shown | Linked)

    return hides


def is_inside(path: str, directory: str) -> bool:
    """Compare as text: the paths are resolved, and each command needs this some thousand times."""
    return path == directory or path.startswith(f"{directory.rstrip('/')}/")


def _one_for_each_path(mounts: Iterable[Mount]) -> list[Mount]:
    """Return the strongest mount for each path, from the root downwards."""
    strongest: dict[str, Mount] = {}
    for mount in mounts:
        rival = strongest.get(mount.path)
        if rival is None or mount.strength > rival.strength:
            strongest[mount.path] = mount
    return sorted(strongest.values(), key=lambda mount: (_depth(mount.path), mount.path))


def _needed(mounts: list[Mount]) -> Iterator[Mount]:
    """Skip mounts that change nothing: hidden below a hidden directory, or shown below none."""
    kept: list[Mount] = []
    for mount in mounts:
        above = [other for other in kept if is_inside(mount.path, other.path)]
        lies_in_hidden = bool(above) and not isinstance(above[-1], Shown)
        if isinstance(mount, Hidden) and lies_in_hidden and not mount.is_kept:
            continue
        if isinstance(mount, Linked) and not lies_in_hidden:
            continue
        if isinstance(mount, Shown) and mount.is_plain and _is_unchanged(above):
            continue
        kept.append(mount)
        yield mount


def _is_unchanged(above: list[Mount]) -> bool:
    """Return whether a path under these mounts is as the sandbox starts with it."""
    return all(isinstance(mount, Shown) and mount.is_plain for mount in above)


def _arguments(mount: Mount) -> list[str]:
    match mount:
        case Hidden(path=path, is_directory=True, is_kept=False):
            # Paths below can be shown; to list it fails, because an empty list would be false.
            return ["--perms", "0111", "--tmpfs", path]
        case Closed(path=path):
            return ["--perms", "0000", "--tmpfs", path, "--remount-ro", path]
        case Hidden(path=path, is_directory=True):
            return ["--tmpfs", path]
        case Hidden(path=path):
            return ["--ro-bind", NOTHING, path]
        case Private(path=path, source=source) if source:
            return ["--bind", source, path]
        case Private(path=path, size=size, mode=mode):
            return ["--perms", mode, "--size", str(size), "--tmpfs", path]
        case Linked(path=path, target=target):
            return ["--symlink", target, path]
        case Shown(path=path, writable=writable):
            return ["--bind" if writable else "--ro-bind", mount.origin, path]


def _depth(path: str) -> int:
    return 0 if path == "/" else path.count("/")


# Files and directories that no sandbox shows: keys, sockets, homes, this installation.

HOMES = ("/root", "/home")
SOCKET_DIRECTORIES = ("/run", "/var/run")

# Readable by root; missing ones are skipped.
SECRETS = (
    *("/etc/shadow*", "/etc/gshadow*", "/etc/sudoers*", "/etc/security/opasswd"),
    *("/etc/ssh/*_key", "/etc/ssl/private", "/etc/krb5.keytab", "/etc/wireguard"),
    *("/etc/NetworkManager/system-connections", "/etc/wpa_supplicant", "/etc/ppp/*-secrets"),
    *("/etc/letsencrypt/archive", "/etc/letsencrypt/live", "/etc/kubernetes", "/etc/rancher"),
    *("/etc/openvpn", "/etc/ipsec.secrets", "/etc/netplan", "/etc/msmtprc"),
    *("/var/backups", "/var/lib/rancher/k3s/server", "/var/lib/kubelet/pki"),
    *("/var/lib/sss/secrets", "/var/lib/private"),
)

# Hidden in every home, in case a watch names a whole home.
HOME_SECRETS = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".claude", ".claude.json"),
    *(".netrc", ".git-credentials", ".pgpass", ".my.cnf", ".npmrc", ".pypirc", ".vault-token"),
    *(".config/gh", ".config/gcloud", ".config/rclone", ".password-store", ".local/share/keyrings"),
    *(".bash_history", ".zsh_history", ".python_history", ".psql_history", ".mysql_history"),
)

# Engine sockets outside /run: a process that connects to one controls the host.
SOCKETS = (
    *("/var/lib/lxd/unix.socket", "/var/snap/lxd/common/lxd/unix.socket"),
    *("/var/lib/incus/unix.socket", "/var/lib/libvirt/qemu", "/var/lib/snapd/socket"),
    *("/var/lib/docker/docker.sock", "/var/lib/containerd/containerd.sock"),
)


def installation_paths() -> tuple[Path, ...]:
    """Return all paths of this installation, with the files beside its database."""
    scenarios = settings.CLAUDEOPS_SCENARIOS_DIR
    return (
        *our_places().values(),
        *([Path(scenarios)] if scenarios else []),
        *_database_files(),
    )


def _database_files() -> list[Path]:
    database = settings.DATABASES["default"]
    if not database["ENGINE"].endswith("sqlite3"):
        return []
    return [Path(f"{database['NAME']}{ending}") for ending in ("-wal", "-shm", "-journal")]


CLIENT_NAME, SOCKET_NAME = "tool-client", "tools.sock"
SHIM_NAME, SHIM_SOCKET_NAME = "shim", "exec.sock"
SHARED_TEMPORARY_NAME = "shared-tmp"
CALLS_NAME = "calls"
OURS = "/run/claudeops"
"""Where a command sandbox has the shim, its socket and, without a home, HOME."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPaths:
    """The directories, sockets and options from which the sandboxes of one run are built."""

    workdir: Path
    config_directory: Path
    """The configuration of the CLI for this run, always writable for it."""
    temp_directory: Path
    """The TMPDIR of the CLI on the host: output and last directory of its tools are stored here."""
    run_directory: Path
    """Holds the client program and the socket of the command runner; read-only in every sandbox."""
    operator_home: Path
    """The home of the user who runs the worker."""
    tool_environment: Mapping[str, str]
    """The environment of a command, made by `clean_environment`."""
    hidden: tuple[Path, ...] = ()
    """State, code and prompts: hidden even inside the working directory."""
    other_watches: tuple[Path, ...] = ()
    """Their directories: hidden, unless they are inside a path that this watch names."""
    grants: Grants = field(default_factory=Grants)
    writable: bool = False
    """Return whether the working directory and `grants.writable` may be written."""
    configuration: Path | None = None
    """Copies of the configuration files in a writable working directory, made by
    `copied_configuration`. Every sandbox shows them, read-only, in the place of the files."""
    sandboxed: bool = True
    """Without sandboxes only single vectors that the policy allows run, on the host."""
    docker_socket: Path | None = None
    """The socket of the Docker filter, never that of the engine."""
    ssh_agent: Path | None = None
    """The socket of the agent that holds the operator's keys."""
    kubeconfig: Path | None = None
    """A kubeconfig that names the Kubernetes filter, without credentials."""
    docker_engine: Path | None = None
    """The socket of the engine itself, for remedies that change something."""
    operator_kubeconfig: Path | None = None
    """The kubeconfig of the operator, for remedies that change something."""
    stand_ins: tuple[Path, ...] = ()
    """Directories with the programs of a drill."""
    mark: str = ""
    tool_log: Path | None = None
    """Lists the processes of commands on the host, so that recovery can stop them."""

    def is_own_directory(self, directory: str) -> bool:
        """Return whether it is inside the working directory or a granted path, links resolved."""
        real = Path(os.path.realpath(directory))
        own = (self.workdir, *map(Path, self.grants.writable))
        return any(real.is_relative_to(os.path.realpath(path)) for path in own)

    @property
    def client(self) -> Path:
        return self.run_directory / CLIENT_NAME

    @property
    def socket(self) -> Path:
        return self.run_directory / SOCKET_NAME

    @property
    def shim(self) -> Path:
        return self.run_directory / SHIM_NAME

    @property
    def calls(self) -> Path:
        """The directory with a socket for each Bash call that runs."""
        return self.run_directory / CALLS_NAME

    @property
    def shared_temporary(self) -> Path:
        """The /tmp of every sandbox of this run."""
        return self.run_directory / SHARED_TEMPORARY_NAME


# Lookup of the paths on this host. In its user namespace root is an ordinary owner: a file in
# another user's private directory need not be hidden and cannot be shown.

TEMPORARY = "/tmp"  # noqa: S108 (the sandbox's own)
RUNNING = "/run"
ALSO_TEMPORARY = ("/var/tmp", "/dev/shm")  # noqa: S108
RESOLVER = "/etc/resolv.conf"
SEARCH, WRITE = stat.S_IXOTH, stat.S_IWOTH
UNIX_SOCKETS = Path("/proc/net/unix")
MOUNTS = Path("/proc/self/mountinfo")


def sandbox_mounts(paths: RunPaths, *, temporary_bytes: int) -> list[Mount]:
    """Return the mounts of both the CLI sandbox and the command sandboxes of a run."""
    hidden: list[Mount] = [
        *hiding((*HOMES, *SOCKET_DIRECTORIES, str(paths.operator_home))),
        *hiding([path for pattern in (*SECRETS, *SOCKETS) for path in glob.glob(pattern)]),
        *hiding(_secrets_of_homes(paths.operator_home)),
        *hiding(map(str, paths.hidden), always=True),
        *_temporary_directories(temporary_bytes, str(paths.shared_temporary)),
    ]
    named = [paths.workdir, *map(Path, (*paths.grants.readable, *paths.grants.writable))]
    writable = {paths.workdir, *map(Path, paths.grants.writable)} if paths.writable else set()
    shown = [mount for path in named for mount in showing(path, hidden, writable=path in writable)]
    others = [
        mount
        for mount in hiding(map(str, paths.other_watches))
        if not any(is_inside(mount.path, other.path) for other in shown)
    ]
    disks = [Shown(path=path) for path in _disks_in_homes()]
    return [
        *hidden,
        *disks,
        *others,
        *shown,
        *_configuration(paths),
        *showing(Path(RESOLVER), hidden),
    ]


def sandbox_home(paths: RunPaths) -> str:
    """Return the empty HOME of a sandbox, at the path in the user database, which ssh reads."""
    home = os.path.realpath(paths.operator_home)
    return home if home != "/" and os.path.isdir(home) else f"{OURS}/home"


def why_unreachable(path: Path) -> str:
    """Return the reason why a sandbox cannot show this path; empty if it can."""
    closed = next(
        (
            parent
            for parent in _parents_of(os.path.realpath(path))
            if not _has_permission(parent, SEARCH)
        ),
        "",
    )
    return (
        f"{path} cannot be shown in a sandbox: {closed} belongs to another user and is closed. "
        "Run Claude Ops as that user, or open the directory (chmod o+x)."
        if closed
        else ""
    )


def hiding(paths: Iterable[str], *, always: bool = False) -> list[Hidden]:
    real = {os.path.realpath(path) for path in paths}
    return [
        Hidden(path=path, is_directory=os.path.isdir(path), always=always)
        for path in sorted(real)
        if path != "/" and os.path.lexists(path) and is_reachable(path)
    ]


def showing(path: Path, hidden: Iterable[Mount], *, writable: bool = False) -> list[Shown | Linked]:
    """Show a path at its resolved place and, if a hidden directory is on the way, as written."""
    real = os.path.realpath(path)
    if not os.path.exists(real) or not is_reachable(real):
        return []
    shown: list[Shown | Linked] = [Shown(path=real, writable=writable)]
    written = _as_written(path, list(hidden))
    if written and written != real:
        shown.append(Linked(path=written, target=real))
    return shown


def hidden_sockets() -> list[Hidden]:
    """Hide every listening socket: a read-only mount does not prevent a connection."""
    try:
        lines = UNIX_SOCKETS.read_text(errors="surrogateescape").splitlines()[1:]
    except OSError:
        return []
    columns = (line.split(None, 7) for line in lines)
    paths = {words[7] for words in columns if len(words) > 7 and words[7].startswith("/")}
    # Bound through a descriptor of another process.
    paths = {path for path in paths if not path.startswith("/proc/")}
    return hiding(path for path in paths if _has_permission(path, WRITE))


def is_reachable(path: str) -> bool:
    return all(_has_permission(parent, SEARCH) for parent in _parents_of(path))


def _parents_of(path: str) -> list[str]:
    return [str(parent) for parent in reversed(Path(path).parents)]


def _has_permission(path: str, permission: int) -> bool:
    """Check the permission bits alone: a sandbox has no capability that overrides them."""
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
    """Resolve links as far as a sandbox can follow them."""
    reached = "/"
    parts = Path(os.path.abspath(path)).parts[1:]
    for index, part in enumerate(parts):
        reached = os.path.realpath(os.path.join(reached, part))
        if is_hidden(reached, hidden):
            return os.path.join(reached, *parts[index + 1 :])
    return ""


def _temporary_directories(size: int, shared: str) -> list[Private]:
    """Mount others than the host's, which hold files and sockets of every user."""
    temporary = os.path.realpath(TEMPORARY)
    own = {os.path.realpath(path) for path in ALSO_TEMPORARY} - {temporary}
    return [
        Private(path=temporary, size=size, mode="1777", source=shared),
        *(
            Private(path=path, size=size, mode="1777")
            for path in sorted(own)
            if os.path.isdir(path)
        ),
    ]


MOST_SHOWN = 40
"""Each is a mount, and every command of the run copies and removes all mounts of its sandbox."""


def shown_files(shared: Path, mounts: Iterable[Mount], mount_points: set[str]) -> list[Mount]:
    """Show what everybody may read of the host's /tmp and /run, read-only.

    In /tmp also directories, closed ones by their names, but nothing that the run has a file of its
    own for: `mount_points` are the names in the directory of the run that were made to show
    something, and are kept here.
    In /run only files, and of its directories only files *.pid: others belong to single services.
    """
    taken = {mount.path for mount in mounts}
    own = set(os.listdir(shared)) - mount_points
    temporary: dict[str, Mount] = {
        entry.name: Shown(path=entry.path) if is_public else Closed(path=entry.path)
        for entry in _newest(TEMPORARY)
        if entry.name not in own
        and ((is_public := _is_public(entry, directories=True)) or entry.is_dir())
    }
    for name in mount_points - temporary.keys():
        _remove_empty(shared / name)
    mount_points.intersection_update(temporary)
    mount_points.update(temporary)
    running = [entry.path for entry in _newest(RUNNING) if _is_public(entry)]
    named = [path for path in glob.glob(f"{RUNNING}/*/*.pid") if is_reachable(path)]
    running += [path for path in named if not os.path.islink(path) and os.path.isfile(path)]
    found = (*temporary.values(), *(Shown(path=path) for path in running))
    return [mount for mount in found if mount.path not in taken]


def _remove_empty(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.is_dir():
            path.rmdir()
        elif path.stat().st_size == 0:
            path.unlink()


def _newest(directory: str) -> list[os.DirEntry[str]]:
    try:
        entries = [entry for entry in os.scandir(directory) if not entry.is_symlink()]
        entries.sort(key=lambda entry: -entry.stat(follow_symlinks=False).st_mtime)
    except OSError:
        return []
    return entries[:MOST_SHOWN]


def _is_public(entry: os.DirEntry[str], *, directories: bool = False) -> bool:
    try:
        mode = entry.stat(follow_symlinks=False).st_mode
    except OSError:
        return False
    if stat.S_ISDIR(mode):
        return directories and mode & 0o005 == 0o005
    return stat.S_ISREG(mode) and bool(mode & stat.S_IROTH)


def _disks_in_homes() -> list[str]:
    """Return file systems that are mounted in homes and open to everybody: data, no home."""
    try:
        lines = MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
    points = {line.split(" ")[4] for line in lines}
    return [
        path
        for path in sorted(points)
        if any(path.startswith(f"{home}/") for home in HOMES)
        and "\\" not in path
        and not any(f"/{name}" in path for name in HOME_SECRETS)
        and is_reachable(path)
        and os.path.isdir(path)
        and os.stat(path).st_mode & 0o005 == 0o005
    ]


def _secrets_of_homes(own: Path) -> list[str]:
    homes = {str(own), "/root", *glob.glob("/home/*")}
    return [os.path.join(home, name) for home in homes for name in HOME_SECRETS]


def _configuration(paths: RunPaths) -> list[Shown]:
    if paths.configuration is None:
        return []
    workdir = os.path.realpath(paths.workdir)
    return [
        Shown(path=os.path.join(workdir, name), source=str(paths.configuration / name))
        for name in sorted(os.listdir(paths.configuration))
    ]


# Copies of configuration files. A sandbox must not mount the files themselves: a container or the
# session of another watch could replace one by a link to any file of the host in the moment of the
# mount, and bubblewrap follows links.

MOST_COPIED_BYTES = 16 * 1024 * 1024
BYTES_OF_AN_ENTRY = 4096
DEEPEST_COPY = 32
OPENED = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def copied_configuration(workdir: Path, target: Path) -> Path:
    """Copy the configuration files of a working directory into `target`, and return it.

    A name that is a link is left out: a mount cannot cover a link.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(mode=0o700, parents=True)
    parent = os.open(workdir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in CONFIGURATION_FILES:
            try:
                if not stat.S_ISLNK(_stat(name, parent).st_mode):
                    _copy(name, parent, target / name, MOST_COPIED_BYTES)
            except FileNotFoundError:
                continue
            except OSError as error:
                logger.warning("%s in %s is not protected: %s", name, workdir, error)
                shutil.rmtree(target / name, ignore_errors=True)
                (target / name).unlink(missing_ok=True)
    finally:
        os.close(parent)
    return target


def _copy(name: str, parent: int, target: Path, left: int, depth: int = 0) -> int:
    """Copy a file or a directory without following links; return the bytes left of the limit."""
    found = _stat(name, parent)
    left -= BYTES_OF_AN_ENTRY + (found.st_size if stat.S_ISREG(found.st_mode) else 0)
    if left < 0 or depth > DEEPEST_COPY:
        raise OSError(errno.EFBIG, f"there is too much in it (at {target.name})")
    if stat.S_ISLNK(found.st_mode):
        target.symlink_to(os.readlink(name, dir_fd=parent))
    elif stat.S_ISDIR(found.st_mode):
        descriptor = os.open(name, OPENED | os.O_DIRECTORY, dir_fd=parent)
        try:
            target.mkdir(mode=0o700)
            for entry in os.listdir(descriptor):
                left = _copy(entry, descriptor, target / entry, left, depth + 1)
        finally:
            os.close(descriptor)
        target.chmod(_mode_of(found) | stat.S_IWUSR)  # or its copies could not be removed
    elif stat.S_ISREG(found.st_mode):
        with open(os.open(name, OPENED, dir_fd=parent), "rb") as source:
            target.write_bytes(source.read(found.st_size))
        target.chmod(_mode_of(found))
    return left


def _stat(name: str, parent: int) -> os.stat_result:
    return os.stat(name, dir_fd=parent, follow_symlinks=False)


def _mode_of(found: os.stat_result) -> int:
    """Return the mode of a copy, which this user owns; a sandbox reads no more than before."""
    mode = stat.S_IMODE(found.st_mode) & 0o777
    return mode if found.st_uid == os.getuid() else (mode & 0o007) << 6 | mode & 0o007
