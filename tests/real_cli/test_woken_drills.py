"""Drills that a probe or alerts wake, on the real CLI with the command that people type."""

from __future__ import annotations

import json

import pytest
from django.core.management import call_command

from escalation.drills.drill import start_drill
from escalation.tasks import wake_drill
from sessions_app.models import Cycle, Incident, IncidentEvent, Notification, PeriodCost, Session
from tests.real_cli.playing import conversation_text, played

pytestmark = pytest.mark.django_db
State, Step = Incident.State, IncidentEvent.Kind


def drilled(name: str) -> Cycle:
    with pytest.raises(SystemExit) as left:
        call_command("drill", name)
    assert left.value.code == 0
    return Cycle.objects.filter(drill=name).order_by("pk")[0]


def test_a_failing_probe_wakes_a_cycle_and_verifies_its_fix():
    drill = played(drilled("failing-probe"))

    incident = Incident.objects.get()
    assert (drill.cycle.trigger, drill.cycle.outcome) == ("probe", Cycle.Outcome.FIXED)
    assert (incident.found_by, incident.state, incident.resolved_as) == (
        *("probe", State.RESOLVED),
        "agent",
    )
    assert [session.tier for session in drill.sessions] == [1, 2]
    assert "probe web-http of web fails" in conversation_text(drill.first_request_of_tier(1))
    assert Cycle.objects.count() == 1  # the probe verified it, and no session


def test_an_alert_storm_is_one_incident_and_one_cycle():
    drill = played(drilled("alert-storm"))

    incident = Incident.objects.get()
    assert (incident.cause, incident.found_by, incident.state) == ("db", "alert", State.RESOLVED)
    assert [fact.name for fact in drill.cycle.facts] == ["DatabaseDown", "storm of 11 more alerts"]
    assert list(Cycle.objects.order_by("pk").values_list("trigger", flat=True)) == [
        *("alert", "verification")
    ]
    assert not Notification.objects.exists()


def test_a_remedy_that_helps_needs_no_model(capsys):
    cycle = drilled("remedy-helps")

    incident = Incident.objects.get()
    assert (cycle.outcome, incident.state) == (Cycle.Outcome.FIXED, State.RESOLVED)
    assert list(incident.events.values_list("kind", flat=True)) == [
        *(Step.OPENED, Step.NOTED, Step.RESOLVED)
    ]
    drill = played(cycle)
    assert (drill.sessions, drill.requests) == ([], [])
    assert drill.state_of("web").startswith("Up")
    assert not PeriodCost.objects.exists()
    capsys.readouterr()
    with pytest.raises(SystemExit):
        call_command("drill", "remedy-helps", "--json")
    assert json.loads(capsys.readouterr().out) == []


def test_tier_1_is_told_of_a_remedy_that_did_not_help():
    drill = played(drilled("remedy-does-not-help"))

    told = conversation_text(drill.first_request_of_tier(1))
    assert "Tier 0 ran `remedy restart`: succeeded, exit code 0, the probe still fails" in told
    assert dict(Incident.objects.values_list("cause", "state")) == {
        "web": State.RESOLVED,
        "db": State.RESOLVED,
    }
    assert not Session.objects.real().exists()


def test_the_worker_wakes_a_drill_once():
    cycle = start_drill("alert-storm")
    assert not cycle.sessions.exists()

    wake_drill(cycle.pk)
    wake_drill(cycle.pk)

    assert cycle.sessions.count() == 1
