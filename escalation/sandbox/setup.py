"""Sets up the sandbox of one run: API proxy, command runner, Docker filter and CLI sandbox.

All of them run in the worker process from before the start of the CLI until its end. The state is
also available as a value for the session, the pages and `doctor`.
"""

from __future__ import annotations

import logging
import os
import pwd
import re
import shlex
import shutil
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings

from escalation.agent.binary import has_credentials
from escalation.agent.process import Traces
from escalation.command_policy import grants
from escalation.command_policy.decision import (
    CommandPolicy,
    Decision,
    ExecRequest,
    decide_effect,
    judged,
)
from escalation.command_policy.grants import Grants, grants_for
from escalation.command_policy.protected import (
    UNIT_TYPES,
    Alive,
    OtherProcess,
    OwnProcess,
    Supervisor,
)
from escalation.command_policy.remedies import REMEDY, DeclaredRemedy
from escalation.command_policy.understanding import Argv, CommandEffect
from escalation.errors import CannotRun, WhyNot
from escalation.sandbox.api_proxy import (
    ApiLimits,
    ApiProxy,
    Spending,
    no_proxy,
    upstream_from,
    why_key_is_inside,
)
from escalation.sandbox.bubblewrap import SandboxState, sandbox_state
from escalation.sandbox.command_runner import (
    Ask,
    Broker,
    CommandEnd,
    CommandRefusal,
    CommandRunner,
    DecisionRecord,
    reject_unasked,
)
from escalation.sandbox.command_sandbox import (
    DEFAULT_PATH,
    HOST_PORT,
    JUDGED_HTTP,
    clean_environment,
    cli_sandbox_argv,
)
from escalation.sandbox.docker_filter import DockerFilter, engine_socket
from escalation.sandbox.docker_rules import DockerEffect
from escalation.sandbox.edited_files import BeforeEdits, note_files
from escalation.sandbox.http_proxy import Connect, HttpProxy, HttpRules
from escalation.sandbox.kube_filter import (
    KubectlProxy,
    KubeEffect,
    KubeFilter,
    context_in,
    kubeconfig_for_sandbox,
    operator_config,
)
from escalation.sandbox.layout import (
    CLIENT_NAME,
    OURS,
    SHARED_TEMPORARY_NAME,
    SHIM_NAME,
    SHIM_SOCKET_NAME,
    SOCKET_NAME,
    RunPaths,
    copied_configuration,
    installation_paths,
    sandbox_home,
)
from escalation.sandbox.limits import MEBIBYTE, SandboxLimits, control_groups
from escalation.sandbox.ssh_agent import supervisor_ssh_agent
from escalation.sandbox.telemetry_receiver import TELEMETRY_NAME, CliTrace, TelemetryReceiver
from escalation.tiers import Tier, get_tier
from sessions_app.models import Change
from sessions_app.models.session import Verdict
from sessions_app.models.watch import our_places
from sessions_app.tiers import FULL, LOOK, LOWEST_TIER, SAFE, highest_tier

logger = logging.getLogger(__name__)

# Processes, units, user and container of this installation, read from /proc. The web server and
# other workers are recognised by the path of their program; their children belong to them.

PROC = Path("/proc")
FIRST_ARGUMENTS = 4
"""Interpreter, options and program; later arguments do not identify a process."""
BWRAP_NAME, FILTERED = "bwrap", "--seccomp"
"""The sandbox of a command has a filter of system calls, that of the CLI has none."""
MADE_BY_AN_ENGINE = re.compile(r"/([0-9a-f]{64})/\S* /etc/(?:hostname|hosts|resolv\.conf) ")
CONTAINER_ID = re.compile(r"[0-9a-f]{64}")
CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    parent: int
    group: int
    started: int
    name: str
    arguments: tuple[str, ...]


def alive(places: Iterable[Path], proc: Path = PROC, own: int | None = None) -> Alive:
    """Find the running processes of this installation, whose programs are in `places`."""
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
                command=" ".join(one.arguments),
                numbers=frozenset({one.group, *_threads(proc / str(one.pid) / "task")}),
                is_client=_serves_a_command(one, seen),
            )
            for one in seen.values()
            if one.pid in around and one.pid > 1
        ),
        units=frozenset(unit for pid in ours for unit in _units(_text(proc / str(pid) / "cgroup"))),
        others=tuple(
            OtherProcess(
                pid=one.pid,
                parent=one.parent,
                name=one.name,
                command=" ".join(one.arguments),
                users=_user_of(proc / str(one.pid)),
                started=one.started,
            )
            for one in seen.values()
            if one.pid not in around
        ),
    )


