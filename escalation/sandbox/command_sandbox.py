"""Builds the sandboxes of the CLI and of single commands, as bubblewrap arguments."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from escalation.agent.process import ProcessId, family, process_id, stop_family
from escalation.command_policy import grants
from escalation.command_policy.programs import GRAMMARS, SHIMS
from escalation.command_policy.programs.environment import understood_environment
from escalation.command_policy.programs.processes import ALSO_IN_SANDBOX
from escalation.command_policy.remedies import REMEDY, RemedyCall
from escalation.sandbox import bubblewrap
from escalation.sandbox.bubblewrap import Namespace
from escalation.sandbox.layout import (
    CALLS_NAME,
    NOTHING,
    OURS,
    SHIM_NAME,
    SHIM_SOCKET_NAME,
    TEMPORARY,
    Hidden,
    Mount,
    RunPaths,
    Shown,
    hidden_by,
    hidden_sockets,
    hiding,
    is_hidden,
    is_inside,
    mount_arguments,
    own_arguments,
    sandbox_home,
    sandbox_mounts,
    showing,
    shown_files,
)
from escalation.sandbox.limits import SandboxLimits, shell_limits
from sessions_app.credentials import HIDDEN_BY_CLOUD, HIDDEN_FROM_COMMANDS, LOGINS

# Grants: the mounts and variables that each adds to the sandbox of one program.

DOCKER_SOCKETS = ("/run/docker.sock", "/var/run/docker.sock")
BUSES = ("/run/systemd", "/run/dbus", "/run/log/journal", "/var/log/journal")
USER_BUSES = ("bus", "systemd")
# systemctl prefers this socket, behind which a sandbox has another process table; without it, it
# uses D-Bus.
PRIVATE_BUS = "/run/systemd/private"
SSH_SETTINGS = "/etc/ssh/ssh_config.d"
SSH_FILES = ("config", "known_hosts", "known_hosts2")
AGENT_SOCKET = f"{OURS}/agent.sock"
KUBECONFIG = f"{OURS}/kubeconfig"
DATABASE_SOCKETS = ("/run/postgresql", "/run/mysqld", "/run/redis", "/run/valkey")
# Brokers that listen inside the sandbox, and their ports there.
JUDGED_HTTP = "judged-http"
"""The grants.HTTP proxy of a judged curl or wget, which may open tunnels."""
HOST_PORT = "port"
"""A port of the host, for a text that connects to one by itself."""
PORTS = {grants.HTTP: 3128, JUDGED_HTTP: 3128, grants.KUBE: 6443}


@dataclass(frozen=True, kw_only=True, slots=True)
class GrantMounts:
    mounts: tuple[Mount, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


def granted_mounts(name: str, paths: RunPaths, hidden: list[Mount]) -> GrantMounts:
    """Return what a grant adds; a grant for something that is missing adds nothing."""
    found = _MOUNTS_BY_GRANT.get(name)
    return found(paths, hidden) if found else GrantMounts()


def remedy_mounts(name: str, paths: RunPaths, hidden: list[Mount]) -> GrantMounts:
    """Return what a grant adds for a remedy that changes something.

    The operator wrote its command, and the remedy as a whole is judged and counted: the filters,
    which would judge and count each request again, are left out.
    """
    if name == grants.DOCKER:
        return _docker_at(paths.docker_engine)
    if name == grants.KUBE:
        return _kubeconfig_at(paths.operator_kubeconfig)
    return granted_mounts(name, paths, hidden)


def _docker(paths: RunPaths, hidden: list[Mount]) -> GrantMounts:
    """Mount the Docker filter at the usual paths of the engine's socket."""
    return _docker_at(paths.docker_socket)


def _docker_at(socket: Path | None) -> GrantMounts:
    if socket is None:
        return GrantMounts()
    source = os.path.realpath(socket)
    mounted = {
        os.path.join(os.path.realpath(Path(path).parent), "docker.sock") for path in DOCKER_SOCKETS
    }
    return GrantMounts(
        mounts=tuple(Shown(path=path, source=source) for path in sorted(mounted)),
    )


