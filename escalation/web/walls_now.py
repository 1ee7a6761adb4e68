"""What is in force on this machine at this moment, in the words that a session's record uses."""

from __future__ import annotations

import os
from typing import Any

from django.conf import settings

from escalation.agent import login_from
from escalation.run.walls import walls_of_installation


def current_walls() -> dict[str, Any]:
    """Of a run that would start now; doors and paths differ by tier and watch, so they are not
    here."""
    return walls_of_installation(login_from(os.environ, settings.CLAUDEOPS_PASS_ENV))
