"""An ephemeral run on the real CLI leaves no conversation behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from escalation.drills.drill import start_drill
from escalation.run.runner import run_to_end
from sessions_app.models import Cycle, Transcript
from tests.real_cli.playing import played, tool_outputs

pytestmark = pytest.mark.django_db


@pytest.fixture
def drill(own_state):
    cycle = start_drill("three-tiers")
    Cycle.objects.filter(pk=cycle.pk).update(ephemeral=True)
    return played(run_to_end(Cycle.objects.get(pk=cycle.pk), lambda line: None))


def test_no_conversation_is_left_and_higher_tiers_get_a_handoff(drill, own_state: Path):
    outputs = [output for output in tool_outputs(drill.of_tier(1)) if len(output) > 20]
    left = [path.name for path in own_state.rglob("claude/**/*") if path.is_file()]

    assert drill.cycle.outcome == Cycle.Outcome.FIXED
    assert [run.continued_guard for run in drill.sessions] == ["", "not_kept", "not_kept"]
    assert all("--no-session-persistence" in run.argv for run in drill.sessions)
    assert not Transcript.objects.exists()
    assert [name for name in left if name.endswith(".jsonl")] == []
    assert outputs
    for path in own_state.rglob("claude/**/*"):
        if path.is_file():
            assert not any(output in path.read_text(errors="replace") for output in outputs)
