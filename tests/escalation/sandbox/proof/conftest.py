from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from escalation.sandbox.proof.host import ProofHost
from tests.escalation.sandbox.proof.hosts import planted_host


@pytest.fixture(autouse=True)
def sandboxes_where_they_can_be(settings) -> None:
    settings.CLAUDEOPS_SANDBOX = "required"


@pytest.fixture
def host(settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProofHost]:
    with planted_host(settings, monkeypatch) as found:
        yield found


@pytest.fixture
def effects_of(host: ProofHost) -> Callable[[Callable[[], object]], list[str]]:
    """What the host sees after something was done to it."""

    def look(act: Callable[[], object]) -> list[str]:
        host.reset()
        act()
        return [f"{effect.where}: {effect}" for effect in host.effects()]

    return look


@pytest.fixture
def programs_first(host: ProofHost) -> dict[str, str]:
    """An environment in which the host's own programs are found first."""
    return {**os.environ, **host.run_environment}
