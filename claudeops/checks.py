"""A wrong value in the environment stops the start, and the message names the variable."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register

HINT = "Correct it in the environment or in .env and start again."


@register()
def check_environment(**_options: Any) -> list[CheckMessage]:
    return [
        Error(problem.message, hint=HINT, id="claudeops.E001", obj=problem.name)
        for problem in settings.CONFIGURATION_PROBLEMS
    ]
