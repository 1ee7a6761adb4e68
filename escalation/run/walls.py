"""The walls around one run: gateway, tool runner, docker filter and rooms.

They stand before the CLI is started and until it has ended, in the process that runs the tier. What
is in force is also a value that can be shown: on the session, on the dashboard, by `doctor`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import inf
from pathlib import Path
from typing import Any

from django.conf import settings

from escalation.agent import Traces, has_credentials
from escalation.errors import CannotRun, WhyNot
from escalation.gate.decision import Decision, judged
from escalation.gate.doors import Doors, doors_for
from escalation.gate.policy import GatePolicy
from escalation.gate.supervisor import Alive, Supervisor
from escalation.gateway.gateway import Gateway
from escalation.gateway.limits import Limits as ApiLimits
from escalation.gateway.spending import Spending
from escalation.gateway.upstream import upstream_from, why_key_is_inside
from escalation.rooms.bubblewrap import RoomsState, rooms_state
from escalation.rooms.cli_room import cli_room_argv
from escalation.rooms.client import write_client
from escalation.rooms.docker_filter import DockerFilter, engine_socket
from escalation.rooms.limits import Limits, control_groups
from escalation.rooms.lookup import room_home
from escalation.rooms.ourselves import alive, own_container, own_user
from escalation.rooms.place import Operator, RunPlace
from escalation.rooms.questions import nobody_to_ask
from escalation.rooms.records import CommandEnd, GateRecord
from escalation.rooms.secrets import installation_paths
from escalation.rooms.tool_environment import clean_environment
from escalation.rooms.tool_runner import Ask, Refusal, ToolRunner
from escalation.tiers import HIGHEST_TIER, LOWEST_TIER, Tier, get_tier
from sessions_app.models.workdir import our_places

BASH = "Bash"
# Signals that a program does not turn into an exit of its own.
DEADLY = {
    *(signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS),
    *(signal.SIGILL, signal.SIGFPE, signal.SIGTRAP, signal.SIGSYS),
}
# The CLI asks its small model for titles and the like, whatever the tier's own is.
SMALL_MODEL = "haiku"


# The CLI's own limit for one command, which it no longer keeps where a command may have to wait.
LONGEST_COMMAND_SECONDS = 600
SPARE_SECONDS = 60


def nothing_against(spending: Spending) -> str:
    return ""


def as_decided(command: str, decision: Decision) -> Decision:
    return decision


@dataclass(frozen=True, kw_only=True, slots=True)
class WallsWanted:
    """What the walls of one run depend on."""

    tier: Tier
    workdir: Path
    config_directory: Path
    run_directory: Path
    surroundings: Mapping[str, str]
    """The supervisor's environment, and what a drill puts over it."""
    login: Mapping[str, str]
    """The way to the API and what opens it."""
    traces: Traces
    watch_doors: str = ""
    ask: tuple[str, ...] = ()
    """Rules for commands that a person has to approve, of the tier and of the watch."""
    changes_nothing: bool = False
    """A dry run, a question, or a plan."""
    other_watches: tuple[Path, ...] = ()
    objection: Callable[[Spending], str] = nothing_against
    """Asked between two requests of the CLI: an answer ends the run."""

    @property
    def level(self) -> int:
        return LOWEST_TIER if self.changes_nothing else self.tier.number

    @property
    def may_ask(self) -> bool:
        """Whether a command may have to wait for a person."""
        return bool(self.ask) or self.level > LOWEST_TIER

    @property
    def doors(self) -> Doors:
        return doors_for(self.level, self.tier.doors, self.watch_doors)

    @property
    def writable(self) -> tuple[str, ...]:
        """What commands may write, from Tier 2 on."""
        opened = (str(self.workdir), *self.doors.writable)
        return opened if self.level > LOWEST_TIER else ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Walls:
    """Walls that stand."""

    place: RunPlace
    gateway: Gateway | None
    """None where the key has to be inside."""
    environment: Mapping[str, str]
    """What the CLI needs to find its way through them."""

    def around(self, argv: Sequence[str]) -> list[str]:
        return cli_room_argv(argv, self.place) if self.place.rooms else list(argv)

    def exit_code(self, code: int | None) -> int | None:
        """The CLI's own: a room tells a death by a signal as 128 and its number, like a shell."""
        died_by = (code or 0) - 128
        return -died_by if self.place.rooms and died_by in DEADLY else code

    @property
    def refused(self) -> str:
        """Why the run may ask for nothing more, or nothing."""
        return self.gateway.refused if self.gateway else ""

    @property
    def spending(self) -> Spending:
        return self.gateway.spending if self.gateway else Spending()

    @property
    def api_limits(self) -> ApiLimits:
        """What the API's last answers said of the account's limits."""
        return self.gateway.limits if self.gateway else ApiLimits()


