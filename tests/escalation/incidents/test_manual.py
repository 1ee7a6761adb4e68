"""Actions of a person on an incident, recorded with their name."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from escalation.errors import RefusalCode
from escalation.incidents import recorder
from sessions_app.history.incidents import LONGEST_NOTE
from sessions_app.models import Incident, IncidentEvent, Notification
from tests.escalation.refusals import refused
from tests.factories import CycleFactory, IncidentFactory, UserFactory, WatchFactory

pytestmark = pytest.mark.django_db
State, Step = Incident.State, IncidentEvent.Kind


@pytest.fixture
def incident() -> Incident:
    incident: Incident = IncidentFactory(cause="web")
    return incident


@pytest.fixture
def ada():
    return UserFactory(username="ada")


def test_acknowledging_sets_the_owner_and_notifies_others(incident, ada):
    recorder.acknowledge(incident, by=ada)

    incident.refresh_from_db()
    event = incident.events.get()
    assert (incident.state, incident.owner) == (State.ACKNOWLEDGED, ada)
    assert (event.kind, event.by) == (Step.ACKNOWLEDGED, ada)
    assert Notification.objects.get().kind == Notification.Kind.INCIDENT_CHANGED_HANDS


def opened_together(*causes: str, **fields) -> list[Incident]:
    cycle = CycleFactory()
    found = [IncidentFactory(cause=cause, **fields) for cause in causes]
    for incident in found:
        incident.events.create(kind=Step.OPENED, cycle=cycle)
    return found


def test_acknowledging_takes_the_incidents_that_were_opened_together(ada):
    web, db = opened_together("web", "db")
    [other] = opened_together("mail")

    recorder.acknowledge(web, by=ada)

    for incident in (web, db, other):
        incident.refresh_from_db()
    assert [one.owner for one in (web, db, other)] == [ada, ada, None]
    assert db.events.get(kind=Step.ACKNOWLEDGED).by == ada
    assert Notification.objects.count() == 1


def test_acknowledging_leaves_linked_incidents_of_others_and_resolved_ones(ada):
    web, db, mail = opened_together("web", "db", "mail")
    grace = UserFactory(username="grace")
    recorder.hand_over(db, grace, by=grace)
    recorder.resolve(mail, by=grace)

    recorder.acknowledge(web, by=ada)

    db.refresh_from_db()
    mail.refresh_from_db()
    assert (db.owner, mail.owner, mail.state) == (grace, None, State.RESOLVED)


def test_a_second_acknowledgement_is_refused(incident, ada):
    recorder.acknowledge(incident, by=ada)

    with refused(RefusalCode.INCIDENT_UNCHANGED):
        recorder.acknowledge(incident, by=UserFactory())


def test_a_snooze_stores_its_end(incident, ada):
    until = timezone.now() + timedelta(hours=8)

    recorder.snooze(incident, until, by=ada)

    incident.refresh_from_db()
    assert incident.is_snoozed
    assert f"{until:%Y-%m-%d %H:%M}" in incident.events.get().text


def test_an_incident_is_assigned_and_released(incident, ada):
    recorder.hand_over(incident, ada, by=UserFactory())
    recorder.hand_over(incident, None, by=ada)

    incident.refresh_from_db()
    assert (incident.owner, incident.state) == (None, State.OPEN)
    assert [event.text for event in incident.events.all()] == [
        "ada is the owner.",
        "It has no owner.",
    ]


def test_a_note_is_stored_redacted(incident, ada):
    recorder.add_note(incident, " password=hunter2hunter2 was wrong ", by=ada)

    text = incident.events.get().text
    assert "was wrong" in text
    assert "hunter2" not in text


def test_a_line_end_of_a_form_counts_as_one_character(incident, ada):
    recorder.add_note(incident, "x\r\n" * (LONGEST_NOTE // 2 - 1) + "y", by=ada)

    assert IncidentEvent.objects.get(kind="noted").text.count("\n") == LONGEST_NOTE // 2 - 1


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", RefusalCode.TEXT_MISSING),
        ("  \n ", RefusalCode.TEXT_MISSING),
        ("x" * 1_000_000, RefusalCode.TEXT_TOO_LONG),
    ],
)
def test_an_invalid_note_is_refused(incident, text, code):
    with refused(code):
        recorder.add_note(incident, text)

    assert not incident.events.exists()


def test_an_incident_is_resolved_once(incident, ada):
    recorder.resolve(incident, "the disk was full", by=ada)

    with refused(RefusalCode.INCIDENT_RESOLVED):
        recorder.resolve(incident, by=ada)
    incident.refresh_from_db()
    assert (incident.resolved_as, incident.resolved_by) == ("person", ada)
    assert incident.events.get().text == "the disk was full"


def test_an_incident_is_reopened_unless_a_new_one_has_the_same_cause(ada):
    watch = WatchFactory()
    first = IncidentFactory(cause="web", watch=watch)
    recorder.resolve(first, by=ada)
    recorder.reopen(first, by=ada)
    recorder.resolve(first, by=ada)

    second = IncidentFactory(cause="web", watch=watch)

    with refused(RefusalCode.INCIDENT_DUPLICATE, match=str(second.pk)):
        recorder.reopen(first, by=ada)


def test_a_drill_sends_no_notification(ada):
    incident = IncidentFactory(watch=None, drill="three-tiers", scope="drill:three-tiers")

    recorder.acknowledge(incident, by=ada)
    recorder.resolve(incident, by=ada)

    assert not Notification.objects.exists()
