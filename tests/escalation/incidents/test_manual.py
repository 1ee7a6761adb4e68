"""What a person does with an incident, each with their name in its story."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from escalation.errors import OperationRefused
from escalation.incidents import by_person
from sessions_app.models import Happening, Incident, IncidentEvent
from sessions_app.reading.incident_text import LONGEST_NOTE
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
    by_person.acknowledge(incident, by=ada)

    incident.refresh_from_db()
    event = incident.events.get()
    assert (incident.state, incident.owner) == (State.ACKNOWLEDGED, ada)
    assert (event.kind, event.by) == (Step.ACKNOWLEDGED, ada)
    assert Happening.objects.get().kind == Happening.Kind.INCIDENT_CHANGED_HANDS


def test_the_second_to_acknowledge_is_told_so(incident, ada):
    by_person.acknowledge(incident, by=ada)

    with pytest.raises(OperationRefused, match="acknowledged already"):
        by_person.acknowledge(incident, by=UserFactory())


def test_a_snooze_says_until_when(incident, ada):
    until = timezone.now() + timedelta(hours=8)

    by_person.snooze(incident, until, by=ada)

    incident.refresh_from_db()
    assert incident.is_snoozed
    assert f"{until:%Y-%m-%d %H:%M}" in incident.events.get().text


def test_it_is_handed_over_and_let_go(incident, ada):
    by_person.hand_over(incident, ada, by=UserFactory())
    by_person.hand_over(incident, None, by=ada)

    incident.refresh_from_db()
    assert (incident.owner, incident.state) == (None, State.OPEN)
    assert [event.text for event in incident.events.all()] == ["ada has it.", "Nobody has it."]


def test_a_note_is_kept_without_its_secrets(incident, ada):
    by_person.note(incident, " password=hunter2hunter2 was wrong ", by=ada)

    text = incident.events.get().text
    assert "was wrong" in text
    assert "hunter2" not in text


def test_a_line_end_of_a_form_counts_once(incident, ada):
    by_person.note(incident, "x\r\n" * (LONGEST_NOTE // 2 - 1) + "y", by=ada)

    assert IncidentEvent.objects.get(kind="noted").text.count("\n") == LONGEST_NOTE // 2 - 1


@pytest.mark.parametrize(
    ("text", "words"), [("", "empty"), ("  \n ", "empty"), ("x" * 1_000_000, "1,000,000")]
)
def test_a_note_that_cannot_be_kept_is_refused_with_a_reason(incident, text, words):
    with pytest.raises(OperationRefused, match=words):
        by_person.note(incident, text)

    assert not incident.events.exists()


def test_it_is_resolved_once(incident, ada):
    by_person.resolve(incident, "the disk was full", by=ada)

    with pytest.raises(OperationRefused, match="resolved already"):
        by_person.resolve(incident, by=ada)
    incident.refresh_from_db()
    assert (incident.resolved_as, incident.resolved_by) == ("person", ada)
    assert incident.events.get().text == "the disk was full"


def test_it_can_be_opened_again_unless_it_came_back_meanwhile(ada):
    watch = WatchFactory()
    first = IncidentFactory(cause="web", watch=watch)
    by_person.resolve(first, by=ada)
    by_person.reopen(first, by=ada)
    by_person.resolve(first, by=ada)

    second = IncidentFactory(cause="web", watch=watch)

    with pytest.raises(OperationRefused, match=f"Incident {second.pk} is about the same"):
        by_person.reopen(first, by=ada)


def test_of_a_drill_nobody_is_told(ada):
    incident = IncidentFactory(watch=None, drill="three-tiers", scope="drill:three-tiers")

    by_person.acknowledge(incident, by=ada)
    by_person.resolve(incident, by=ada)

    assert not Happening.objects.exists()
