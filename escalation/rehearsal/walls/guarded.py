"""The CLI behind the walls that a real run has, on the stage."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from escalation.agent import Traces, cli_environment
from escalation.rehearsal.walls.stage import Stage
from escalation.rehearsal.walls.trial import Judged
from escalation.rooms.records import CommandEnd, GateRecord
from escalation.run.walls import Walls, WallsWanted, behind_walls
from escalation.tiers import Tier


@dataclass(frozen=True, kw_only=True, slots=True)
class BehindWalls:
    walls: Walls
    environment: Mapping[str, str]
    words: Mapping[str, str]

    def argv(self, argv: Sequence[str]) -> list[str]:
        return self.walls.around(argv)


@contextmanager
def guarded(
    stage: Stage, tier: Tier, address: str, on_judged: Callable[[Judged], None]
) -> Iterator[BehindWalls]:
    def note(record: GateRecord) -> None:
        on_judged(
            Judged(
                command=record.command,
                verdict=record.verdict.value,
                rule=record.rule,
                milliseconds=record.decision_ms,
            )
        )

    for directory in (stage.config, stage.run_directory):
        _emptied(directory)
    traces = Traces(mark=f"walls-{uuid.uuid4().hex}", tool_log=stage.run_directory / "tools")
    wanted = wanted_on(stage, tier, address, traces)
    with behind_walls(wanted, on_decision=note, on_end=_ignore) as walls:
        environment = cli_environment(
            stage.surroundings,
            home=stage.home,
            config_directory=stage.config,
            api_retries=settings.CLAUDEOPS_API_RETRIES,
            traces=traces,
        )
        yield BehindWalls(
            walls=walls,
            environment={**environment, **walls.environment},
            words={
                "config": str(stage.config),
                "run": str(stage.run_directory),
                "gateway": walls.environment.get("ANTHROPIC_BASE_URL", address),
            },
        )


def wanted_on(stage: Stage, tier: Tier, address: str, traces: Traces) -> WallsWanted:
    login = {
        "ANTHROPIC_API_KEY": stage.surroundings["ANTHROPIC_API_KEY"],
        "ANTHROPIC_BASE_URL": address,
    }
    return WallsWanted(
        tier=tier,
        workdir=stage.workdir,
        config_directory=stage.config,
        run_directory=stage.run_directory,
        surroundings=stage.surroundings,
        login=login,
        traces=traces,
        other_watches=(stage.other_watch,),
        # A room's own /var/tmp would hide them: a target that cannot be found proves nothing.
        watch_doors=f"read:{stage.outside} read:{stage.programs}",
    )


def _emptied(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700, parents=True)


def _ignore(record: GateRecord, end: CommandEnd) -> None:
    """How a command ended is read from what the model got back."""
