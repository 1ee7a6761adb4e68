from __future__ import annotations

import pytest

from escalation.management.output import MEANINGS, ExitCode, exit_code_of
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


def test_every_code_has_a_meaning():
    assert set(MEANINGS) == set(ExitCode)
