"""Builds the sandboxes of the CLI and of single commands, as bubblewrap arguments."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from escalation.agent.process_tree import ProcessId, family, process_id, stop_family
from escalation.command_policy import grants
from escalation.command_policy.programs.environment import understood_environment
from escalation.sandbox import bubblewrap
from escalation.sandbox.layout import (
    TEMPORARY,
    Hidden,
    Mount,
    Private,
    RunPaths,
    Shown,
    hidden_sockets,
    hiding,
    is_hidden,
    is_inside,
    is_reachable,
    mount_arguments,
    sandbox_home,
    sandbox_mounts,
    showing,
)
from escalation.sandbox.limits import SandboxLimits, shell_limits
from sessions_app.credentials import HIDDEN_BY_CLOUD, HIDDEN_FROM_COMMANDS, LOGINS

# Grants: the mounts and variables that each adds to the sandbox of a command.

DOCKER_SOCKETS = ("/run/docker.sock", "/var/run/docker.sock")
BUSES = ("/run/systemd", "/run/dbus", "/run/log/journal", "/var/log/journal")
USER_BUSES = ("bus", "systemd")
SSH_SETTINGS = "/etc/ssh/ssh_config.d"
SSH_FILES = ("config", "known_hosts", "known_hosts2")
LOGIN_MOUNT, LOGINS_BYTES = "/run/claudeops-logins", 65536
CLUSTER_LOGINS = ("/etc/rancher/k3s/k3s.yaml", "/etc/kubernetes/admin.conf")


@dataclass(frozen=True, kw_only=True, slots=True)
class GrantMounts:
    mounts: tuple[Mount, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


def granted_mounts(names: Iterable[str], paths: RunPaths, hidden: list[Mount]) -> GrantMounts:
    """Return what the named grants add; a grant for something that is missing adds nothing."""
    known = sorted(name for name in names if name in _MOUNTS_BY_GRANT)
    found = [_MOUNTS_BY_GRANT[name](paths, hidden) for name in known]
    return GrantMounts(
        mounts=tuple(mount for each in found for mount in each.mounts),
        environment=tuple(pair for each in found for pair in each.environment),
    )


def _docker(paths: RunPaths, hidden: list[Mount]) -> GrantMounts:
    """Mount the Docker filter at the usual paths of the engine's socket."""
    if paths.docker_socket is None:
        return GrantMounts()
    source = os.path.realpath(paths.docker_socket)
    mounted = {
        os.path.join(os.path.realpath(Path(path).parent), "docker.sock") for path in DOCKER_SOCKETS
    }
    return GrantMounts(
        mounts=tuple(Shown(path=path, source=source) for path in sorted(mounted)),
        environment=(("DOCKER_HOST", f"unix://{DOCKER_SOCKETS[0]}"),),
    )


def _ssh(paths: RunPaths, hidden: list[Mount]) -> GrantMounts:
    return _by_ssh(paths, [paths.operator.home / ".ssh"], hidden)


def _agent(paths: RunPaths, hidden: list[Mount]) -> GrantMounts:
    """Mount no private key: only client configuration, known hosts and public keys."""
    directory = paths.operator.home / ".ssh"
    public = (*(directory / name for name in SSH_FILES), *sorted(directory.glob("*.pub")))
    return _by_ssh(paths, [path for path in public if not path.is_symlink()], hidden)


def _by_ssh(paths: RunPaths, files: Iterable[Path], hidden: list[Mount]) -> GrantMounts:
    mounts: list[Mount] = [*_shown(files, hidden)]
    environment: tuple[tuple[str, str], ...] = ()
    if agent := paths.operator.ssh_agent:
        mounts += showing(agent, hidden)
        environment = (("SSH_AUTH_SOCK", str(agent)),)
    if os.getuid() != 0:
        # Files of root belong to nobody in the sandbox, and ssh refuses such an included file.
        mounts += hiding([SSH_SETTINGS])
    return GrantMounts(mounts=tuple(mounts), environment=environment)


def _bus(paths: RunPaths, hidden: list[Mount]) -> GrantMounts:
    """Mount the buses of the system and of the operator; the rest of /run/user stays hidden."""
    own = Path(f"/run/user/{os.getuid()}")
    buses = (*map(Path, BUSES), *(own / name for name in USER_BUSES))
    environment = (("XDG_RUNTIME_DIR", str(own)),) if own.is_dir() else ()
    return GrantMounts(mounts=tuple(_shown(buses, hidden)), environment=environment)


