"""What every page says about this installation."""

from __future__ import annotations

import contextlib
from typing import Any

from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from escalation.agent.binary import ClaudeBinary, find_binary
from escalation.agent.environment import credentials_configured
from escalation.errors import CliMissing
from escalation.host.health import worker_was_seen
from escalation.rehearsal.drills.scenario import (
    Scenario,
    ScenarioError,
    load_scenario,
    scenario_names,
)
from sessions_app.models import PauseSwitch


def installation(request: HttpRequest) -> dict[str, Any]:
    return {
        "cli": _binary(),
        "api_key_configured": credentials_configured(),
        "pause_switch": SimpleLazyObject(PauseSwitch.current),
        "worker_is_silent": SimpleLazyObject(lambda: not worker_was_seen()),
        "scenarios": SimpleLazyObject(_scenarios),
    }


def _binary() -> ClaudeBinary | None:
    try:
        return find_binary()
    except CliMissing:
        return None


def _scenarios() -> list[Scenario]:
    """Without those that cannot be read: one broken file must not take the pages down."""
    readable = []
    for name in scenario_names():
        with contextlib.suppress(ScenarioError):
            readable.append(load_scenario(name))
    return readable
