"""Sets up the sandbox of one run: API proxy, command runner, Docker filter and CLI sandbox.

All of them run in the worker process from before the start of the CLI until its end. The state is
also available as a value for the session, the pages and `doctor`.
"""

from __future__ import annotations

import os
import pwd
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import inf
from pathlib import Path
from typing import Any

from django.conf import settings

from escalation.agent.binary import has_credentials
from escalation.agent.process import Traces
from escalation.command_policy.decision import CommandPolicy, Decision, judged
from escalation.command_policy.grants import Grants, grants_for
from escalation.command_policy.protected import UNIT_TYPES, Alive, OwnProcess, Supervisor
from escalation.errors import CannotRun, WhyNot
from escalation.sandbox.api_proxy import (
    ApiLimits,
    ApiProxy,
    Spending,
    upstream_from,
    why_key_is_inside,
)
from escalation.sandbox.bubblewrap import SandboxState, sandbox_state
from escalation.sandbox.command_runner import (
    Ask,
    CommandEnd,
    CommandRefusal,
    CommandRunner,
    DecisionRecord,
    reject_unasked,
)
from escalation.sandbox.command_sandbox import clean_environment, cli_sandbox_argv
from escalation.sandbox.docker_filter import DockerFilter, engine_socket
from escalation.sandbox.docker_rules import JudgeEffect, allow_effect
from escalation.sandbox.layout import (
    CLIENT_NAME,
    SOCKET_NAME,
    Operator,
    RunPaths,
    installation_paths,
    sandbox_home,
)
from escalation.sandbox.limits import SandboxLimits, control_groups
from escalation.tiers import Tier, get_tier
from sessions_app.models.watch import our_places
from sessions_app.tiers import LOWEST_TIER, highest_tier

# Processes, units, user and container of this installation, read from /proc. The web server and
# other workers are recognised by the path of their program; their children belong to them.

PROC = Path("/proc")
FIRST_ARGUMENTS = 4
"""Interpreter, options and program; later arguments do not identify a process."""
MADE_BY_AN_ENGINE = re.compile(r"/([0-9a-f]{64})/\S* /etc/(?:hostname|hosts|resolv\.conf) ")
CONTAINER_ID = re.compile(r"[0-9a-f]{64}")
CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    parent: int
    group: int
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
    return _Process(int(directory.name), int(fields[1]), int(fields[2]), name, words)


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


# The command client (CLAUDE_CODE_SHELL_PREFIX), written into each run directory because the CLI
# sandbox hides this code. It starts for every command, so it imports built-in modules only.
#
# A request is a line with the lengths of the shell text and of the working directory, then both;
# the first byte carries the descriptors of stdout and stderr. Later bytes are signal numbers. The
# answer is a line with the exit code and the length of a message for stderr, then the message.

LONGEST_SHEBANG = 120

PROGRAM = """\
import _signal, _socket, posix, sys

HERE = {here!r}
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


def main():
    if len(sys.argv) != 2:
        refuse(b"The command client takes one command.\\n")
    text = sys.argv[1].encode(sys.getfilesystemencoding(), "surrogateescape")
    try:
        directory = posix.getcwdb()
    except OSError:
        refuse(b"The working directory does not exist.\\n")
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

    request = b"%d %d\\n" % (len(text), len(directory)) + text + directory
    # Two descriptors as a C array of int.
    descriptors = (1).to_bytes(4, sys.byteorder) + (2).to_bytes(4, sys.byteorder)
    try:
        sent = connection.sendmsg(
            [request], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)]
        )
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
    posix._exit(int(words[0]))


main()
"""


