from __future__ import annotations

import errno
import os
from typing import ClassVar

import pytest
from django.core.management import call_command

from escalation.errors import RefusalCode
from escalation.management.output import (
    MEANINGS,
    ExitCode,
    Refused,
    TerminalCommand,
    exit_code_of,
)
from sessions_app.models import Cycle
from tests.tables import each_row


@each_row(
    ("outcome", "code"),
    [
        (Cycle.Outcome.HEALTHY, 0),
        (Cycle.Outcome.FIXED, 0),
        (Cycle.Outcome.NEEDS_PERSON, 1),
        (Cycle.Outcome.COULD_NOT_RUN, 2),
        ("", 1),
    ],
)
def test_every_outcome_has_its_exit_code(outcome, code):
    assert exit_code_of(Cycle(outcome=outcome, state=Cycle.State.FINISHED)) == code


@pytest.mark.parametrize("state", Cycle.ACTIVE_STATES)
def test_a_cycle_that_has_not_ended_exits_with_2(state):
    assert exit_code_of(Cycle(outcome="", state=state)) == 2


def test_a_reopened_cycle_does_not_exit_with_its_earlier_outcome():
    reopened = Cycle(outcome=Cycle.Outcome.HEALTHY, state=Cycle.State.RUNNING)

    assert exit_code_of(reopened, waits_for_person=True) == 1
    assert exit_code_of(reopened) == 2
    assert (reopened.result, reopened.result_text) == ("running", "running")


@pytest.mark.parametrize(
    ("branch", "code"), [("healthy", 0), ("needs_person", 1), ("could_not_run", 2), ("", 1)]
)
def test_a_branch_ends_a_command_with_its_own_outcome(branch, code):
    cycle = Cycle(outcome="needs_person", state=Cycle.State.FINISHED)

    assert exit_code_of(cycle, branch_outcome=branch) == code


def test_every_code_has_a_meaning():
    assert set(MEANINGS) == set(ExitCode)


def test_a_path_without_rights_is_refused_with_the_path_and_the_user(tmp_path):
    class Reading(TerminalCommand):
        requires_system_checks: ClassVar[list[str]] = []

        def handle(self, *args, **options):
            raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path))

    with pytest.raises(Refused) as refused:
        call_command(Reading())

    assert refused.value.code == RefusalCode.FILE
    assert str(tmp_path) in str(refused.value)
    assert str(os.getuid()) in str(refused.value)