def _ssh(paths: RunPaths, hidden: list[Mount]) -> GrantMounts:
    """Mount the agent and no private key: only configuration, known hosts and public keys."""
    directory = paths.operator_home / ".ssh"
    public = (*(directory / name for name in SSH_FILES), *sorted(directory.glob("*.pub")))
    mounts: list[Mount] = [*_shown((path for path in public if not path.is_symlink()), hidden)]
    environment: tuple[tuple[str, str], ...] = ()
    if agent := paths.ssh_agent:
        mounts.append(Shown(path=AGENT_SOCKET, source=os.path.realpath(agent)))
        environment = (("SSH_AUTH_SOCK", AGENT_SOCKET),)
    if os.getuid() != 0:
        # Files of root belong to nobody in the sandbox, and ssh refuses such an included file.
        mounts += hiding([SSH_SETTINGS])
    return GrantMounts(mounts=tuple(mounts), environment=environment)


def _bus(paths: RunPaths, hidden: list[Mount]) -> GrantMounts:
    """Mount the buses of the system and of the operator; the rest of /run/user stays hidden."""
    own = Path(f"/run/user/{os.getuid()}")
    buses = (*map(Path, BUSES), *(own / name for name in USER_BUSES))
    environment = (("XDG_RUNTIME_DIR", str(own)),) if own.is_dir() else ()
    mounts = (*_shown(buses, hidden), *hiding([PRIVATE_BUS]))
    return GrantMounts(mounts=mounts, environment=environment)


def _network(paths: RunPaths, hidden: list[Mount]) -> GrantMounts:
    """Mount the sockets of database servers, which their clients prefer to the network."""
    return GrantMounts(mounts=tuple(_shown(map(Path, DATABASE_SOCKETS), hidden)))


def _kube(paths: RunPaths, hidden: list[Mount]) -> GrantMounts:
    return _kubeconfig_at(paths.kubeconfig)


def _kubeconfig_at(file: Path | None) -> GrantMounts:
    if file is None:
        return GrantMounts()
    source = os.path.realpath(file)
    return GrantMounts(
        mounts=(Shown(path=KUBECONFIG, source=source),), environment=(("KUBECONFIG", KUBECONFIG),)
    )


def _shown(paths: Iterable[Path], hidden: list[Mount]) -> list[Mount]:
    return [mount for path in paths for mount in showing(path, hidden)]


_MOUNTS_BY_GRANT = {
    grants.DOCKER: _docker,
    grants.SSH: _ssh,
    grants.BUS: _bus,
    grants.NETWORK: _network,
    grants.KUBE: _kube,
}


# Shims: the client of the command runner in place of each program that needs a grant.

# One file for many programs; a shim there would replace all of them.
MULTI_CALL = frozenset({"busybox", "toybox", "coreutils"})


def shim_names(paths: RunPaths) -> frozenset[str]:
    """Return the programs that are shims; in a drill also those of its stand-ins."""
    stand_ins = {file.name for directory in paths.stand_ins for file in directory.glob("*")}
    left_out = frozenset() if grants.PROCESSES in paths.grants.names else ALSO_IN_SANDBOX
    return (SHIMS - left_out) | (stand_ins & GRAMMARS.keys())


def program_path(name: str, paths: RunPaths) -> str | None:
    """Return the file of a program: a stand-in of a drill, or that of a system directory.

    A program that an agent may write is left out, because some programs run on the host.
    """
    if stand_in := shutil.which(name, path=":".join(map(str, paths.stand_ins))):
        return stand_in
    writable = [*map(os.path.realpath, (str(paths.workdir), *paths.grants.writable))]
    found = (shutil.which(name, path=directory) for directory in DEFAULT_PATH.split(":"))
    for file in filter(None, found):
        if not any(is_inside(os.path.realpath(file), place) for place in writable):
            return file
    return None


def shim_mounts(paths: RunPaths, hidden: list[Mount]) -> list[Mount]:
    directories = (
        *map(str, paths.stand_ins),
        *_path_of(paths).split(":"),
        *DEFAULT_PATH.split(":"),
    )
    files = {
        os.path.realpath(os.path.join(directory, name))
        for directory in dict.fromkeys(filter(None, directories))
        for name in shim_names(paths)
        if os.path.isfile(os.path.join(directory, name))
    }
    source = os.path.realpath(paths.shim)
    return [
        Shown(path=file, source=source)
        for file in sorted(files)
        if os.path.basename(file) not in MULTI_CALL and not is_hidden(file, hidden)
    ]