def _serves_a_command(process: _Process, seen: dict[int, _Process]) -> bool:
    """Return whether a process is a client, the shell of the CLI that starts it, or in the sandbox
    of a command."""
    if any(f"/{CLIENT_NAME}" in word for word in process.arguments):
        return True
    above = [process, *(seen[pid] for pid in _ancestors(process.pid, seen) if pid in seen)]
    return any(one.name == BWRAP_NAME and FILTERED in one.arguments for one in above)


def _user_of(directory: Path) -> frozenset[str]:
    try:
        number = directory.stat().st_uid
    except OSError:
        return frozenset()
    return _names_of(number)


@lru_cache(maxsize=256)
def _names_of(number: int) -> frozenset[str]:
    with suppress(KeyError):
        return frozenset({str(number), pwd.getpwuid(number).pw_name})
    return frozenset({str(number)})


def own_user() -> frozenset[str]:
    return _names_of(os.getuid())


def own_container(proc: Path = PROC, marks: Iterable[str] = CONTAINER_MARKS) -> str:
    """Return the id of this container, or its beginning; empty outside a container."""
    if found := MADE_BY_AN_ENGINE.search(_text(proc / "self" / "mountinfo")):
        return found[1]
    if in_group := CONTAINER_ID.search(_text(proc / "self" / "cgroup")):
        return in_group[0]
    return socket.gethostname() if any(map(os.path.exists, marks)) else ""


def _processes(proc: Path) -> Iterator[_Process]:
    for entry in os.scandir(proc):
        if entry.name.isdecimal() and (found := _process(Path(entry.path))):
            yield found


def _process(directory: Path) -> _Process | None:
    head, _bracket, rest = _text(directory / "stat").rpartition(")")
    fields = rest.split()
    if len(fields) < 3:
        return None
    words = tuple(word for word in _text(directory / "cmdline").split("\0") if word)
    name = head.partition("(")[2]
    started = int(fields[19]) if len(fields) > 19 else 0
    return _Process(int(directory.name), int(fields[1]), int(fields[2]), started, name, words)


def _threads(directory: Path) -> list[int]:
    try:
        return [int(name) for name in os.listdir(directory) if name.isdecimal()]
    except OSError:
        return []


def _is_of(process: _Process, roots: tuple[str, ...], proc: Path) -> bool:
    """Resolve a relative program, as in `python manage.py`, from the working directory."""
    words = [word for word in process.arguments[:FIRST_ARGUMENTS] if not word.startswith("-")]
    if any(word.startswith(roots) for word in words):
        return True
    try:
        directory = os.readlink(proc / str(process.pid) / "cwd")
    except OSError:
        return False
    named = [os.path.normpath(os.path.join(directory, word)) for word in words]
    return any(path.startswith(roots) and os.path.isfile(path) for path in named)


def _ancestors(pid: int, seen: dict[int, _Process]) -> list[int]:
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


# The client of the command runner, written into each run directory because sandboxes hide this
# code. It starts for every command, so it imports built-in modules only. Under its own name it is
# the program in CLAUDE_CODE_SHELL_PREFIX and passes on a text; under the name of a program it is a
# shim and passes on its argument vector.
#
# A request is a line with its kind and the lengths of three parts, then the parts: the text or the
# arguments, the working directory, the environment. Its first byte carries the descriptors. Later
# bytes are signal numbers. The answer is a line with the exit code and the length of a message for
# stderr, then the message.

LONGEST_SHEBANG = 120