@contextmanager
def behind_walls(
    wanted: WallsWanted,
    *,
    on_decision: Callable[[GateRecord], None],
    on_end: Callable[[GateRecord, CommandEnd], None],
    objection: Callable[[GateRecord], Refusal | None] = lambda record: None,
    ask: Ask = nobody_to_ask,
    review: Callable[[str, Decision], Decision] = as_decided,
) -> Iterator[Walls]:
    """Both listeners are called from threads of the tool runner, one at a time; `review`, which has
    the last word on a decision, `ask` and the objection to a single command from any of them."""
    with ExitStack() as standing:
        gateway, credentials = _gateway(wanted, standing)
        place = place_of(wanted, docker_socket=_docker_door(wanted, standing))
        write_client(place.run_directory)
        judge = judge_of(wanted)

        def gate(command: str) -> Decision:
            return review(command, judge(command))

        limits = Limits(longest_seconds=LONGEST_COMMAND_SECONDS if wanted.may_ask else inf)
        runner = ToolRunner(
            place, gate, on_decision, on_end, ask=ask, limits=limits, objection=objection
        )
        standing.enter_context(runner.serving())
        yield Walls(
            place=place,
            gateway=gateway,
            environment={
                **credentials,
                **({"HOME": room_home(place)} if place.rooms else {}),
                "TMPDIR": str(place.temp_directory),
                "CLAUDE_CODE_SHELL_PREFIX": str(place.client),
                **(_patience() if wanted.may_ask else {}),
            },
        )


def _patience() -> dict[str, str]:
    """The CLI must not give a command up while a person thinks; that none runs for too long is then
    the tool runner's to see to."""
    waiting = settings.CLAUDEOPS_COMMAND_APPROVAL_EXPIRES + LONGEST_COMMAND_SECONDS
    milliseconds = str((waiting + SPARE_SECONDS) * 1000)
    return {"BASH_DEFAULT_TIMEOUT_MS": milliseconds, "BASH_MAX_TIMEOUT_MS": milliseconds}


def rooms_or_refusal() -> RoomsState:
    """CannotRun where the operator insists on rooms and there can be none."""
    rooms = rooms_state(settings.CLAUDEOPS_ROOMS)
    if settings.CLAUDEOPS_ROOMS == "on" and not rooms.in_force:
        raise CannotRun(
            f"CLAUDEOPS_ROOMS is on, but there can be no rooms: {rooms.why}", WhyNot.WALLS
        )
    return rooms


def policy_of(wanted: WallsWanted) -> GatePolicy:
    return GatePolicy(
        tier=wanted.tier.number,
        doors=wanted.doors,
        denied=_bash_rules(wanted.tier.disallowed_tools),
        allowed=_bash_rules(wanted.tier.allowed_tools),
        ask=wanted.ask,
        changes_nothing=wanted.changes_nothing,
        rooms=rooms_or_refusal().in_force,
        ssh_agent=Operator.of(wanted.surroundings, Path.home()).has_agent,
        workdir=str(wanted.workdir),
        supervisor=supervisor_here(),
    )


def supervisor_here() -> Supervisor:
    """What of this host is Claude Ops itself."""
    container = own_container()
    return Supervisor(
        alive=lambda: _alive_in(int(time.monotonic()), tuple(our_places().values())),
        users=own_user(),
        containers=frozenset({container}) if container else frozenset(),
    )