def _path_of(paths: RunPaths) -> str:
    return paths.tool_environment.get("PATH", os.defpath)


BASH = ("/bin/bash", "--noprofile", "--norc", "-c")
ON_HOST_NETWORK = {grants.NETWORK, grants.SSH}
REMEDY_NETWORK = {*ON_HOST_NETWORK, grants.KUBE}
OWN_PROGRAMS = f"{OURS}/bin"
"""Where a Bash call finds the shim of remedies, for which the host has no program."""
ENTERED = b"entered\n"

# The shell reads the command from a descriptor, so that its text can have any length and is in no
# process list. On another descriptor, which the command does not have, the shell reports its start,
# the processes that the command leaves behind, and the directory in which it ended. `kill` signals
# processes of the sandbox itself. The shim is asked only for numbers that no process of the sandbox
# has had yet: the number of one that has ended is that of another process on the host. Processes
# of a `<(…)` may end a moment after the text.
LAUNCHER = """\
echo entered >&{report} && {limits} || exit 126
kill() {{
  builtin kill "$@" 2>/dev/null && return
  local word before=first foreign=no last
  read -r _ _ _ _ last < /proc/loadavg
  for word; do
    if [[ $before == first && $word == -* || $before == -[sn] ]]; then :
    elif [[ -n ${{word#-}} && ${{word#-}} != *[!0-9]* ]]; then
      (( 10#${{word#-}} > last )) && foreign=yes || {{ foreign=no; break; }}
    fi
    before=$word
  done
  if [[ $foreign == yes ]]; then env kill "$@"; else builtin kill "$@"; fi
}}
. /dev/fd/{command} {report}>&-
status=$?
unset -f kill
set +eu
living() {{
  left=0
  for stat in /proc/[0-9]*/stat; do
    read -r stat 2>/dev/null < "$stat" && [[ ${{stat##*) }} != [ZX]* ]] && (( left++ ))
  done
}}
living
(( left > {own} )) && {{ /bin/sleep 0.05; living; }}
echo "$left" >&{report}
[ $status -eq 0 ] && pwd -P >&{report}
exit $status
"""
OWN_PROCESSES = 2
"""Bubblewrap's first process and the shell."""
PROGRAM_LAUNCHER = (
    "echo entered >&{report} && {limits} || exit 126; exec {report}>&-; "
    # Under its plain name, with which it begins its messages.
    'exec -a "${{1##*/}}" "$@"'
)


def text_launcher(limits: SandboxLimits, *, command: int, report: int) -> list[str]:
    """Return the shell that runs a text, given the numbers of its two descriptors."""
    return [
        *BASH,
        LAUNCHER.format(
            limits=shell_limits(limits), command=command, report=report, own=OWN_PROCESSES
        ),
    ]


def program_launcher(argv: Sequence[str], limits: SandboxLimits | None, report: int) -> list[str]:
    """Return a shell with a fixed text that sets limits and becomes the program."""
    set_limits = shell_limits(limits) if limits else "true"
    return [*BASH, PROGRAM_LAUNCHER.format(limits=set_limits, report=report), "bash", *argv]


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandSandbox:
    argv: list[str]
    """Followed by the command line to run inside."""
    environment: Mapping[str, str]
    """Also for bubblewrap itself: the first process in the sandbox has the same environment."""
    descriptors: tuple[int, ...] = ()
    """Named by `argv`."""
    system_calls: bytes = b""
    """The filter of system calls, which bubblewrap reads from a descriptor."""
    as_root: bool = False
    """An ordinary user starts it with sudo, which closes descriptors: `as_root` opens them."""
    entered: tuple[Namespace, ...] = ()
    """Named by `argv`; they must exist until the command has started."""