def write_client(directory: Path) -> Path:
    """Write the command client into a run directory, beside its socket."""
    directory = Path(os.path.realpath(directory))
    program = directory / CLIENT_NAME
    text = PROGRAM.format(here=str(directory), socket=SOCKET_NAME)
    program.unlink(missing_ok=True)
    program.write_text(_start_line(base_python()) + text)
    program.chmod(0o500)
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
    watch_grants: str = ""
    ask: tuple[str, ...] = ()
    """Rules of tier and watch for commands that need approval."""
    changes_nothing: bool = False
    """Set for a dry run, a question and a plan session."""
    other_watches: tuple[Path, ...] = ()
    objection: Callable[[Spending], str] = no_objection
    """Called before each request of the CLI; a text ends the run."""

    @property
    def level(self) -> int:
        return LOWEST_TIER if self.changes_nothing else self.tier.number

    @property
    def may_ask(self) -> bool:
        """Return whether a command may have to wait for approval."""
        return bool(self.ask) or self.level > LOWEST_TIER

    @property
    def grants(self) -> Grants:
        return grants_for(self.level, self.tier.grants, self.watch_grants)

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
    judge_effect: JudgeEffect = allow_effect,
) -> Iterator[RunSandbox]:
    """Set up the sandbox of a run and remove it at the end of the block.

    The callbacks are called from threads of the command runner: `on_decision` and `on_end` one at a
    time, `review` (which may replace a decision), `ask` and `objection` concurrently. Threads of
    the Docker filter call `judge_effect` concurrently.
    """
    with ExitStack() as stack:
        api_proxy, credentials = _api_proxy(request, stack)
        paths = paths_for(request, docker_socket=_docker_grant(request, stack, judge_effect))
        write_client(paths.run_directory)
        policy = decider_for(request)

        def decide(command: str) -> Decision:
            return review(command, policy(command))

        limits = SandboxLimits(longest_seconds=LONGEST_COMMAND_SECONDS if request.may_ask else inf)
        runner = CommandRunner(
            paths, decide, on_decision, on_end, ask=ask, limits=limits, objection=objection
        )
        stack.enter_context(runner.serving())
        yield RunSandbox(
            paths=paths,
            api_proxy=api_proxy,
            environment={
                **credentials,
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


def sandbox_or_refusal() -> SandboxState:
    """Return the state; raise CannotRun if sandboxes are required and not in force."""
    state = sandbox_state(settings.CLAUDEOPS_SANDBOX)
    if settings.CLAUDEOPS_SANDBOX == "on" and not state.in_force:
        raise CannotRun(
            f"CLAUDEOPS_SANDBOX is on, but no sandbox works here: {state.why}", WhyNot.SANDBOX
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
        sandboxed=sandbox_or_refusal().in_force,
        ssh_agent=Operator.of(request.run_environment, Path.home()).has_agent,
        workdir=str(request.workdir),
        supervisor=supervisor_here(),
    )


def supervisor_here() -> Supervisor:
    """Return the processes, users and containers of this installation, which are protected."""
    container = own_container()
    return Supervisor(
        alive=lambda: _alive_in(int(time.monotonic()), tuple(our_places().values())),
        users=own_user(),
        containers=frozenset({container}) if container else frozenset(),
    )


@lru_cache(maxsize=1)
def _alive_in(second: int, places: tuple[Path, ...]) -> Alive:
    """Read the process table at most once a second."""
    return alive(places)


def decider_for(request: SandboxRequest) -> Callable[[str], Decision]:
    """Return the function that decides on the commands of this run."""
    return partial(judged, policy_of(request), policies_above(request))


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


def paths_for(request: SandboxRequest, docker_socket: Path | None = None) -> RunPaths:
    run_environment = request.run_environment
    temp_directory = request.run_directory / "tmp"
    temp_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return RunPaths(
        workdir=request.workdir,
        config_directory=request.config_directory,
        temp_directory=temp_directory,
        run_directory=request.run_directory,
        operator=Operator.of(run_environment, Path.home()),
        tool_environment=clean_environment(
            run_environment, also_pass=settings.CLAUDEOPS_PASS_ENV, mark=request.traces.mark
        ),
        hidden=installation_paths(),
        other_watches=request.other_watches,
        grants=request.grants,
        writable=request.level > LOWEST_TIER,
        sandboxed=sandbox_or_refusal().in_force,
        docker_socket=docker_socket,
        mark=request.traces.mark,
        tool_log=request.traces.tool_log,
    )


def _api_proxy(
    request: SandboxRequest, stack: ExitStack
) -> tuple[ApiProxy | None, Mapping[str, str]]:
    upstream = upstream_from(request.login)
    if upstream is None:
        return None, request.login
    api_proxy = ApiProxy(
        upstream,
        models=(request.tier.model, SMALL_MODEL),
        objection=request.objection,
        ledger=request.run_directory / "usage.jsonl",
    )
    return api_proxy, stack.enter_context(api_proxy.serving()).environment


def _docker_grant(
    request: SandboxRequest, stack: ExitStack, judge_effect: JudgeEffect
) -> Path | None:
    engine = engine_socket(request.run_environment)
    if engine is None:
        return None
    path = request.run_directory / "docker.sock"
    hidden = tuple(map(str, installation_paths()))
    grant = DockerFilter(
        path,
        engine,
        request.level,
        hidden=hidden,
        paths=request.writable,
        own_container=own_container(),
        judge_effect=judge_effect,
    )
    stack.enter_context(grant.serving())
    return path


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
