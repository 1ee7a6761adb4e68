"""What every page says about this installation."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from escalation.agent import ClaudeBinary, credentials_configured, find_binary
from escalation.errors import CliMissing
from escalation.host.health import worker_was_seen
from escalation.web.permission import may_act
from sessions_app.models import PauseSwitch


def installation(request: HttpRequest) -> dict[str, Any]:
    return {
        "may_act": SimpleLazyObject(lambda: may_act(request.user)),
        "cli": _binary(),
        "api_key_configured": credentials_configured(),
        "pause_switch": SimpleLazyObject(PauseSwitch.current),
        "worker_is_silent": SimpleLazyObject(lambda: not worker_was_seen()),
    }


def _binary() -> ClaudeBinary | None:
    try:
        return find_binary()
    except CliMissing:
        return None