class CommandSandboxes:
    """The command sandboxes of one run; their common mounts are looked up once."""

    def __init__(self, paths: RunPaths, limits: SandboxLimits) -> None:
        self._paths = paths
        self._home = sandbox_home(paths)
        own = (paths.config_directory, paths.temp_directory, paths.run_directory)
        self._mounts: list[Mount] = [
            *sandbox_mounts(paths, temporary_bytes=limits.temporary_bytes),
            *hiding(map(str, own), always=True),
            Hidden(path=self._home, is_kept=True),
        ]
        self._in_text = [*self._client(), *shim_mounts(paths, self._mounts)]
        self._views: dict[str, _View] = {}
        self._making = threading.Lock()
        self._mount_points: set[str] = set()

    def for_text(self, socket: Path, cwd: str, network: Namespace | None = None) -> CommandSandbox:
        """Return the sandbox of a Bash call: no grant but the brokers, and shims.

        `socket`, in the directory of calls, is where the command runner serves the shims of this
        call; `network` is where the brokers listen.
        """
        granted = self._granted_to_text()
        environment = dict(pair for each in granted for pair in each.environment)
        path = f"{OWN_PROGRAMS}:{_path_of(self._paths)}"
        return self._sandbox(
            TEXT,
            self._mounts_of_text(granted),
            {"PATH": path, **environment, **self._proxy(self.brokers)},
            cwd,
            network=network,
            own=(
                *("--ro-bind", f"{CALLS}/{socket.name}", f"{OURS}/{SHIM_SOCKET_NAME}"),
                *("--tmpfs", CALLS, "--remount-ro", CALLS),
            ),
        )

    def prepare(self) -> None:
        """Make the view of Bash calls before the first one."""
        self._view(TEXT, self._mounts_of_text(self._granted_to_text()))

    def _granted_to_text(self) -> list[GrantMounts]:
        """Return the mounts of brokers, which a text reaches without being judged."""
        return [
            granted_mounts(name, self._paths, self._mounts)
            for name in (grants.DOCKER, grants.KUBE)
            if name in self._paths.grants.names
        ]

    def _mounts_of_text(self, granted: list[GrantMounts]) -> tuple[Mount, ...]:
        return (*(mount for each in granted for mount in each.mounts), *self._in_text)

    def own_temporary(self) -> set[str]:
        """Return the names of what commands of the run have made in /tmp."""
        with self._making:
            return set(os.listdir(self._paths.shared_temporary)) - self._mount_points

    @property
    def brokers(self) -> tuple[str, ...]:
        """The brokers that listen in the sandbox of a Bash call."""
        names = self._paths.grants.names
        return (
            *((grants.HTTP,) if grants.NETWORK in names else ()),
            *((grants.KUBE,) if grants.KUBE in names and self._paths.kubeconfig else ()),
        )

    def for_program(self, grant: str, cwd: str, network: Namespace | None = None) -> CommandSandbox:
        """Return the sandbox of one judged program with its grant."""
        if grant == grants.PROCESS_TABLE:
            return self._plain_sandbox(cwd)
        if grant == grants.FILES and os.getuid() != 0:
            return self._sudo_sandbox(cwd)
        granted = granted_mounts(grant, self._paths, self._mounts)
        environment = dict(granted.environment)
        return self._sandbox(
            grant,
            granted.mounts,
            {"PATH": DEFAULT_PATH, **environment, **self._proxy((grant,))},
            cwd,
            network=network,
            host_network=grant in ON_HOST_NETWORK,
            # The programs of systemd look up the names of processes.
            own_processes=grant != grants.BUS,
        )

    def for_remedy(self, call: RemedyCall, network: Namespace | None = None) -> CommandSandbox:
        """Return the sandbox of a remedy with its grants; `network` is where the brokers listen."""
        find = granted_mounts if call.looks else remedy_mounts
        granted = [find(name, self._paths, self._mounts) for name in sorted(call.grants)]
        environment = dict(pair for each in granted for pair in each.environment)
        return self._sandbox(
            " ".join((REMEDY, "looks" if call.looks else "changes", *sorted(call.grants))),
            tuple(mount for each in granted for mount in each.mounts),
            {
                "PATH": DEFAULT_PATH,
                **environment,
                **(self._proxy(self.brokers) if network else {}),
            },
            os.path.realpath(self._paths.workdir),
            network=network,
            host_network=network is None and bool(call.grants & REMEDY_NETWORK),
            own_processes=not call.grants & {grants.BUS, grants.PROCESSES},
        )

    def _client(self) -> list[Mount]:
        shim = os.path.realpath(self._paths.shim)
        return [
            *_python(self._mounts),
            Shown(path=f"{OURS}/{SHIM_NAME}", source=shim),
            Shown(path=f"{OWN_PROGRAMS}/{REMEDY}", source=shim),
            Shown(path=f"{OURS}/{SHIM_SOCKET_NAME}", source=NOTHING),
            Shown(path=CALLS, source=os.path.realpath(self._paths.calls)),
        ]

    def _proxy(self, brokers: Sequence[str]) -> dict[str, str]:
        if not {grants.HTTP, JUDGED_HTTP}.intersection(brokers):
            return {}
        address = f"http://127.0.0.1:{PORTS[grants.HTTP]}"
        names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
        # The Kubernetes filter listens in the sandbox, where the proxy cannot reach it.
        direct = {"no_proxy": f"127.0.0.1:{PORTS[grants.KUBE]}"} if grants.KUBE in brokers else {}
        return {**dict.fromkeys(names, address), **direct}

    def _sandbox(
        self,
        name: str,
        granted: tuple[Mount, ...],
        environment: Mapping[str, str],
        cwd: str,
        *,
        network: Namespace | None = None,
        host_network: bool = False,
        own_processes: bool = True,
        own: Sequence[str] = (),
    ) -> CommandSandbox:
        """Return a sandbox in the view of this name, with mounts of its `own`."""
        view = self._view(name, granted)
        entered = (view.namespace, *((network,) if network else ()))
        isolation, descriptors = bubblewrap.isolation(own_processes=own_processes)
        files = bubblewrap.ENTERED if own_processes else bubblewrap.ENTERED_WITH_PROCESSES
        return CommandSandbox(
            argv=[
                *(*bubblewrap.entering(*entered), bubblewrap.BWRAP, *isolation),
                *(() if host_network or network else ("--unshare-net",)),
                *(*files, *view.own_arguments, *own),
                *mount_arguments(view.sockets_outside()),
                *("--chdir", cwd),
            ],
            environment=self._environment(environment),
            descriptors=descriptors,
            system_calls=bubblewrap.seccomp_program(signals=own_processes),
            entered=entered,
        )

    def _view(self, name: str, granted: tuple[Mount, ...]) -> _View:
        """Return the mounts of this name, made again if something on the host has changed."""
        with self._making:
            view = self._views.get(name)
            known = [*self._mounts, *granted]
            shown = shown_files(self._paths.shared_temporary, known, self._mount_points)
            if view is None or not view.has(granted, shown) or view.is_outdated():
                view = self._views[name] = _View(self._mounts, granted, shown)
            return view

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        own = {"HOME": self._home, "TMPDIR": TEMPORARY}
        return {**self._paths.tool_environment, **own, **more}

    def _plain_sandbox(self, cwd: str) -> CommandSandbox:
        """Return a sandbox with the host's processes that can write nothing.

        For a `ps` that might print environments: its user namespace keeps it from reading them.
        """
        isolation, descriptors = bubblewrap.isolation(own_processes=False)
        return CommandSandbox(
            argv=[
                *(*bubblewrap.entering(), bubblewrap.BWRAP, *isolation),
                *("--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--chdir", cwd),
            ],
            environment=self._environment({"PATH": DEFAULT_PATH, "HOME": NO_HOME}),
            descriptors=descriptors,
            system_calls=bubblewrap.seccomp_program(signals=False),
        )

    def _sudo_sandbox(self, cwd: str) -> CommandSandbox:
        """Return a sandbox of root in which the granted paths alone can be written."""
        of_root = (word for name in bubblewrap.OF_ROOT for word in ("--cap-add", name))
        return CommandSandbox(
            argv=[
                *(bubblewrap.BWRAP, "--unshare-pid", *bubblewrap.NAMESPACES),
                *("--cap-drop", "ALL", *of_root, "--unshare-net"),
                *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
                *mount_arguments([*self._mounts, *hidden_sockets()]),
                *("--remount-ro", "/dev", "--remount-ro", "/proc", "--chdir", cwd),
            ],
            environment=self._environment({"PATH": DEFAULT_PATH}),
            system_calls=bubblewrap.seccomp_program(),
            as_root=True,
        )


