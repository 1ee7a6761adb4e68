"""What every page may offer to rehearse."""

from __future__ import annotations

import contextlib
from typing import Any

from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from escalation.rehearsal.drills.scenario import (
    Scenario,
    ScenarioError,
    load_scenario,
    scenario_names,
)


def scenarios(request: HttpRequest) -> dict[str, Any]:
    return {"scenarios": SimpleLazyObject(_readable)}


def _readable() -> list[Scenario]:
    """Without those that cannot be read: one broken file must not take the pages down."""
    readable = []
    for name in scenario_names():
        with contextlib.suppress(ScenarioError):
            readable.append(load_scenario(name))
    return readable