def _kube(paths: RunPaths, hidden: list[Mount]) -> GrantMounts:
    """Mount the kubeconfig under a random path that cannot be listed.

    A chart may hold a symbolic link; one to the usual path would send the login to the cluster.
    """
    here = f"{LOGIN_MOUNT}/{secrets.token_hex(16)}"
    named = [path for path in paths.operator.kubeconfigs if _can_be_shown(path)]
    own, usual = paths.operator.home / ".kube", [*map(Path, CLUSTER_LOGINS)]
    if not paths.operator.kubeconfigs and _can_be_shown(own):
        # The whole directory: a configuration refers to files beside it.
        sources, files = {here: own}, [f"{here}/config"]
    else:
        found = named if paths.operator.kubeconfigs else [*filter(_can_be_shown, usual)][:1]
        sources = {f"{here}/{index}/{path.name}": path for index, path in enumerate(found)}
        files = [*sources]
    if not sources:
        return GrantMounts()
    shown = (Shown(path=path, source=os.path.realpath(source)) for path, source in sources.items())
    return GrantMounts(
        mounts=(Private(path=LOGIN_MOUNT, size=LOGINS_BYTES, mode="0111"), *shown),
        environment=(("KUBECONFIG", ":".join(files)),),
    )


def _can_be_shown(path: Path) -> bool:
    real = os.path.realpath(path)
    return os.path.exists(real) and is_reachable(real)


def _shown(paths: Iterable[Path], hidden: list[Mount]) -> list[Mount]:
    return [mount for path in paths for mount in showing(path, hidden)]


# `network`, `processes` and `host` change the sandbox itself, not its mounts.
_MOUNTS_BY_GRANT = {
    grants.DOCKER: _docker,
    grants.SSH: _ssh,
    grants.AGENT: _agent,
    grants.BUS: _bus,
    grants.KUBE: _kube,
}


BASH = ("/bin/bash", "--noprofile", "--norc", "-c")
NEED_NETWORK = {grants.NETWORK, grants.SSH, grants.AGENT, grants.KUBE}
ENTERED = b"entered\n"

# The shell reads the command from a descriptor, so it is exactly the text that was decided on, of
# any length, and in no process list. On another descriptor, which the command does not have, the
# shell reports its start and the directory in which the command ended.
LAUNCHER = """\
echo entered >&{report} && {limits} || exit 126
. /dev/fd/{command} {report}>&-
status=$?
[ $status -eq 0 ] && pwd -P >&{report}
exit $status
"""


def launcher(limits: SandboxLimits | None, *, command: int, report: int) -> list[str]:
    """Return the shell that runs a command, given the numbers of its two descriptors."""
    set_limits = shell_limits(limits) if limits else "true"
    return [*BASH, LAUNCHER.format(limits=set_limits, command=command, report=report)]


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandSandbox:
    argv: list[str]
    """Followed by the command line to run inside."""
    environment: Mapping[str, str]
    """Also for bubblewrap itself: the first process in the sandbox has the same environment."""


class CommandSandboxes:
    """The command sandboxes of one run; their common mounts are looked up once."""

    def __init__(self, paths: RunPaths, limits: SandboxLimits) -> None:
        self._paths = paths
        self._limits = limits
        self._home = sandbox_home(paths)
        own = (paths.config_directory, paths.temp_directory, paths.run_directory)
        self._mounts: list[Mount] = [
            *sandbox_mounts(paths, temporary_bytes=limits.temporary_bytes),
            *hiding(map(str, own), always=True),
            Private(path=self._home, size=limits.home_bytes),
        ]

    def sandbox_for(self, names: Collection[str], cwd: str) -> CommandSandbox:
        granted = granted_mounts(names, self._paths, self._mounts)
        mounts = [*self._mounts, *granted.mounts, *_sockets_outside(granted.mounts)]
        environment = {
            **self._paths.tool_environment,
            "HOME": self._home,
            "TMPDIR": TEMPORARY,
            **dict(granted.environment),
        }
        process_table = (
            ["--ro-bind", "/proc", "/proc"] if grants.PROCESSES in names else ["--proc", "/proc"]
        )
        network = [] if NEED_NETWORK & set(names) else ["--unshare-net"]
        return CommandSandbox(
            argv=[
                bubblewrap.BWRAP,
                *bubblewrap.ISOLATION,
                *network,
                *("--ro-bind", "/", "/", "--dev", "/dev"),
                *process_table,
                *mount_arguments(mounts),
                # Root can write /proc/sys even without any capability.
                *("--remount-ro", "/dev", "--remount-ro", "/proc"),
                *("--chdir", cwd, "--"),
            ],
            environment=environment,
        )


def _sockets_outside(granted: Sequence[Mount]) -> list[Hidden]:
    """Return all listening sockets but those that a grant shows."""
    shown = [mount.path for mount in granted if isinstance(mount, Shown)]
    return [
        socket
        for socket in hidden_sockets()
        if not any(is_inside(socket.path, path) for path in shown)
    ]


# The environment of a command: never a key.

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
RUN_MARK = "CLAUDEOPS_RUN"
ALWAYS_PASSED = ("PATH", "LANG", "TZ")

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
            "HOME": str(self._paths.operator.home),
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