PROGRAM = """\
import _signal, _socket, posix, sys

HERE = {here!r}
NAME = {name!r}
WORDS = b"CLAUDEOPS_WORDS"
GONE = b"The command runner has ended: the result of the command is unknown.\\n"


def refuse(message):
    posix.write(2, message)
    posix._exit(126)


def answer_from(connection):
    answer = b""
    while True:
        try:
            piece = connection.recv(65536)
        except OSError:
            return answer
        if not piece:
            return answer
        answer += piece


def ask(kind, parts, descriptors):
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        # By a descriptor: an address holds 107 bytes, a path may be longer.
        here = posix.open(HERE, posix.O_RDONLY | posix.O_DIRECTORY)
        connection.connect("/proc/self/fd/%d/{socket}" % here)
    except OSError:
        refuse(GONE)

    def pass_on(number, frame):
        try:
            connection.send(bytes([number]))
        except OSError:
            pass

    lengths = b" ".join(b"%d" % len(part) for part in parts)
    request = kind + b" " + lengths + b"\\n" + b"".join(parts)
    # The descriptors as a C array of int.
    array = b"".join(number.to_bytes(4, sys.byteorder) for number in descriptors)
    try:
        sent = connection.sendmsg([request], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array)])
        connection.sendall(request[sent:])
    except OSError:
        pass  # refused before it was read: the answer says why
    for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP):
        _signal.signal(number, pass_on)
    first, newline, message = answer_from(connection).partition(b"\\n")
    words = first.split()
    if not newline or len(words) != 2:
        refuse(GONE)
    while message:
        message = message[posix.write(2, message):]
    return int(words[0])


def without_words(words):
    # `pgrep -f nginx` would find the command line of this process.
    found = posix.environ.pop(WORDS, None)
    if found is not None:
        return [words[0], *bytes.fromhex(found.decode()).split(b"\\0")]
    named = [word.rpartition(b"/")[2] for word in words]
    if len(words) > 1 and (b"pgrep" in named or b"pkill" in named):
        passed = {{**posix.environ, WORDS: b"\\0".join(words[1:]).hex().encode()}}
        posix.execve(sys.executable, [sys.executable, "-IS", sys.argv[0]], passed)
    return words


def main():
    # The connection would take the place of a closed descriptor and be passed on instead.
    while posix.open("/dev/null", posix.O_RDWR) <= 2:
        pass
    words = [word.encode(sys.getfilesystemencoding(), "surrogateescape") for word in sys.argv]
    name = words[0].rpartition(b"/")[2]
    if name != NAME:
        words = without_words(words)
    try:
        directory = posix.getcwdb()
    except OSError:
        refuse(b"The working directory does not exist.\\n")
    if name != NAME:
        environment = b"\\0".join(b"=".join(pair) for pair in posix.environ.items())
        parts = (b"\\0".join([name, *words[1:]]), directory, environment)
        posix._exit(ask(b"exec", parts, (0, 1, 2)))
    if len(words) != 2:
        refuse(b"The command client takes one command.\\n")
    posix._exit(ask(b"shell", (words[1], directory, b""), (1, 2)))


main()
"""


def write_client(directory: Path) -> Path:
    """Write the client into a run directory: for the CLI, and for command sandboxes."""
    directory = Path(os.path.realpath(directory))
    _write_program(directory / SHIM_NAME, here=OURS, socket=SHIM_SOCKET_NAME)
    return _write_program(directory / CLIENT_NAME, here=str(directory), socket=SOCKET_NAME)


def _write_program(program: Path, *, here: str, socket: str) -> Path:
    text = PROGRAM.format(here=here, socket=socket, name=program.name.encode())
    program.unlink(missing_ok=True)
    program.write_text(_start_line(base_python()) + text)
    program.chmod(0o555)
    return program


def base_python() -> Path:
    """Return the interpreter outside of virtual environments, which sandboxes hide."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    python = Path(sys.base_prefix) / "bin" / version
    return python if python.exists() else Path(os.path.realpath(sys.executable))


def _start_line(python: Path) -> str:
    """Return the first line; it starts a path with blanks through /bin/sh."""
    if " " not in str(python) and len(str(python)) < LONGEST_SHEBANG:
        return f"#!{python} -IS\n"
    quoted = str(python).replace("'", "'\"'\"'")
    return f"#!/bin/sh\n'''exec' '{quoted}' -IS \"$0\" \"$@\"\n' '''\n"


BASH = "Bash"
# Signals that a program usually does not handle.
DEADLY = {
    *(signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS),
    *(signal.SIGILL, signal.SIGFPE, signal.SIGTRAP, signal.SIGSYS),
}
# The CLI uses a small model for titles, at every tier.
SMALL_MODEL = "haiku"


# The usual limit of the CLI for one command, which is raised if a command may wait for approval.
LONGEST_COMMAND_SECONDS = 600
SPARE_SECONDS = 60


def no_objection(spending: Spending) -> str:
    return ""


def decision_unchanged(command: str, decision: Decision) -> Decision:
    return decision


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxRequest:
    """The input from which the sandbox of one run is set up."""

    tier: Tier
    workdir: Path
    config_directory: Path
    run_directory: Path
    run_environment: Mapping[str, str]
    """The environment of the worker, with the changes of a drill."""
    login: Mapping[str, str]
    """Address and credentials of the API."""
    traces: Traces
    trace: CliTrace | None = None
    """The trace that the CLI's own spans belong to."""
    watch_grants: str = ""
    ask: tuple[str, ...] = ()
    """Rules of tier and watch for commands that need approval."""
    changes_nothing: bool = False
    """Set for a dry run, a question and a plan session."""
    other_watches: tuple[Path, ...] = ()
    objection: Callable[[Spending], str] = no_objection
    """Called before each request of the CLI; a text ends the run."""
    stand_ins: tuple[Path, ...] = ()
    """Directories with the programs of a drill; the policy judges them as those of the system."""
    remedies: tuple[DeclaredRemedy, ...] = ()
    """What the operator declared for the watch, as it was when the run was planned."""

    @property
    def level(self) -> int:
        return LOWEST_TIER if self.changes_nothing else self.tier.number

    @property
    def may_ask(self) -> bool:
        """Return whether a command may have to wait for approval."""
        return bool(self.ask) or self.level > LOWEST_TIER

    @property
    def grants(self) -> Grants:
        return grants_for(self.tier.grants, self.watch_grants)

    @property
    def writable(self) -> tuple[str, ...]:
        """The paths that commands may write."""
        return (str(self.workdir), *self.grants.writable) if self.level > LOWEST_TIER else ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSandbox:
    """The sandbox of a run while it is in force."""

    paths: RunPaths
    api_proxy: ApiProxy | None
    """None where the CLI itself needs the key."""
    environment: Mapping[str, str]
    """Variables for the CLI: API address and token, HOME, TMPDIR, command client."""

    def around(self, argv: Sequence[str]) -> list[str]:
        return cli_sandbox_argv(argv, self.paths) if self.paths.sandboxed else list(argv)

    def exit_code(self, code: int | None) -> int | None:
        """Return the exit code of the CLI: bubblewrap reports a signal as 128 plus its number."""
        died_by = (code or 0) - 128
        return -died_by if self.paths.sandboxed and died_by in DEADLY else code

    @property
    def refused(self) -> str:
        """The reason why the API proxy refuses further requests; empty if it does not."""
        return self.api_proxy.refused if self.api_proxy else ""

    @property
    def spending(self) -> Spending:
        return self.api_proxy.spending if self.api_proxy else Spending()

    @property
    def api_limits(self) -> ApiLimits:
        """The rate limits in the latest answers of the API."""
        return self.api_proxy.limits if self.api_proxy else ApiLimits()


