"""A wrong value in the environment stops the start, and the message names the variable."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.core.exceptions import ImproperlyConfigured

from claudeops.state_directory import make_state_directory

HINT = "Correct it in the environment or in .env and start again."


@register()
def check_environment(**_options: Any) -> list[CheckMessage]:
    return [
        Error(problem.message, hint=HINT, id="claudeops.E001", obj=problem.name)
        for problem in settings.CONFIGURATION_PROBLEMS
    ]


@register()
def check_state_directory(**_options: Any) -> list[CheckMessage]:
    try:
        make_state_directory(settings.CLAUDEOPS_STATE_DIR)
    except ImproperlyConfigured as error:
        return [Error(str(error), hint=HINT, id="claudeops.E002", obj="CLAUDEOPS_STATE_DIR")]
    return []