@lru_cache(maxsize=1)
def _alive_in(second: int, places: tuple[Path, ...]) -> Alive:
    """Once a second at most: a whole process table is read for it."""
    return alive(places)


def judge_of(wanted: WallsWanted) -> Callable[[str], Decision]:
    """The gate of this run."""
    return partial(judged, policy_of(wanted), policies_above(wanted))


def policies_above(wanted: WallsWanted) -> tuple[GatePolicy, ...]:
    """Of the tiers that may do more than this run: the same one in earnest, and those above."""
    first = wanted.tier.number + (not wanted.changes_nothing)
    return tuple(
        policy_of(replace(wanted, tier=get_tier(number), changes_nothing=False))
        for number in range(first, HIGHEST_TIER + 1)
    )


def walls_in_force(wanted: WallsWanted) -> dict[str, Any]:
    """For the record and its pages."""
    doors = wanted.doors
    return {
        **walls_of_installation(wanted.login),
        "doors": sorted(doors.names),
        "writable": list(wanted.writable),
        "changes_nothing": wanted.changes_nothing,
    }


def walls_of_installation(login: Mapping[str, str]) -> dict[str, Any]:
    """What holds for every run here."""
    rooms = rooms_state(settings.CLAUDEOPS_ROOMS)
    inside = why_key_is_inside(login)
    return {
        "rooms": f"bubblewrap {rooms.version}" if rooms.in_force else "",
        "why_no_rooms": rooms.why,
        "key": _where_the_key_is(login, inside),
        "why_key_inside": inside if has_credentials(login) else "",
        "limits": control_groups().in_force,
    }


def _where_the_key_is(login: Mapping[str, str], inside: str) -> str:
    if not has_credentials(login):
        return "none"
    return "inside" if inside else "gateway"


def place_of(wanted: WallsWanted, docker_socket: Path | None = None) -> RunPlace:
    surroundings = wanted.surroundings
    temp_directory = wanted.run_directory / "tmp"
    temp_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return RunPlace(
        workdir=wanted.workdir,
        config_directory=wanted.config_directory,
        temp_directory=temp_directory,
        run_directory=wanted.run_directory,
        operator=Operator.of(surroundings, Path.home()),
        tool_environment=clean_environment(
            surroundings, also_pass=settings.CLAUDEOPS_PASS_ENV, mark=wanted.traces.mark
        ),
        hidden=installation_paths(),
        other_watches=wanted.other_watches,
        doors=wanted.doors,
        writable=wanted.level > LOWEST_TIER,
        rooms=rooms_or_refusal().in_force,
        docker_socket=docker_socket,
        mark=wanted.traces.mark,
        tool_log=wanted.traces.tool_log,
    )


def _gateway(wanted: WallsWanted, standing: ExitStack) -> tuple[Gateway | None, Mapping[str, str]]:
    upstream = upstream_from(wanted.login)
    if upstream is None:
        return None, wanted.login
    gateway = Gateway(
        upstream,
        models=(wanted.tier.model, SMALL_MODEL),
        objection=wanted.objection,
        ledger=wanted.run_directory / "usage.jsonl",
    )
    return gateway, standing.enter_context(gateway.serving()).environment


def _docker_door(wanted: WallsWanted, standing: ExitStack) -> Path | None:
    engine = engine_socket(wanted.surroundings)
    if engine is None:
        return None
    path = wanted.run_directory / "docker.sock"
    hidden = tuple(map(str, installation_paths()))
    door = DockerFilter(path, engine, wanted.level, hidden=hidden, own_container=own_container())
    standing.enter_context(door.serving())
    return path


def _bash_rules(tools: Sequence[str]) -> tuple[str, ...]:
    return tuple(entry for entry in tools if entry.split("(", 1)[0] == BASH)


def safe_path(path: str, writable: Sequence[str]) -> str:
    """Without directories into which an agent could put a program with another's name."""
    kept = [
        entry
        for entry in path.split(os.pathsep)
        if os.path.isabs(entry)
        and not any(Path(entry).resolve().is_relative_to(place) for place in writable)
    ]
    return os.pathsep.join(kept)