@contextmanager
def in_sandbox(
    request: SandboxRequest,
    *,
    on_decision: Callable[[DecisionRecord], None],
    on_end: Callable[[DecisionRecord, CommandEnd], None],
    objection: Callable[[DecisionRecord], CommandRefusal | None] = lambda record: None,
    ask: Ask = reject_unasked,
    review: Callable[[str, Decision], Decision] = decision_unchanged,
) -> Iterator[RunSandbox]:
    """Set up the sandbox of a run and remove it at the end of the block.

    The callbacks are called from threads of the command runner: `on_decision` and `on_end` one at a
    time, `review` (which may replace a decision), `ask` and `objection` concurrently.
    """
    if request.writable:
        note_files(request.run_directory, request.writable)
    with ExitStack() as stack:
        api_proxy, credentials = _api_proxy(request, stack)
        telemetry = _telemetry(request, stack)
        brokers = _Brokers(request, stack)
        paths = paths_for(
            request,
            docker_socket=brokers.docker_socket,
            ssh_agent=brokers.ssh_agent,
            kubeconfig=brokers.kubeconfig,
        )
        write_client(paths.run_directory)
        policy = decider_for(request)

        def decide(wanted: ExecRequest) -> Decision:
            return review(shlex.join(wanted.argv), policy(wanted))

        limits = SandboxLimits(longest_seconds=LONGEST_COMMAND_SECONDS if request.may_ask else inf)
        runner = CommandRunner(
            paths,
            decide,
            on_decision,
            on_end,
            ask=ask,
            limits=limits,
            objection=objection,
            brokers=brokers.in_sandbox(
                credentials.get("ANTHROPIC_BASE_URL", ""),
                telemetry.get("OTEL_EXPORTER_OTLP_ENDPOINT", ""),
            ),
        )
        brokers.judge_with(runner, review)
        stack.enter_context(runner.serving())
        yield RunSandbox(
            paths=paths,
            api_proxy=api_proxy,
            environment={
                **credentials,
                **(_around_proxies(credentials, telemetry) if telemetry else {}),
                **({"HOME": sandbox_home(paths)} if paths.sandboxed else {}),
                "TMPDIR": str(paths.temp_directory),
                "CLAUDE_CODE_SHELL_PREFIX": str(paths.client),
                **(_timeout() if request.may_ask else {}),
            },
        )


def _timeout() -> dict[str, str]:
    """Raise the time-outs of the CLI while a command may wait for approval.

    The command runner then ends a command that runs for too long.
    """
    waiting = settings.CLAUDEOPS_COMMAND_APPROVAL_EXPIRES + LONGEST_COMMAND_SECONDS
    milliseconds = str((waiting + SPARE_SECONDS) * 1000)
    return {"BASH_DEFAULT_TIMEOUT_MS": milliseconds, "BASH_MAX_TIMEOUT_MS": milliseconds}