# The shell stays until sudo has ended, so that the descriptors can be opened again through /proc.
WITH_SUDO = 'sudo -n -- /bin/bash -c "$1" bash $$ "${@:2}"; exit $?'
OPEN_AGAIN = (
    'exec {report}>/proc/$1/fd/{report} {calls}</proc/$1/fd/{calls} || exit 126; shift; exec "$@"'
)


def with_sudo(argv: Sequence[str], *, report: int, calls: int) -> list[str]:
    """Return a command line that starts another one as root, with its two descriptors."""
    return [*BASH, WITH_SUDO, "bash", OPEN_AGAIN.format(report=report, calls=calls), *argv]


class _View:
    """The file system of sandboxes with the same mounts, made once and entered by each command."""

    def __init__(
        self, common: Sequence[Mount], granted: tuple[Mount, ...], shown: Sequence[Mount] = ()
    ) -> None:
        mounts = [*common, *shown, *granted]
        self._wanted = (granted, {mount.path for mount in shown})
        self.own_arguments = own_arguments(mounts)
        self._granted = [mount.path for mount in granted if isinstance(mount, Shown)]
        self._shown = {mount.path for mount in mounts if isinstance(mount, Shown)}
        self._hides = hidden_by(mounts)
        sources = (mount.origin for mount in mounts if isinstance(mount, Shown))
        self._paths = sorted({*(mount.path for mount in mounts), *sources})
        self._state = self._read_state()
        self.namespace = bubblewrap.mount_namespace(
            [*bubblewrap.FILE_SYSTEM, *mount_arguments(mounts), "--remount-ro", "/dev"]
        )

    def has(self, granted: tuple[Mount, ...], shown: Sequence[Mount]) -> bool:
        return self._wanted == (granted, {mount.path for mount in shown})

    def is_outdated(self) -> bool:
        """Return whether the host has new mounts, or a mounted or hidden file was replaced.

        Mounts of the host appear in the view as they are, also writable. A mount over a file ends
        when the file is replaced.
        """
        return self._read_state() != self._state

    def sockets_outside(self) -> list[Mount]:
        """Return the listening sockets that neither this view hides nor a grant shows."""
        return [
            socket
            for socket in hidden_sockets()
            if not self._hides(socket.path)
            and socket.path not in self._shown
            and not any(is_inside(socket.path, path) for path in self._granted)
        ]

    def _read_state(self) -> tuple[bytes, list[tuple[int, int] | None]]:
        return MOUNTED.read_bytes(), [_identity(path) for path in self._paths]


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


