from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from escalation.rehearsal.walls.stage import Stage
from tests.escalation.rehearsal.walls.stages import staged


@pytest.fixture(autouse=True)
def rooms_where_they_can_be(settings) -> None:
    settings.CLAUDEOPS_ROOMS = "auto"


@pytest.fixture
def stage(settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with staged(settings, monkeypatch) as found:
        yield found


@pytest.fixture
def effects_of(stage: Stage) -> Callable[[Callable[[], object]], list[str]]:
    """What the stage sees after something was done to it."""

    def look(act: Callable[[], object]) -> list[str]:
        stage.settle()
        act()
        return [f"{effect.where}: {effect}" for effect in stage.effects()]

    return look


@pytest.fixture
def programs_first(stage: Stage) -> dict[str, str]:
    """An environment in which the stage's own programs are found first."""
    return {**os.environ, **stage.surroundings}