def sandbox_or_refusal(*, is_drill: bool = False) -> SandboxState:
    """Return the state; raise CannotRun if a sandbox is required and not in force.

    A drill runs without one: its commands are its own.
    """
    state = sandbox_state(settings.CLAUDEOPS_SANDBOX)
    if settings.CLAUDEOPS_SANDBOX != "off" and not state.in_force and not is_drill:
        raise CannotRun(
            f"A sandbox is required, and none works here: {state.why}. To run without one, set "
            "CLAUDEOPS_SANDBOX=off: then single commands that the policy understands run on the "
            "host itself.",
            WhyNot.SANDBOX,
        )
    return state


def policy_of(request: SandboxRequest) -> CommandPolicy:
    return CommandPolicy(
        tier=request.tier.number,
        grants=request.grants,
        denied=_bash_rules(request.tier.disallowed_tools),
        allowed=_bash_rules(request.tier.allowed_tools),
        ask=request.ask,
        changes_nothing=request.changes_nothing,
        sandboxed=sandbox_or_refusal(is_drill=bool(request.stand_ins)).in_force,
        workdir=str(request.workdir),
        hosts=request.grants.hosts,
        programs_in=tuple(map(str, request.stand_ins)),
        remedies=request.remedies,
        supervisor=supervisor_here(),
    )


def supervisor_here() -> Supervisor:
    """Return what belongs to this installation and is protected, such as its processes."""
    container = own_container()
    return Supervisor(
        alive=lambda: _alive_in(int(time.monotonic()), tuple(our_places().values())),
        users=own_user(),
        containers=frozenset({container}) if container else frozenset(),
        databases=_own_databases(),
    )


def _own_databases() -> frozenset[str]:
    database = settings.DATABASES["default"]
    is_server = "postgresql" in database["ENGINE"]
    return frozenset({str(database["NAME"])}) if is_server else frozenset()


@lru_cache(maxsize=1)
def _alive_in(second: int, places: tuple[Path, ...]) -> Alive:
    """Read the process table at most once a second."""
    return alive(places)


def decider_for(request: SandboxRequest) -> Callable[[ExecRequest], Decision]:
    """Return the function that decides on the programs of this run."""
    own, above = policy_of(request), policies_above(request)

    def decide(wanted: ExecRequest) -> Decision:
        # Processes may have started and ended since the decision before.
        _alive_in.cache_clear()
        if wanted.argv[0] == REMEDY:
            now = current_remedies(request.remedies, agent_paths(request))
            policies = [replace(policy, remedies=now) for policy in (own, *above)]
            return judged(policies[0], policies[1:], wanted)
        return judged(own, above, wanted)

    return decide


def policies_above(request: SandboxRequest) -> tuple[CommandPolicy, ...]:
    """Return the policies that permit more: the same tier with changes, and higher tiers."""
    first = request.tier.number + (not request.changes_nothing)
    return tuple(
        policy_of(replace(request, tier=get_tier(number), changes_nothing=False))
        for number in range(first, highest_tier() + 1)
    )


def sandbox_in_force(request: SandboxRequest) -> dict[str, Any]:
    """Return the facts about the sandbox of a run that its session stores."""
    return {
        **sandbox_of_installation(request.login),
        "grants": sorted(request.grants.names),
        "writable": list(request.writable),
        "changes_nothing": request.changes_nothing,
    }


def sandbox_of_installation(login: Mapping[str, str]) -> dict[str, Any]:
    """Return the facts about the sandbox that are the same for every run on this host."""
    state = sandbox_state(settings.CLAUDEOPS_SANDBOX)
    inside = why_key_is_inside(login)
    return {
        "sandbox": f"bubblewrap {state.version}" if state.in_force else "",
        "why_no_sandbox": state.why,
        "key": _where_the_key_is(login, inside),
        "why_key_inside": inside if has_credentials(login) else "",
        "limits": control_groups().in_force,
    }


def _where_the_key_is(login: Mapping[str, str], inside: str) -> str:
    if not has_credentials(login):
        return "none"
    return "inside" if inside else "proxy"