MOUNTED = Path("/proc/self/mountinfo")
TEXT = "text"
CALLS = f"{OURS}/{CALLS_NAME}"
NO_HOME = "/nonexistent"


def _python(mounts: list[Mount]) -> list[Mount]:
    """Show the interpreter of the client where a hidden directory holds it."""
    prefix = Path(sys.base_prefix)
    return [*showing(prefix, mounts)] if is_hidden(os.path.realpath(prefix), mounts) else []


# The environment of a command: never a key.

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
RUN_MARK = "CLAUDEOPS_RUN"
ALWAYS_PASSED = ("PATH", "LANG", "TZ", "USER", "LOGNAME")

# The command policy relies on these: character set of bash, no program that prompts.
FIXED_VARIABLES = {
    "LC_ALL": "C.UTF-8",
    "TERM": "dumb",
    "GIT_DISCOVERY_ACROSS_FILESYSTEM": "1",
    **understood_environment(),
}

# Logins of the CLI, and variables that change what a shell runs.
WITHHELD = {*LOGINS, "BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND"}
WITHHELD_PREFIXES = (*HIDDEN_FROM_COMMANDS, "CLAUDEOPS_", "BASH_FUNC_", "LD_")


def clean_environment(
    run_environment: Mapping[str, str], *, also_pass: Iterable[str] = (), mark: str = ""
) -> dict[str, str]:
    """Return the environment without HOME and TMPDIR, which the sandbox sets."""
    passed = {
        name: run_environment[name]
        for name in (*ALWAYS_PASSED, *also_pass)
        if run_environment.get(name) and not _is_withheld_variable(name, run_environment)
    }
    return {
        "PATH": DEFAULT_PATH,
        **passed,
        **FIXED_VARIABLES,
        **({RUN_MARK: mark} if mark else {}),
    }


def _is_withheld_variable(name: str, run_environment: Mapping[str, str]) -> bool:
    logins = [
        prefix
        for switch, prefixes in HIDDEN_BY_CLOUD.items()
        if run_environment.get(switch)
        for prefix in prefixes
    ]
    return name in WITHHELD or name.startswith((*WITHHELD_PREFIXES, *logins))


