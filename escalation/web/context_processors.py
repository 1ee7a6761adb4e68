"""What every page says about this installation."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from escalation.agent import ClaudeBinary, credentials_configured, find_binary
from escalation.errors import CliMissing
from escalation.host.health import worker_was_seen
from escalation.host.superuser import INSTEAD_OF_ROOT, RUNS_AS_ROOT, runs_as_root
from escalation.web.health_now import health_now
from escalation.web.walls_now import current_walls
from sessions_app.models import PauseSwitch, Target, WallsProof


def installation(request: HttpRequest) -> dict[str, Any]:
    return {
        "version": settings.CLAUDEOPS_VERSION,
        "cli": _binary(),
        "api_key_configured": credentials_configured(),
        "pause_switch": SimpleLazyObject(PauseSwitch.current),
        "root_warning": f"{RUNS_AS_ROOT} {INSTEAD_OF_ROOT}" if runs_as_root() else "",
        "walls_now": SimpleLazyObject(current_walls),
        "health_now": SimpleLazyObject(health_now),
        "walls_hold": SimpleLazyObject(_walls_hold),
        "failing_targets": SimpleLazyObject(_failing_targets),
        "worker_is_silent": SimpleLazyObject(lambda: not worker_was_seen()),
    }


def _binary() -> ClaudeBinary | None:
    try:
        return find_binary()
    except CliMissing:
        return None


def _failing_targets() -> list[Target]:
    return list(Target.objects.filter(enabled=True, failures_in_a_row__gt=0).only("name"))


def _walls_hold() -> bool:
    return WallsProof.holding() is not None