def paths_for(
    request: SandboxRequest,
    docker_socket: Path | None = None,
    ssh_agent: Path | None = None,
    kubeconfig: Path | None = None,
) -> RunPaths:
    run_environment = request.run_environment
    temp_directory = request.run_directory / "tmp"
    temp_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    shared = request.run_directory / SHARED_TEMPORARY_NAME
    shared.mkdir(exist_ok=True)
    shared.chmod(0o1777)
    writable = request.level > LOWEST_TIER
    copies = request.run_directory / "configuration"
    return RunPaths(
        workdir=request.workdir,
        config_directory=request.config_directory,
        temp_directory=temp_directory,
        run_directory=request.run_directory,
        operator_home=Path.home(),
        tool_environment=clean_environment(
            run_environment, also_pass=settings.CLAUDEOPS_PASS_ENV, mark=request.traces.mark
        ),
        hidden=installation_paths(),
        other_watches=request.other_watches,
        grants=request.grants,
        writable=writable,
        configuration=copied_configuration(request.workdir, copies) if writable else None,
        sandboxed=sandbox_or_refusal(is_drill=bool(request.stand_ins)).in_force,
        docker_socket=docker_socket,
        ssh_agent=ssh_agent,
        kubeconfig=kubeconfig,
        docker_engine=engine_socket(run_environment),
        operator_kubeconfig=_kubeconfig_of(run_environment),
        stand_ins=request.stand_ins,
        mark=request.traces.mark,
        tool_log=request.traces.tool_log,
    )


def _kubeconfig_of(environment: Mapping[str, str]) -> Path | None:
    files = environment.get("KUBECONFIG") or str(Path.home() / ".kube/config")
    return next((Path(file) for file in files.split(":") if os.path.isfile(file)), None)


def agent_paths(request: SandboxRequest) -> tuple[str, ...]:
    """Return the paths that an agent of this watch may write at some tier."""
    return (str(request.workdir), *request.grants.writable)


def current_remedies(
    remedies: Sequence[DeclaredRemedy], writable: Sequence[str]
) -> tuple[DeclaredRemedy, ...]:
    """Look at the scripts and programs again: one that is not as accepted must wait."""
    return tuple(
        replace(remedy, waits=remedy.waits or why_it_waits(remedy, writable)) for remedy in remedies
    )


MOST_SCRIPT_BYTES = MEBIBYTE


def why_it_waits(remedy: DeclaredRemedy, writable: Sequence[str]) -> str:
    """Return why a remedy must not run before a person has accepted it, or an empty string."""
    if remedy.script is None:
        found = shutil.which(remedy.command[0], path=DEFAULT_PATH)
        if found and why_writable(found, writable):
            return f"{found} lies where an agent may write"
        return ""
    path = remedy.command[remedy.script_at]
    if why := why_writable(path, writable):
        return why
    try:
        found_now = read_script(path)
    except (OSError, ValueError) as problem:
        return f"{path} cannot be read ({problem})"
    if found_now != remedy.script:
        return f"{path} was changed since a person accepted it"
    return ""


def why_writable(path: str, writable: Sequence[str]) -> str:
    """Return a text if an agent may write the file or the way to it, or an empty string."""
    places = [form for place in writable for form in _written_and_real(place)]
    if any(form.is_relative_to(place) for form in _written_and_real(path) for place in places):
        return f"{path} lies where an agent may write ({', '.join(writable)})"
    return ""


def read_script(path: str) -> bytes:
    """Return the content of a script; raise OSError or ValueError if it cannot be pinned."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is no file")
        content = file.read(MOST_SCRIPT_BYTES + 1)
    if len(content) > MOST_SCRIPT_BYTES:
        raise ValueError(
            "it is larger than 1 MiB: put a program into /usr/local/bin and name it plainly"
        )
    return content


@contextmanager
def remedy_runner(request: SandboxRequest) -> Iterator[CommandRunner]:
    """Set up what a remedy needs that a person or the supervisor runs, without a CLI."""

    def deny(wanted: ExecRequest) -> Decision:
        return Decision(verdict=Verdict.DENY, rule="remedy", reason="A remedy runs no other.")

    with ExitStack() as stack:
        brokers = _Brokers(request, stack)
        paths = paths_for(
            request,
            docker_socket=brokers.docker_socket,
            ssh_agent=brokers.ssh_agent,
            kubeconfig=brokers.kubeconfig,
        )
        write_client(paths.run_directory)
        runner = CommandRunner(
            paths,
            deny,
            lambda record: None,
            limits=SandboxLimits(output_bytes=REMEDY_OUTPUT_BYTES),
            brokers=brokers.in_sandbox(),
        )
        brokers.judge_with(runner, decision_unchanged)
        stack.enter_context(runner.serving())
        yield runner


REMEDY_OUTPUT_BYTES = MEBIBYTE


def _api_proxy(
    request: SandboxRequest, stack: ExitStack
) -> tuple[ApiProxy | None, Mapping[str, str]]:
    upstream = upstream_from(request.login)
    if upstream is None:
        return None, request.login
    api_proxy = ApiProxy(
        upstream,
        models=(request.tier.model, SMALL_MODEL),
        tools=set(request.tier.tool_names) - set(request.tier.disallowed_tools),
        objection=request.objection,
        ledger=request.run_directory / "usage.jsonl",
        on_call=BeforeEdits(request.run_directory, request.workdir, request.writable),
    )
    return api_proxy, stack.enter_context(api_proxy.serving()).environment


def _telemetry(request: SandboxRequest, stack: ExitStack) -> Mapping[str, str]:
    """Start the receiver of the CLI's own telemetry; a run does without one if none can start."""
    if not settings.CLAUDEOPS_CLI_TELEMETRY:
        return {}
    receiver = TelemetryReceiver(request.run_directory / TELEMETRY_NAME, request.trace)
    try:
        return stack.enter_context(receiver.serving())
    except OSError as problem:
        logger.warning("The telemetry of the CLI is not received: %s", problem)
        return {}


