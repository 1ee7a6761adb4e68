"""How every command of ours ends: one table for all of them, for people and for scripts."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sessions_app.models import Cycle


class ExitCode(IntEnum):
    WELL = 0
    PERSON = 1
    REFUSED = 2


MEANINGS = {
    ExitCode.WELL: "it went well: healthy, fixed, shown, done",
    ExitCode.PERSON: "it ran, and a person is needed",
    ExitCode.REFUSED: "it could not run, or was refused: the message says what to do",
}


def exit_code_of(cycle: Cycle, *, waits_for_person: bool = False) -> ExitCode:
    if cycle.outcome in cycle.GOOD_OUTCOMES:
        return ExitCode.WELL
    if waits_for_person:
        return ExitCode.PERSON
    if cycle.is_active or cycle.outcome == cycle.Outcome.COULD_NOT_RUN:
        return ExitCode.REFUSED
    return ExitCode.PERSON
