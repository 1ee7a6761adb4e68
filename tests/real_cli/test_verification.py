"""The drill "the fix did not hold" with the real CLI, sandboxes and a fresh conversation."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management import call_command

from escalation.drills.drill import drill_directory, verify_drill
from escalation.run.runner import run_to_end
from sessions_app.models import Cycle, Incident, IncidentEvent, Notification
from tests.real_cli.playing import PlayedDrill, play, played

pytestmark = pytest.mark.django_db
Step = IncidentEvent.Kind


def looked_at_again(drill: PlayedDrill) -> PlayedDrill:
    verification = verify_drill(drill.cycle)
    assert verification is not None
    return played(run_to_end(verification, lambda line: None))


def test_a_failed_fix_opens_the_incident_again():
    drill = play("fix-did-not-hold")
    incident = Incident.objects.get()
    assert (drill.cycle.outcome, incident.state) == (Cycle.Outcome.FIXED, Incident.State.VERIFYING)
    assert drill.state_of("web") == "Up 1 second\n"

    again = looked_at_again(drill)

    incident.refresh_from_db()
    assert again.cycle.outcome == Cycle.Outcome.NEEDS_PERSON
    assert (incident.state, incident.times_reopened) == (Incident.State.OPEN, 1)
    assert list(incident.events.values_list("kind", flat=True)) == [
        *(Step.OPENED, Step.WORKED_ON, Step.FIXED, Step.DID_NOT_HOLD)
    ]
    assert incident.events.get(kind=Step.DID_NOT_HOLD).text == "restarted web"
    assert list(incident.cycles.order_by("pk")) == [drill.cycle, again.cycle]
    assert not Notification.objects.exists()


def test_verification_cycle_has_the_usual_prompt_and_stays_at_tier_1():
    drill = play("fix-did-not-hold")

    again = looked_at_again(drill)

    [run] = again.sessions
    assert (run.tier, run.continued_by, again.cycle.max_tier) == (1, "fresh", 1)
    assert run.session_id not in {session.session_id for session in drill.sessions}
    assert run.prompt == drill.of_tier(1).prompt


def test_a_fix_that_holds_is_fixed_and_verified():
    drill = play("fixed-at-tier-2")

    again = looked_at_again(drill)

    incident = Incident.objects.get()
    assert again.cycle.outcome == Cycle.Outcome.HEALTHY
    assert (incident.state, incident.resolved_as) == (Incident.State.RESOLVED, "agent")
    assert drill_directory(again.cycle) != drill_directory(drill.cycle)
    assert again.cycle.workdir == str(Path(drill.cycle.workdir))


def test_the_command_plays_the_verification_and_exits_with_its_code(capsys):
    with pytest.raises(SystemExit) as left:
        call_command("drill", "fix-did-not-hold")

    said = capsys.readouterr().out
    assert "knows nothing of the fix" in said
    assert "web is down: open." in said
    assert left.value.code == 1
