"""How a command says no.

Exit codes, the same for every command: 0 it went well, 1 a person is needed, 2 it could not run or
was refused.
"""

from __future__ import annotations

from django.core.management.base import CommandError

REFUSED_EXIT = 2


class Refused(CommandError):
    def __init__(self, reason: object) -> None:
        super().__init__(str(reason), returncode=REFUSED_EXIT)
