"""The search of all pages: what is found, by whom, and how it is shown."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from escalation.run.searchable import index_run
from escalation.web.search import PER_GROUP, SearchResult, find
from sessions_app.access.roles import TABLE, Right, Role
from sessions_app.models import SearchProgress
from tests.escalation.run.test_searchable import add_call
from tests.escalation.web.test_hostile_text import HOSTILE, Markup
from tests.escalation.web.test_query_counts import count_queries
from tests.factories import (
    CycleFactory,
    IncidentFactory,
    ProbeFactory,
    RemedyFactory,
    ServiceStateFactory,
    SessionFactory,
    WatchFactory,
    user_with,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fake_cli")]
EVERYTHING = frozenset(Right)
MOST_QUERIES = 16


def titles(result: SearchResult) -> dict[str, list[str]]:
    return {group.title: [hit.title for hit in group.hits] for group in result.groups}


def ended(said: str, printed: str = "", **facts):
    facts.setdefault("cycle", CycleFactory())
    session = SessionFactory(
        status="completed", finished_at=timezone.now(), report={"summary": said}, **facts
    )
    if printed:
        add_call(session, "docker logs web", printed)
    index_run(session)
    return session


def page(client: Client, words: str, **more: str) -> str:
    return client.get(reverse("web:search"), {"q": words, **more}).content.decode()


def test_things_are_found_by_their_names():
    watch = WatchFactory(name="lighthouse")
    ServiceStateFactory(watch=watch, service="lamp")
    ProbeFactory(watch=watch, name="lamp-http", service="lamp")
    RemedyFactory(watch=watch, name="swap-lamp")
    incident = IncidentFactory(watch=watch, title="The lamp is out")

    found = titles(find("lamp", EVERYTHING))
    watches = titles(find("LIGHTHOUSE", EVERYTHING))["Watches"]

    assert watches == ["lighthouse"]
    assert list(found) == ["Services", "Probes", "Remedies", "Incidents"]
    assert found["Incidents"] == [f"#{incident.pk} lighthouse: The lamp is out"]
    assert titles(find("idle timeout", EVERYTHING))["Settings"]
    assert titles(find("sandb", EVERYTHING))["Pages"] == ["Sandbox"]


def test_a_word_of_a_report_leads_to_session_cycle_and_incident():
    session = ended("QueuePool limit of size 5 reached")
    incident = IncidentFactory(title="web is down")
    incident.cycles.add(session.cycle)

    result = find("queuepool", EVERYTHING)

    assert list(titles(result)) == ["Incidents", "Cycles", "Sessions"]
    for group in result.groups:
        [hit] = group.hits
        assert hit.found is not None
        assert (hit.found.where, hit.found.match) == ("report", "QueuePool")
    assert result.groups[0].hits[0].url == incident.get_absolute_url()


@pytest.mark.parametrize("role", Role)
def test_output_is_found_by_roles_that_may_see_output(role):
    session = ended("All is well.", "FATAL: OverflowPool")

    found = titles(find("overflowpool", TABLE[role]))

    may_see = Right.SEE_OUTPUT in TABLE[role]
    assert bool(found.get("Sessions")) is may_see
    assert found == ({} if not may_see else found)
    client = Client()
    client.force_login(user_with(role))
    shown = page(client, "overflowpool")
    assert (session.get_absolute_url() in shown) is may_see
    assert ("<mark>OverflowPool</mark>" in shown) is may_see


def test_remedies_and_pages_of_other_roles_are_not_found_by_a_viewer():
    RemedyFactory(name="approvals-of-mine")

    assert titles(find("approvals", TABLE[Role.VIEWER])) == {}
    assert set(titles(find("approvals", TABLE[Role.APPROVER]))) == {"Pages", "Remedies"}


def test_drills_are_left_out_unless_they_are_asked_for():
    earnest = ended("QueuePool in earnest")
    drill = ended("QueuePool in play", cycle=CycleFactory(watch=None, drill="three-tiers"))
    IncidentFactory(title="QueuePool", drill="three-tiers", watch=None)

    without, with_drills = find("queuepool", EVERYTHING), find("queuepool", EVERYTHING, drills=True)

    assert [hit.url for group in without.groups for hit in group.hits] == [
        earnest.cycle.get_absolute_url(),
        earnest.get_absolute_url(),
    ]
    urls = [hit.url for group in with_drills.groups for hit in group.hits]
    assert drill.get_absolute_url() in urls
    assert earnest.get_absolute_url() not in urls
    assert {hit.drill for group in with_drills.groups for hit in group.hits} == {True}


def test_a_number_finds_incident_cycle_and_session():
    session = SessionFactory(cycle=CycleFactory(pk=417), pk=417)
    incident = IncidentFactory(pk=417)

    urls = [hit.url for group in find("#417", EVERYTHING).groups for hit in group.hits]

    assert urls == [
        incident.get_absolute_url(),
        session.cycle.get_absolute_url(),
        session.get_absolute_url(),
    ]


def test_many_matches_are_cut_with_a_link_to_the_whole_list(operator_client):
    for _ in range(PER_GROUP + 1):
        ended("QueuePool")

    result = find("queuepool", EVERYTHING)

    assert [(group.title, len(group.hits)) for group in result.groups] == [
        ("Cycles", PER_GROUP),
        ("Sessions", PER_GROUP),
    ]
    for group in result.groups:
        assert operator_client.get(group.more).status_code == 200
    assert "QueuePool</mark>" in operator_client.get(result.groups[0].more).content.decode()


@pytest.mark.parametrize("words", ["", " ", "a", "%", '"', "'; --", "%_\\", "{said} : x"])
def test_short_and_odd_words_are_answered(operator_client, words):
    response = operator_client.get(reverse("web:search"), {"q": words})

    assert response.status_code == 200
    assert response.context["result"].count == 0


def test_a_search_takes_a_bounded_number_of_queries(operator_client):
    def queries() -> int:
        return count_queries(lambda: page(operator_client, "queuepool"))

    session = ended("QueuePool")
    IncidentFactory(title="QueuePool").cycles.add(session.cycle)
    some = queries()
    for _ in range(2 * PER_GROUP):
        IncidentFactory(title="QueuePool").cycles.add(ended("QueuePool").cycle)

    assert queries() == some <= MOST_QUERIES


def test_hostile_text_is_escaped_in_titles_and_excerpts(operator_client):
    watch = WatchFactory(name=f"pool {HOSTILE}"[:100])
    session = ended(f"{HOSTILE} QueuePool {HOSTILE}", cycle=CycleFactory(watch=watch))
    incident = IncidentFactory(watch=watch, title=f"QueuePool {HOSTILE}"[:200])
    incident.cycles.add(session.cycle)

    for words in ("pool", HOSTILE, "<script>", '"><img'):
        shown = page(operator_client, words)
        assert Markup(shown).acting == []
        assert "<script>alert" not in shown


def test_what_is_not_indexed_yet_is_said():
    SearchProgress.objects.create(pk=SearchProgress.THE_ONE, below=900)
    assert "#900" in find("queuepool", EVERYTHING).remark
    SearchProgress.objects.update(below=0)
    assert find("queuepool", EVERYTHING).remark == ""


def test_the_command_finds_what_the_page_finds():
    session = ended("QueuePool limit", "FATAL: OverflowPool")
    out = StringIO()
    call_command("search", "overflowpool", stdout=out)
    data = StringIO()
    call_command("search", "QueuePool", "limit", "--json", stdout=data)

    assert f"#{session.pk}" in out.getvalue()
    assert "output: docker logs web FATAL: OverflowPool" in out.getvalue()
    groups = json.loads(data.getvalue())["groups"]
    assert [group["title"] for group in groups] == ["Cycles", "Sessions"]
    assert groups[1]["hits"][0]["path"] == session.get_absolute_url()
