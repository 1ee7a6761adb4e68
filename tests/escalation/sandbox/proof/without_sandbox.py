"""Starts the CLI without a sandbox, to prove that the checks of a trial can fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from escalation.agent.binary import cli_environment
from escalation.sandbox.proof.host import ProofHost
from escalation.sandbox.proof.trial import TrialDecision
from escalation.tiers import Tier


@dataclass(frozen=True, kw_only=True)
class Bare:
    environment: Mapping[str, str]
    words: Mapping[str, str]

    def argv(self, argv: Sequence[str]) -> list[str]:
        return list(argv)


@contextmanager
def without_sandbox(
    host: ProofHost, tier: Tier, address: str, on_judged: Callable[[TrialDecision], None]
) -> Iterator[Bare]:
    host.config.mkdir(parents=True, exist_ok=True)
    host.run_directory.mkdir(parents=True, exist_ok=True)
    environment = cli_environment(
        host.run_environment,
        home=host.home,
        config_directory=host.config,
        api_retries=1,
    )
    yield Bare(
        environment={
            **environment,
            "ANTHROPIC_API_KEY": host.run_environment["ANTHROPIC_API_KEY"],
            "ANTHROPIC_BASE_URL": address,
            "CLAUDE_CODE_SHELL_PREFIX": "",
        },
        words={
            "config": str(host.config),
            "run": str(host.run_directory),
            "proxy": address,
        },
    )
