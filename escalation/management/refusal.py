"""How a command says no."""

from __future__ import annotations

from collections.abc import Iterable

from django.core.management.base import CommandError

from escalation.management.exit_codes import ExitCode


class Refused(CommandError):
    def __init__(self, reason: object) -> None:
        super().__init__(str(reason), returncode=ExitCode.REFUSED)


def refused_for(reasons: Iterable[str]) -> Refused:
    """All that is wrong at once, each on a line of its own where there are several."""
    return Refused("\n".join(reasons))
