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
from tests.factories import IncidentFactory, UserFactory, WatchFactory

pytestmark = pytest.mark.django_db
State, Step = Incident.State, IncidentEvent.Kind


@pytest.fixture
def incident() -> Incident:
    incident: Incident = IncidentFactory(cause="web")
    return incident


@pytest.fixture
def ada():
    return UserFactory(username="ada")


def test_who_acknowledges_has_it_and_others_are_told(incident, ada):
    recorder.acknowledge(incident, by=ada)

    incident.refresh_from_db()
    event = incident.events.get()
    assert (incident.state, incident.owner) == (State.ACKNOWLEDGED, ada)
    assert (event.kind, event.by) == (Step.ACKNOWLEDGED, ada)
    assert Notification.objects.get().kind == Notification.Kind.INCIDENT_CHANGED_HANDS


def test_a_second_acknowledgement_is_refused(incident, ada):
    recorder.acknowledge(incident, by=ada)

    with refused(RefusalCode.INCIDENT_UNCHANGED):
        recorder.acknowledge(incident, by=UserFactory())


def test_a_snooze_says_until_when(incident, ada):
    until = timezone.now() + timedelta(hours=8)

    recorder.snooze(incident, until, by=ada)

    incident.refresh_from_db()
    assert incident.is_snoozed
    assert f"{until:%Y-%m-%d %H:%M}" in incident.events.get().text


def test_it_is_handed_over_and_let_go(incident, ada):
    recorder.hand_over(incident, ada, by=UserFactory())
    recorder.hand_over(incident, None, by=ada)

    incident.refresh_from_db()
    assert (incident.owner, incident.state) == (None, State.OPEN)
    assert [event.text for event in incident.events.all()] == [
        "ada is the owner.",
        "It has no owner.",
    ]


def test_a_note_is_kept_without_its_secrets(incident, ada):
    recorder.add_note(incident, " password=hunter2hunter2 was wrong ", by=ada)

    text = incident.events.get().text
    assert "was wrong" in text
    assert "hunter2" not in text


def test_a_line_end_of_a_form_counts_once(incident, ada):
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
def test_a_note_that_cannot_be_kept_is_refused(incident, text, code):
    with refused(code):
        recorder.add_note(incident, text)

    assert not incident.events.exists()


def test_it_is_resolved_once(incident, ada):
    recorder.resolve(incident, "the disk was full", by=ada)

    with refused(RefusalCode.INCIDENT_RESOLVED):
        recorder.resolve(incident, by=ada)
    incident.refresh_from_db()
    assert (incident.resolved_as, incident.resolved_by) == ("person", ada)
    assert incident.events.get().text == "the disk was full"


def test_it_can_be_opened_again_unless_it_came_back_meanwhile(ada):
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
