"""The CLI as it is without walls: what the trial must then see proves that its checks can fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from escalation.agent import cli_environment
from escalation.rehearsal.walls.stage import Stage
from escalation.rehearsal.walls.trial import Judged
from escalation.tiers import Tier


@dataclass(frozen=True, kw_only=True)
class Bare:
    environment: Mapping[str, str]
    words: Mapping[str, str]

    def argv(self, argv: Sequence[str]) -> list[str]:
        return list(argv)


@contextmanager
def without_walls(
    stage: Stage, tier: Tier, address: str, on_judged: Callable[[Judged], None]
) -> Iterator[Bare]:
    stage.config.mkdir(parents=True, exist_ok=True)
    stage.run_directory.mkdir(parents=True, exist_ok=True)
    environment = cli_environment(
        stage.surroundings,
        home=stage.home,
        config_directory=stage.config,
        api_retries=1,
    )
    yield Bare(
        environment={
            **environment,
            "ANTHROPIC_API_KEY": stage.surroundings["ANTHROPIC_API_KEY"],
            "ANTHROPIC_BASE_URL": address,
            "CLAUDE_CODE_SHELL_PREFIX": "",
        },
        words={
            "config": str(stage.config),
            "run": str(stage.run_directory),
            "gateway": address,
        },
    )
