"""`claudeops incident`: list, show and handle incidents."""

from __future__ import annotations

import io
import json

import pytest
from django.core.management import call_command

from escalation.errors import RefusalCode
from sessions_app.models import Incident
from tests.escalation.refusals import command_refused
from tests.factories import IncidentFactory, SessionFactory, WatchFactory, user_with

pytestmark = pytest.mark.django_db
State = Incident.State


def output_of(*arguments: str) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def listed(*arguments: str) -> tuple[str, object]:
    out = io.StringIO()
    with pytest.raises(SystemExit) as left:
        call_command("incident", "list", *arguments, stdout=out)
    return out.getvalue(), left.value.code


def test_without_an_incident_the_list_says_so():
    assert listed() == ("There is no incident.\n", 0)


def test_unresolved_incidents_are_listed_and_exit_with_1_when_a_person_is_needed():
    IncidentFactory(title="web is down")
    IncidentFactory(title="db was down", state=State.RESOLVED)
    IncidentFactory(title="rehearsed", watch=None, drill="x", scope="drill:x")

    said, code = listed()

    assert "web is down" in said
    assert "db was down" not in said
    assert "rehearsed" not in said
    assert code == 1
    assert "db was down" in listed("--all")[0]
    assert "rehearsed" in listed("--drills")[0]


def test_an_assigned_incident_needs_no_person():
    incident = IncidentFactory(state=State.ACKNOWLEDGED, owner=user_with("operator"))

    assert listed()[1] == 0

    Incident.objects.filter(pk=incident.pk).update(owner=None)
    assert listed()[1] == 1


def test_the_list_is_filtered_by_watch_and_printed_as_json():
    IncidentFactory(watch=WatchFactory(name="shop"), title="web is down")
    IncidentFactory()

    [data] = json.loads(listed("--watch", "shop", "--json")[0])

    assert (data["watch"], data["title"], data["state"]) == ("shop", "web is down", "open")


def test_an_incident_is_shown_with_its_events_and_cost():
    incident, session = IncidentFactory(), SessionFactory()
    incident.cycles.add(session.cycle)
    incident.events.create(kind="opened", text="it was down", cycle=session.cycle)

    said = output_of("incident", "show", str(incident.pk))
    data = json.loads(output_of("incident", "show", str(incident.pk), "--json"))

    assert "it was down" in said
    assert "$0.03 in 1 " in said
    assert (data["cost_usd"], data["cycles"]) == (0.03, [session.cycle.pk])
    assert [event["kind"] for event in data["events"]] == ["opened"]


def test_an_incident_is_acknowledged_snoozed_noted_and_resolved():
    number, ada = str(IncidentFactory().pk), ("--as", user_with("operator").username)

    output_of("incident", "acknowledge", number, *ada)
    output_of("incident", "snooze", number, "--for", "1h", *ada)
    output_of("incident", "note", number, "the fan is loud", *ada)
    said = output_of("incident", "resolve", number, "a new fan", *ada)

    incident = Incident.objects.get()
    assert (incident.state, incident.resolved_as) == (State.RESOLVED, "person")
    assert all(words in said for words in ("acknowledged", "the fan is loud", "a new fan"))
    assert incident.owner is not None
    assert {event.by for event in incident.events.all()} == {incident.owner}
    output_of("incident", "reopen", number, *ada)
    assert Incident.objects.get().state == State.OPEN


def test_an_account_without_the_right_cannot_acknowledge():
    number, eve = str(IncidentFactory().pk), user_with("viewer").username

    with command_refused(RefusalCode.NOT_PERMITTED):
        output_of("incident", "acknowledge", number, "--as", eve)
    with command_refused(RefusalCode.ACCOUNT_MISSING):
        output_of("incident", "acknowledge", number, "--as", "nobody-here")

    assert Incident.objects.get().state == State.OPEN


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("show", "nonsense"), RefusalCode.INVALID_ARGUMENTS),
        (("show", "99"), RefusalCode.NOT_FOUND),
        (("note", "1", " ", "--as", "ada"), RefusalCode.TEXT_MISSING),
    ],
)
def test_an_invalid_request_is_refused_with_its_code(arguments, code):
    IncidentFactory(pk=1)
    user_with("operator", username="ada")

    with command_refused(code):
        output_of("incident", *arguments)
