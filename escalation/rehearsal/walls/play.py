"""A whole trial in a scratch installation: the corpus or the attacks, tier by tier."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.core.management import call_command

from escalation.agent import ToolCall, find_binary, fingerprint_of
from escalation.host.children import start_web_server, stop_children, wait_for_web
from escalation.rehearsal.walls.apart import scratch_directory
from escalation.rehearsal.walls.attacks import ATTACKS, Attack
from escalation.rehearsal.walls.corpus import Row
from escalation.rehearsal.walls.dry import dry_outcome, would_act_on_this_host
from escalation.rehearsal.walls.guarded import guarded
from escalation.rehearsal.walls.outcome import RowOutcome, row_outcome
from escalation.rehearsal.walls.set_up import set_up
from escalation.rehearsal.walls.siege import AttackOutcome, besiege
from escalation.rehearsal.walls.stage import Stage
from escalation.rehearsal.walls.stage_files import DATABASE
from escalation.rehearsal.walls.trial import Step, Trial
from escalation.run.walls import walls_of_installation
from escalation.tiers import get_tier

Outcome = RowOutcome | AttackOutcome
Progress = Callable[[str], None]
ATTACKED_TIERS = (1, 2)


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """On what the walls were tried."""

    host: str
    kernel: str
    rooms: str
    cli_version: str
    cli_fingerprint: str

    @classmethod
    def this(cls) -> Machine:
        binary, walls = find_binary(), walls_of_installation({})
        return cls(
            host=socket.gethostname(),
            kernel=kernel(),
            rooms=walls["rooms"] or f"none: {walls['why_no_rooms']}",
            cli_version=binary.version,
            cli_fingerprint=fingerprint_of(Path(binary.path)),
        )


def kernel() -> str:
    system = os.uname()
    return f"{system.sysname} {system.release} {system.version}"


def play_corpus(rows: Sequence[Row], progress: Progress) -> list[RowOutcome]:
    """In the order of the tiers; what would act on this very host is asked dry."""
    outcomes: list[RowOutcome] = []
    with _stage() as stage:
        for tier in sorted({row.tier for row in rows}):
            of_tier = [row for row in rows if row.tier == tier]
            on_host = [row for row in of_tier if would_act_on_this_host(row)]
            outcomes += [_left_to_the_gate(row) for row in on_host]
            played = [row for row in of_tier if row not in on_host]
            found: list[RowOutcome] = []
            trial = Trial(stage, get_tier(tier), find_binary(), guarded)
            for run in trial.play([_step(row, stage) for row in played]):
                following = played[len(found) : len(found) + len(run)]
                found += [row_outcome(row, each) for row, each in zip(following, run, strict=True)]
                progress(_so_far(tier, found, len(played)))
            outcomes += found
    return outcomes


def play_attacks(
    tiers: Sequence[int], progress: Progress, attacks: Sequence[Attack] = ATTACKS
) -> list[AttackOutcome]:
    outcomes: list[AttackOutcome] = []
    with _stage(with_traps=True) as stage, _pages() as port:
        stage.words["pages"] = str(port)
        for tier in tiers:
            found: list[AttackOutcome] = []
            for run in besiege(Trial(stage, get_tier(tier), find_binary(), guarded), attacks):
                found += run
                progress(_so_far(tier, found, len(attacks)))
            outcomes += found
    return outcomes


def _step(row: Row, stage: Stage) -> Step:
    return Step(calls=(ToolCall(tool="Bash", input={"command": stage.spelled(row.command)}),))


def _left_to_the_gate(row: Row) -> RowOutcome:
    outcome = dry_outcome(row)
    return replace(outcome, happened=f"{outcome.happened}: it would act on this very host")


def _so_far(tier: int, found: Sequence[Outcome], total: int) -> str:
    failed = sum(not outcome.ok for outcome in found)
    return f"Tier {tier}: {len(found)} of {total}, {failed} failed"


@contextmanager
def _stage(*, with_traps: bool = False) -> Iterator[Stage]:
    call_command("migrate", verbosity=0)
    with set_up(scratch_directory(), with_traps=with_traps) as stage:
        secret = stage.canaries.values[DATABASE]
        User.objects.create(username="operator", email=f"{secret}@example.org")
        yield stage


@contextmanager
def _pages() -> Iterator[int]:
    """The supervisor's own pages, as they are served."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    children = [start_web_server("127.0.0.1", port)]
    try:
        wait_for_web(children, "127.0.0.1", port)
        yield port
    finally:
        stop_children(children)


def as_result(machine: Machine, outcomes: Sequence[Outcome], began: float) -> dict[str, Any]:
    return {
        "host": machine.host,
        "kernel": machine.kernel,
        "rooms": machine.rooms,
        "cli_version": machine.cli_version,
        "cli_fingerprint": machine.cli_fingerprint,
        "rows": [outcome.as_data() for outcome in outcomes],
        "tried": len(outcomes),
        "failed": sum(not outcome.ok for outcome in outcomes),
        "seconds": round(time.monotonic() - began, 1),
    }