def _around_proxies(
    credentials: Mapping[str, str], telemetry: Mapping[str, str]
) -> Mapping[str, str]:
    """Return the variables, with loopback excepted from the proxies of the operator."""
    excepted = no_proxy(credentials)
    if "127.0.0.1" not in excepted.split(","):
        excepted = ",".join(filter(None, (excepted, "127.0.0.1")))
    return {**telemetry, "NO_PROXY": excepted, "no_proxy": excepted}


class _Brokers:
    """The brokers of a run, which judge what reaches a resource, and the ssh-agent."""

    def __init__(self, request: SandboxRequest, stack: ExitStack) -> None:
        self._request = request
        self._stack = stack
        self._names = request.grants.names
        self._policy = policy_of(request)
        self._runner: CommandRunner | None = None
        self._review: Callable[[str, Decision], Decision] = decision_unchanged
        self._passed: dict[int, tuple[DecisionRecord, float]] = {}
        """Changes that were passed on, by the identity of their effect, with the time of that."""
        self.docker_socket = self._docker() if grants.DOCKER in self._names else None
        self.ssh_agent = self._agent() if grants.SSH in self._names else None
        self._kube_filter, self.kubeconfig = (
            self._kube() if grants.KUBE in self._names else (None, None)
        )

    def judge_with(
        self, runner: CommandRunner, review: Callable[[str, Decision], Decision]
    ) -> None:
        """Let changes at the brokers be judged and recorded as programs are."""
        self._runner, self._review = runner, review

    def in_sandbox(self, *own_addresses: str) -> dict[str, Broker]:
        """Return the brokers that listen inside of sandboxes."""
        own = own_ports(*own_addresses)
        level = self._request.level
        scripts = HttpRules(
            methods=READING if level < FULL else EVERY_METHOD,
            connect=_CONNECT.get(level, Connect.ALL),
            hosts=self._request.grants.hosts,
            own_ports=own,
        )
        judged = HttpRules(methods=EVERY_METHOD, connect=Connect.ALL, own_ports=own)
        found: dict[str, Broker] = {
            grants.HTTP: HttpProxy(scripts).serving,
            JUDGED_HTTP: HttpProxy(judged).serving,
            HOST_PORT: HttpProxy(scripts).serving_port,
        }
        kube = self._kube_filter
        if kube:
            found[grants.KUBE] = lambda listener, on_failure: kube.serving(listener)
        return found

    def _docker(self) -> Path | None:
        engine = engine_socket(self._request.run_environment)
        if engine is None:
            return None
        path = self._request.run_directory / "docker.sock"
        grant = DockerFilter(
            path,
            engine,
            self._request.level,
            hidden=tuple(map(str, installation_paths())),
            paths=self._request.writable,
            own_container=own_container(),
            judge_effect=self._judge_docker,
            on_answer=self._answered,
            on_refusal=partial(self._refused, grants.DOCKER),
        )
        self._stack.enter_context(grant.serving())
        return path

    def _agent(self) -> Path | None:
        directory = self._request.run_directory
        environment = self._request.run_environment
        agent = supervisor_ssh_agent(environment, Path.home() / ".ssh", directory)
        return self._stack.enter_context(agent).socket

    def _judge_docker(self, effect: DockerEffect, client: socket.socket) -> str:
        counts = effect.counted != Change.Kind.OTHER
        meant = CommandEffect(
            kind=effect.counted,
            service=effect.service if counts else "",
            action=shlex.join(effect.vector),
        )
        return self._judged(effect, effect.spellings, meant, grants.DOCKER, client)

    def _judge_kube(self, effect: KubeEffect, client: socket.socket) -> str:
        meant = CommandEffect(
            kind=effect.kind, service=effect.service, action=shlex.join(effect.vector)
        )
        return self._judged(effect, (effect.vector,), meant, grants.KUBE, client)

    def _judged(
        self,
        asked: DockerEffect | KubeEffect,
        vectors: Sequence[Argv],
        effect: CommandEffect,
        grant: str,
        client: socket.socket,
    ) -> str:
        """Judge a change at a broker; return why it may not happen now, or nothing."""
        assert self._runner is not None, "the command runner is made before a sandbox is used"
        command = shlex.join(vectors[0])

        def decide() -> Decision:
            return self._review(command, decide_effect(self._policy, vectors, effect, grant))

        cwd = str(self._request.workdir)
        judged = self._runner.judge(decide, command, cwd=cwd, parent=grant, waiting=client)
        if judged.may_run:
            self._passed[id(asked)] = (judged.record, time.monotonic())
        return "" if judged.may_run else judged.words

    def _answered(self, asked: DockerEffect | KubeEffect, status: int) -> None:
        """Record how a change ended: with the status of the answer, 0 if it was not made."""
        assert self._runner is not None, "the command runner is made before a sandbox is used"
        record, began = self._passed.pop(id(asked))
        end = CommandEnd(
            exit_code=0 if 0 < status < FIRST_ERROR else 1,
            run_ms=(time.monotonic() - began) * 1000,
            location="broker",
            has_run=status > 0,
            status=status,
        )
        self._runner.record_end(record, end)

    def _refused(self, grant: str, vector: Argv, reason: str, allowed_from: int) -> None:
        """Record a change that the tier may not make."""
        assert self._runner is not None, "the command runner is made before a sandbox is used"
        denied = Decision(
            verdict=Verdict.DENY,
            rule=f"needs Tier {allowed_from}" if allowed_from else "for no tier",
            reason=reason,
            actions=(shlex.join(vector),),
            changes=(shlex.join(vector),),
            allowed_from=allowed_from,
        )
        command, cwd = shlex.join(vector), str(self._request.workdir)
        self._runner.judge(lambda: denied, command, cwd=cwd, parent=grant)

    def _kube(self) -> tuple[KubeFilter | None, Path | None]:
        environment = self._request.run_environment
        files = environment.get("KUBECONFIG") or str(Path.home() / ".kube/config")
        if not any(map(os.path.exists, files.split(":"))):
            return None, None
        config = operator_config(environment)
        try:
            context, _namespace = context_in(config)
        except ValueError:
            return None, None
        directory = self._request.run_directory
        path = directory / "kubeconfig"
        path.write_text(kubeconfig_for_sandbox(config))
        proxy = KubectlProxy(directory, environment, context)
        self._stack.enter_context(proxy.available())
        kube_filter = KubeFilter(
            self._request.level,
            proxy.connected,
            self._judge_kube,
            lambda effect, refusal: self._refused(
                grants.KUBE, effect.vector, refusal.message, refusal.allowed_from
            ),
            self._answered,
        )
        return kube_filter, path