# Commands on the host: those that need it, or all where no sandbox is in force.

COMMAND_MARK = "CLAUDEOPS_COMMAND"
GRACE_SECONDS = 2.0


class HostCommand:
    """Finds the processes of one command on the host by an environment mark and a session."""

    def __init__(self, paths: RunPaths) -> None:
        self._paths = paths
        self._mark = uuid.uuid4().hex
        self._leader: ProcessId | None = None

    @property
    def environment(self) -> Mapping[str, str]:
        return {
            **self._paths.tool_environment,
            "HOME": str(self._paths.operator_home),
            # LVM would complain about the descriptors of the launcher.
            "LVM_SUPPRESS_FD_WARNINGS": "1",
            COMMAND_MARK: self._mark,
        }

    def started(self, process: subprocess.Popen[bytes]) -> None:
        """Log the process, so that recovery can stop it after the death of the worker."""
        self._leader = process_id(process.pid)
        if self._leader is not None and self._paths.tool_log is not None:
            _append(self._paths.tool_log, self._leader)

    def stop_remaining(self) -> None:
        """Stop its processes; services that a service manager started stay."""
        stop_family(self._living, GRACE_SECONDS)

    def _living(self) -> set[ProcessId]:
        sessions: Sequence[ProcessId] = [self._leader] if self._leader else []
        return family(self._leader, list(sessions), self._mark)


def _append(log: Path, process: ProcessId) -> None:
    line = f"{process.pid} {process.started}\n".encode()
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


# The CLI sandbox. Sockets outside the hidden directories are not hidden here: no tool of the CLI
# connects to one, and a socket that disappears during the start would fail the whole run.

# git is replaced: the configuration of a repository can make it run programs.
COVER = "/bin/false"
OTHER_GIT_PATHS = ("/usr/lib/git-core/git", "/usr/libexec/git-core/git")
SCRIPT = b"#!"


def cli_sandbox_argv(argv: Sequence[str], paths: RunPaths) -> list[str]:
    """Return the command line that starts the CLI inside its sandbox.

    The environment must hold no key, because every process in the sandbox can read it, and must set
    HOME to `sandbox_home` and TMPDIR to `paths.temp_directory`.
    """
    path = paths.tool_environment.get("PATH", os.defpath)
    mounts: list[Mount] = [
        *sandbox_mounts(paths, temporary_bytes=SandboxLimits().temporary_bytes),
        Hidden(path=sandbox_home(paths), is_kept=True),
    ]
    mounts += [
        *showing(paths.config_directory, mounts, writable=True),
        *showing(paths.temp_directory, mounts, writable=True),
        *showing(paths.run_directory, mounts),
        *_programs(argv[0], path, mounts),
    ]
    return [
        bubblewrap.BWRAP,
        *bubblewrap.ISOLATION,
        *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
        *mount_arguments([*mounts, *_covers(path, mounts)]),
        # Root can write /proc/sys even without any capability.
        *("--remount-ro", "/dev", "--remount-ro", "/proc"),
        *("--chdir", os.path.realpath(paths.workdir), "--", *argv),
    ]


def _programs(cli: str, path: str, mounts: list[Mount]) -> list[Mount]:
    """Show the CLI, its interpreter and the Python of the command client, where hidden."""
    needed = [Path(cli), Path(sys.base_prefix)]
    real = Path(os.path.realpath(cli))
    if interpreter := _interpreter_of(real, path):
        needed += [real.parent, interpreter, interpreter.parent.parent]
    hidden = [path for path in needed if is_hidden(os.path.realpath(path), mounts)]
    written = [path for path in needed if is_hidden(os.path.abspath(path), mounts)]
    return [mount for path in {*hidden, *written} for mount in showing(path, mounts)]


def _interpreter_of(program: Path, path: str) -> Path | None:
    """Return the interpreter in the first line of a script; None for a binary."""
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
    """Replace every git on the PATH by a program that does nothing."""
    on_path = [os.path.join(directory, "git") for directory in path.split(":") if directory]
    real = {os.path.realpath(git) for git in (*on_path, *OTHER_GIT_PATHS) if os.path.exists(git)}
    cover = os.path.realpath(COVER)
    return [Shown(path=git, source=cover) for git in sorted(real) if not is_hidden(git, mounts)]