FIRST_ERROR = 400
"""The least status of HTTP that reports an error."""
READING = frozenset({"GET", "HEAD"})
EVERY_METHOD = READING | {"POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
# What programs other than curl and wget may reach by https.
_CONNECT = {LOOK: Connect.NONE, SAFE: Connect.LISTED}


def own_ports(*addresses: str) -> frozenset[int]:
    """Return the ports of this installation: web server, database, and those of the run."""
    database = settings.DATABASES["default"]
    found = (
        settings.CLAUDEOPS_PORT,
        *(urlsplit(address).port for address in addresses),
        database.get("PORT") or (5432 if database.get("HOST") else None),
    )
    return frozenset(int(port) for port in found if port)


def _bash_rules(tools: Sequence[str]) -> tuple[str, ...]:
    return tuple(entry for entry in tools if entry.split("(", 1)[0] == BASH)


def safe_path(path: str, writable: Sequence[str]) -> str:
    """Remove from `path` the directories into which an agent could put a program.

    Each side is compared as written and with its links resolved: the agent can also change a link
    that lies in a writable directory.
    """
    places = {form for place in writable for form in _written_and_real(place)}
    kept = [
        entry
        for entry in path.split(os.pathsep)
        if os.path.isabs(entry)
        and not any(
            form.is_relative_to(place) for form in _written_and_real(entry) for place in places
        )
    ]
    return os.pathsep.join(kept)


def _written_and_real(path: str) -> tuple[Path, Path]:
    return Path(os.path.abspath(path)), Path(os.path.realpath(path))
